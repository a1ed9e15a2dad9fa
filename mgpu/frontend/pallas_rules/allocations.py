"""What JAX's kernels allocate: memory, barriers and accumulators, said in our types."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import mgpu
from mgpu.errors import Unsupported
from mgpu.jax_internals import current_source_line


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
    raise Unsupported(
        f"{current_source_line()} run_scoped: {aval} is a RefUnion, which cannot be imported yet. "
        "Allocate its members one by one."
    )


_LAYOUT: Mapping[str, Callable[[Any], Any]] = {
    "UntilingTransform": lambda t: mgpu.TilingTransform(t.tiling),
    "UnswizzleRef": lambda t: mgpu.SwizzleTransform(t.swizzle),
}
_BY_AVAL: Mapping[str, Callable[[Any, Sequence[Any]], Any]] = {
    "WGMMAAbstractAccumulatorRef": _accumulator,
    "AbstractRefUnion": _union,
}
_BY_SPACE: Mapping[str, Callable[[Any, Sequence[Any]], Any]] = {"smem": _smem}
