"""Allocations of the language -> types that JAX's Mosaic GPU module allocates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jax.experimental.pallas import mosaic_gpu

from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.hopper import AccumulatorSpace
from mgpu.lang.memory import MemorySpace, TiledSpace
from mgpu.lang.transforms import SwizzleTransform, TilingTransform


def allocation_type(aval: Any) -> Any:
    """Returns what to pass to `pl.run_scoped` to get a ref like `aval`; None if JAX's module has no such thing.

    Args:
      aval: aval of a ref as the language allocates it; its memory space says what it is.
    """
    make = _MAKE.get(type(aval.memory_space))
    return make(aval) if make else None


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
    return mosaic_gpu.Barrier(
        num_arrivals=space.num_arrivals, num_barriers=tuple(aval.shape), orders_tensor_core=space.orders_tensor_core
    )


_SPACES: Mapping[MemorySpace, Any] = {
    MemorySpace.GMEM: mosaic_gpu.GMEM,
    MemorySpace.SMEM: mosaic_gpu.SMEM,
    MemorySpace.REGS: mosaic_gpu.REGS,
}

_MAKE: Mapping[type, Callable[[Any], Any]] = {
    MemorySpace: _memory,
    TiledSpace: _tiled_memory,
    BarrierSpace: _barrier,
    AccumulatorSpace: lambda aval: mosaic_gpu.ACC(tuple(aval.shape), aval.dtype),
}
