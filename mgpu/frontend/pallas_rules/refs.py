"""Refs of JAX's kernels: what we hand out in their place, and their transforms.

JAX gives a tiled and swizzled SMEM buffer its physical shape, and begins every use of it with the transforms that
recover the logical shape. Our refs have the logical shape, and the layout belongs to their memory space.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

import mgpu
from mgpu.errors import Unsupported
from mgpu.jax_internals import TransformedRef, current_source_line
from mgpu.lang.primitive import flatten_operands


@dataclasses.dataclass(frozen=True)
class ImportedRef:
    """Our ref for one of JAX's.

    Attributes:
      ref: the ref that our operations take.
      layout: the transforms with which JAX begins every use of its own ref, by the names of their classes.
    """

    ref: Any
    layout: tuple[str, ...] = ()

    def view(self, transforms: Sequence[Any]) -> Any:
        """Returns our ref for the part that JAX's `transforms` select.

        Raises:
          Unsupported: the kernel looks at the tiles of a buffer as such, or a transform has no counterpart.
        """
        if tuple(type(transform).__name__ for transform in transforms[: len(self.layout)]) != self.layout:
            raise Unsupported(
                f"{current_source_line()} a tiled buffer is used without its transforms, as raw tiles. "
                "Index its logical shape, or allocate it without transforms."
            )
        view = self.ref
        for transform in transforms[len(self.layout) :]:
            view = _transformed(view, transform)
        return view


@dataclasses.dataclass(frozen=True)
class ImportedUnion(ImportedRef):
    """Our union of buffers for one of JAX's.

    Attributes:
      groups: for each buffer of each group, where JAX places it in the union (bytes), and its layout as above.
    """

    groups: tuple[tuple[tuple[int, tuple[str, ...]], ...], ...] = ()

    def view(self, transforms: Sequence[Any]) -> Any:
        """Returns our ref for the part that JAX's `transforms` select: first a buffer, then a part of it."""
        member, *rest = transforms
        group = self.groups[member.alias_group_idx]
        number = next(number for number, (offset, _) in enumerate(group) if offset == member.offset)
        ours = jax.tree.leaves(list(self.ref)[member.alias_group_idx], is_leaf=_is_transformed)[number]
        return ImportedRef(ours, group[number][1]).view(rest)


def _is_transformed(value: Any) -> bool:
    return isinstance(value, TransformedRef)


@dataclasses.dataclass
class Cell:
    """A plain value that JAX passes as a ref: what `run_state` makes of the values that its function closes over."""

    value: Any


def as_operand(value: Any) -> Any:
    """Returns the value that a JAX primitive takes for an operand: the bare ref, or the array."""
    if isinstance(value, ImportedRef):
        return value.ref
    return value.value if isinstance(value, Cell) else value


def same_kind(like: Any, value: Any) -> Any:
    """Wraps a bare value as `like` is wrapped."""
    if isinstance(like, ImportedRef):
        return dataclasses.replace(like, ref=value)
    return Cell(value) if isinstance(like, Cell) else value


def spread(operands: Sequence[Any]) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Returns the values that JAX's control flow takes for operands, and what makes operands of such values again.

    A ref that is a part of another one, such as a pipeline's slot, becomes that one and the indices of the part.
    """
    flat, trees = [], []
    for operand in operands:
        values, tree = flatten_operands(as_operand(operand))
        flat += values
        trees.append(tree)

    def gather(values: Sequence[Any]) -> list[Any]:
        gathered = []
        for like, tree, leaves in zip(operands, trees, split_leaves(values, *trees), strict=False):
            (value,) = jax.tree.unflatten(tree, leaves)
            if isinstance(value, tuple):
                value = TransformedRef(value[0], tuple(value[1]))
            gathered.append(same_kind(like, value))
        return gathered

    return flat, gather


def take_flat_view(tree: Any, operands: Sequence[Any]) -> tuple[Any, list[Any]]:
    """Returns our ref for operands that JAX flattened as `(ref, transforms, *others)`, and the others."""
    ref, transforms, *others = jax.tree.unflatten(tree, operands)
    return ref.view(transforms), others


def take_view(ref: Any, tree: Any, leaves: Sequence[Any]) -> Any:
    """Returns our ref for `ref` under the transforms flattened into `tree` and `leaves`; arrays as they are."""
    if not isinstance(ref, ImportedRef):
        return ref
    return ref.view(() if tree is None else jax.tree.unflatten(tree, leaves))


def split_leaves(leaves: Sequence[Any], *trees: Any) -> tuple[list[Any], ...]:
    """Splits flat operands into those of each tree, and the rest; a tree may be None."""
    parts, at = [], 0
    for tree in trees:
        count = 0 if tree is None else tree.num_leaves
        parts.append(list(leaves[at : at + count]))
        at += count
    return (*parts, list(leaves[at:]))


def _append(view: Any, transform: Any) -> TransformedRef:
    if isinstance(view, TransformedRef):
        return TransformedRef(view.ref, (*view.transforms, transform))
    return TransformedRef(view, (transform,))


def _transformed(view: Any, transform: Any) -> Any:
    apply = _TRANSFORMS.get(type(transform).__name__)
    if apply is None:
        raise Unsupported(
            f"{current_source_line()} a ref transform {type(transform).__name__} has no counterpart here. "
            "Slice, reshape, transpose or bitcast the ref instead."
        )
    return apply(view, transform)


# Those of Pallas core are the same classes on both sides.
_TRANSFORMS: Mapping[str, Callable[[Any, Any], Any]] = {
    "NDIndexer": _append,
    "ReshapeTransform": _append,
    "BitcastTransform": _append,
    "TransposeTransform": _append,
    "MulticastRef": lambda view, t: mgpu.multicast_ref(view, t.collective_axes),
    "ClusterRefTransform": lambda view, t: mgpu.cluster_ref(view, dict(zip(t.dims, t.idxs, strict=True))),
    "IdentityTransform": lambda view, _: view,
}
