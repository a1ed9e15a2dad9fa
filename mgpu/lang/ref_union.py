"""Several SMEM buffers in the same bytes: `RefUnion`, for buffers whose lifetimes do not overlap."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import AbstractRef, Transform, TransformedRef, hide_from_source_lines
from mgpu.lang.memory import SMEM, MemoryRef
from mgpu.lang.primitive import type_error
from mgpu.lang.transforms import bits_of

hide_from_source_lines(__file__)

_UNPACK = "Unpack it into its groups of buffers (a, b = union; [a] = union for one), and use one of those."
ALIGNMENT_BYTES = 1024  # PTX ISA: the swizzle pattern of wgmma and TMA repeats every 1024 bytes


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class UnionMemberTransform(Transform):
    """Selects one buffer of a union.

    Attributes:
      offset_bytes: where it begins in the union.
      shape, dtype, memory_space: its type.
    """

    offset_bytes: int = dataclasses.field(metadata={"static": True})
    shape: tuple[int, ...] = dataclasses.field(metadata={"static": True})
    dtype: Any = dataclasses.field(metadata={"static": True})
    memory_space: Any = dataclasses.field(metadata={"static": True})

    def transform_type(self, x: Any) -> Any:
        """Returns the type of the member."""
        inner = ShapedArray(self.shape, self.dtype)
        return AbstractRef(inner, memory_space=self.memory_space) if isinstance(x, AbstractRef) else inner

    def undo(self, x: Any) -> Transform:
        """Refuses: a member does not know the other ones."""
        raise NotImplementedError("a member of a union cannot be turned back into the union")

    def __str__(self) -> str:
        return f"member@{self.offset_bytes}"


class RefUnionRef(AbstractRef):
    """Aval of a ref to a union. Unpacking it gives each group of buffers."""

    def __init__(
        self, inner_aval: Any, memory_space: Any = None, kind: Any = None, groups: tuple[Any, ...] = ()
    ) -> None:
        super().__init__(inner_aval, memory_space, kind)
        self.groups = groups

    def update(self, inner_aval: Any = None, memory_space: Any = None, kind: Any = None) -> RefUnionRef:
        """Returns the aval with some parts replaced, as JAX asks of every ref aval."""
        return RefUnionRef(
            inner_aval or self.inner_aval, memory_space or self.memory_space, kind or self.kind, self.groups
        )

    def _iter(self, tracer: Any) -> Iterator[Any]:
        return iter([_members(tracer, group) for group in self.groups])

    def _len(self, ignored_tracer: Any) -> int:
        return len(self.groups)

    def _getitem(self, tracer: Any, idx: Any) -> Any:
        if isinstance(idx, int):
            return _members(tracer, self.groups[idx])
        raise type_error("RefUnion", f"a union is indexed with {idx!r}. {_UNPACK}")

    def _setitem(self, tracer: Any, idx: Any, value: Any) -> None:
        raise type_error("RefUnion", f"a union cannot be assigned to. {_UNPACK}")


def _members(tracer: Any, group: Any) -> Any:
    return jax.tree.map(lambda member: TransformedRef(tracer, (member,)), group, is_leaf=_is_member)


def _is_member(value: Any) -> bool:
    return isinstance(value, UnionMemberTransform)


class RefUnion:
    """Type of buffers that lie in the same SMEM, for `scratch_types` or `pl.run_scoped`.

    In the kernel, unpack the ref into as many groups as were given. Using one group destroys what is in the others.
    Each member begins at a multiple of 1024 bytes, as on the device. The simulator gives an element of 4 bits a byte,
    so there the bytes of another member cannot be looked at as such elements.

    Attributes:
      refs: groups (an SMEM type, or a pytree of them); the buffers of one group lie beside each other.
      nbytes: size of the largest group.
    """

    def __init__(self, *refs: Any) -> None:
        if not refs:
            raise KernelTypeError("RefUnion: give at least one SMEM type.")
        self.refs = refs
        self._groups, sizes = zip(*(_place(group) for group in refs), strict=True)
        self.nbytes = max(sizes)

    def get_array_aval(self) -> ShapedArray:
        """Returns the aval of the bytes."""
        return ShapedArray((self.nbytes,), jnp.uint8)

    def get_ref_aval(self) -> RefUnionRef:
        """Returns the aval of a ref to the union: what the kernel unpacks."""
        return RefUnionRef(self.get_array_aval(), memory_space=SMEM, groups=self._groups)


def _place(group: Any) -> tuple[Any, int]:
    """Returns a group with members in place of types, and the bytes that it takes."""
    leaves, tree = jax.tree.flatten(group, is_leaf=lambda x: isinstance(x, MemoryRef))
    members, end = [], 0
    for leaf in leaves:
        if not isinstance(leaf, MemoryRef) or leaf.memory_space is not SMEM:
            raise KernelTypeError(f"RefUnion: members must be SMEM types, got {leaf!r}. Allocate it outside the union.")
        offset = -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        space = leaf.get_ref_aval().memory_space
        members.append(UnionMemberTransform(offset, leaf.shape, np.dtype(leaf.dtype), space))
        end = offset + math.prod(leaf.shape) * max(8, bits_of(leaf.dtype)) // 8
    return jax.tree.unflatten(tree, members), end
