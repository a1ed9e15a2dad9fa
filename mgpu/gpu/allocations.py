"""Allocations of the language -> types that JAX's Mosaic GPU module allocates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
from jax.core import ShapedArray
from jax.experimental.pallas import mosaic_gpu

from mgpu.jax_internals import AbstractRef
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.hopper import AccumulatorSpace
from mgpu.lang.memory import MemorySpace, TiledSpace
from mgpu.lang.ref_union import RefUnionRef, UnionMemberTransform
from mgpu.lang.semaphores import SemaphoreSpace
from mgpu.lang.transforms import SwizzleTransform, TilingTransform


def allocation_type(aval: Any) -> Any:
    """Returns what to pass to `pl.run_scoped` to get a ref like `aval`; None if JAX's module has no such thing.

    Args:
      aval: aval of a ref as the language allocates it; its memory space says what it is.
    """
    if isinstance(aval, RefUnionRef):
        return mosaic_gpu.RefUnion(*jax.tree.map(_member_type, tuple(aval.groups), is_leaf=is_member))
    make = _MAKE.get(type(aval.memory_space))
    return make(aval) if make else None


def is_member(value: Any) -> bool:
    """True for what selects one buffer of a union."""
    return isinstance(value, UnionMemberTransform)


def _member_type(member: UnionMemberTransform) -> Any:
    return allocation_type(AbstractRef(ShapedArray(member.shape, member.dtype), memory_space=member.memory_space))


def _memory(aval: Any) -> Any:
    return _SPACES[aval.memory_space](aval.shape, aval.dtype)


def _tiled_memory(aval: Any) -> Any:
    space: TiledSpace = aval.memory_space
    return _SPACES[space.kind](aval.shape, aval.dtype, transforms=tuple(map(layout_transform, space.transforms)))


def layout_transform(transform: TilingTransform | SwizzleTransform) -> Any:
    """Returns JAX's transform of the same meaning."""
    if isinstance(transform, TilingTransform):
        return mosaic_gpu.TilingTransform(transform.tiling)
    return mosaic_gpu.SwizzleTransform(transform.swizzle)


def _barrier(aval: Any) -> Any:
    space: BarrierSpace = aval.memory_space
    fields: dict[str, Any] = {
        "num_arrivals": space.num_arrivals,
        "num_barriers": tuple(aval.shape),
        "orders_tensor_core": space.orders_tensor_core,
    }
    if not space.collective_axes:
        return mosaic_gpu.Barrier(**fields)
    # JAX takes an axis in a tuple of its own for a group of axes, and has no leader in groups.
    axes: Any = tuple(entry[0] if len(entry) == 1 else entry for entry in space.collective_axes)
    return mosaic_gpu.ClusterBarrier(collective_axes=axes, leader_tracked=space.leader_tracked, **fields)


_SPACES: Mapping[MemorySpace, Any] = {
    MemorySpace.GMEM: mosaic_gpu.GMEM,
    MemorySpace.SMEM: mosaic_gpu.SMEM,
    MemorySpace.REGS: mosaic_gpu.REGS,
}

_MAKE: Mapping[type, Callable[[Any], Any]] = {
    MemorySpace: _memory,
    TiledSpace: _tiled_memory,
    BarrierSpace: _barrier,
    AccumulatorSpace: lambda aval: mosaic_gpu.WGMMAAccumulatorRef(tuple(aval.shape), aval.dtype),
    SemaphoreSpace: lambda aval: mosaic_gpu.SemaphoreType.REGULAR(tuple(aval.shape)),
}
