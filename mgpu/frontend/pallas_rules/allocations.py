"""What JAX's kernels allocate: memory, unions, barriers, semaphores and accumulators, said in our types."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax

import mgpu
from mgpu.errors import Unsupported
from mgpu.frontend.pallas_rules.refs import ImportedRef, ImportedUnion
from mgpu.jax_internals import AbstractRef, TransformedRef, current_source_line
from mgpu.lang.transforms import bits_of


def allocation_type(aval: Any, layout: Sequence[Any]) -> Any:
    """Returns our allocation type for a ref that JAX's `run_scoped` allocates.

    Args:
      aval: JAX's aval of the ref, in its physical shape.
      layout: the transforms that JAX puts between the physical and the logical shape.

    Raises:
      Unsupported: a kind of memory that a Hopper GPU does not have, or that has no counterpart here.
    """
    dtype_kind = type(aval.dtype).__name__
    if dtype_kind == "BarrierType":
        return mgpu.Barrier(
            num_arrivals=aval.dtype.num_arrivals,
            num_barriers=aval.shape,
            orders_tensor_core=aval.dtype.orders_tensor_core,
        )
    if dtype_kind == "ClusterBarrierType":
        return mgpu.ClusterBarrier(
            collective_axes=aval.dtype.collective_axes,
            num_barriers=aval.shape,
            num_arrivals=aval.dtype.num_arrivals,
            orders_tensor_core=aval.dtype.orders_tensor_core,
        )
    if dtype_kind in _SEMAPHORES:
        return mgpu.SemaphoreType[_SEMAPHORES[dtype_kind]](aval.shape)
    make = _BY_AVAL.get(type(aval).__name__) or _BY_SPACE.get(str(aval.memory_space))
    if make is None:
        raise Unsupported(
            f"{current_source_line()} run_scoped: an allocation {aval} in {aval.memory_space} is not available on the "
            "simulated Hopper GPU. Use GMEM, SMEM, barriers or a wgmma accumulator."
        )
    return make(aval, layout)


def _accumulator(aval: Any, layout: Sequence[Any]) -> Any:
    del layout
    return mgpu.ACC(aval.shape, aval.dtype)


def _smem(aval: Any, layout: Sequence[Any]) -> Any:
    logical = aval.inner_aval
    transforms: list[Any] = []
    for transform in layout:
        undo = _LAYOUT.get(type(transform).__name__)
        if undo is None:
            raise Unsupported(
                f"{current_source_line()} run_scoped: SMEM laid out by {type(transform).__name__} is not available. "
                "Use TilingTransform and SwizzleTransform."
            )
        transforms.insert(0, undo(transform))
        logical = transform.transform_type(logical)
    return mgpu.SMEM(logical.shape, logical.dtype, transforms=tuple(transforms))


def _union(aval: Any, layout: Sequence[Any]) -> Any:
    del layout
    return mgpu.RefUnion(*([allocation_type(*split_layout(leaf)) for leaf in _leaves(group)] for group in aval.refs))


def class_names(layout: Sequence[Any]) -> tuple[str, ...]:
    """Returns the names of the classes of transforms; names stay."""
    return tuple(each if isinstance(each, str) else type(each).__name__ for each in layout)


def transforms_of(transforms: Sequence[Any]) -> tuple[Any, ...]:
    """Returns our layout transforms for JAX's.

    Raises:
      Unsupported: one that we do not have.
    """
    found = []
    for transform in transforms:
        make = _FORWARD.get(type(transform).__name__)
        if make is None:
            raise Unsupported(
                f"{current_source_line()} a layout of {type(transform).__name__} is not available. "
                "Use TilingTransform and SwizzleTransform."
            )
        found.append(make(transform))
    return tuple(found)


def imported_ref(ref: Any, aval: Any, layout: Sequence[Any]) -> ImportedRef:
    """Returns our `ref` as what stands for JAX's.

    Args:
      ref: what was allocated as `allocation_type` says.
      aval, layout: what `allocation_type` was asked for.
    """
    if type(aval).__name__ != _UNION:
        return ImportedRef(ref, class_names(layout))
    groups = []
    for group in aval.refs:
        places, end = [], 0
        for leaf in _leaves(group):
            member, member_layout = split_layout(leaf)
            offset = -(-end // _UNION_ALIGNMENT_BYTES) * _UNION_ALIGNMENT_BYTES
            places.append((offset, class_names(member_layout)))
            end = offset + math.prod(member.shape) * bits_of(member.dtype) // 8
        groups.append(tuple(places))
    return ImportedUnion(ref, (), tuple(groups))


def _leaves(group: Any) -> list[Any]:
    return jax.tree.leaves(group, is_leaf=lambda leaf: isinstance(leaf, (AbstractRef, TransformedRef)))


def split_layout(leaf: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns the aval of a ref in its physical shape, and the transforms to its logical one."""
    return (leaf.ref, tuple(leaf.transforms)) if isinstance(leaf, TransformedRef) else (leaf, ())


ACCUMULATOR = "WGMMAAbstractAccumulatorRef"
"""Name of the class of JAX's avals of wgmma accumulators."""

_UNION = "AbstractRefUnion"
_UNION_ALIGNMENT_BYTES = 1024  # as JAX lays out unions: the offsets name the members
_SEMAPHORES: Mapping[str, str] = {"Semaphore": "REGULAR", "BarrierSemaphore": "BARRIER"}
_LAYOUT: Mapping[str, Callable[[Any], Any]] = {
    "UntilingTransform": lambda t: mgpu.TilingTransform(t.tiling),
    "UnswizzleRef": lambda t: mgpu.SwizzleTransform(t.swizzle),
}
_FORWARD: Mapping[str, Callable[[Any], Any]] = {
    "TilingTransform": lambda t: mgpu.TilingTransform(t.tiling),
    "SwizzleTransform": lambda t: mgpu.SwizzleTransform(t.swizzle),
}
_BY_AVAL: Mapping[str, Callable[[Any, Sequence[Any]], Any]] = {
    ACCUMULATOR: _accumulator,
    _UNION: _union,
}
_BY_SPACE: Mapping[str, Callable[[Any, Sequence[Any]], Any]] = {"smem": _smem}
