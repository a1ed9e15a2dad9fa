"""Small kernels for tests, each with one thing to say."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

import mgpu as plgpu


def swizzled(*shape: int, dtype: Any = jnp.float16) -> Any:
    """Returns SMEM of 64-element swizzled rows, as wgmma reads 16-bit operands."""
    return plgpu.SMEM(shape, dtype, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128)))


def make_copy(shape: tuple[int, int], rows: int, dtype: Any = jnp.float32, **options: Any) -> Any:
    """Returns a kernel that copies through SMEM by TMA, `rows` rows in each CTA."""

    def body(x_gmem: Any, out_gmem: Any, smem: Any, barrier: Any) -> None:
        part = plgpu_slice(lax.axis_index("i") * rows, rows)
        plgpu.copy_gmem_to_smem(x_gmem.at[part], smem, barrier)
        plgpu.barrier_wait(barrier)
        plgpu.copy_smem_to_gmem(smem, out_gmem.at[part])
        plgpu.wait_smem_to_gmem(0)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(shape, dtype),
        scratch_types=[plgpu.SMEM((rows, shape[1]), dtype), plgpu.Barrier()],
        grid=(-(-shape[0] // rows),),
        grid_names=("i",),
        **options,
    )


def plgpu_slice(start: Any, size: int) -> Any:
    """Returns `pl.ds(start, size)`."""
    from jax.experimental import pallas as pl

    return pl.ds(start, size)


def make_map(function: Any, shape: tuple[int, ...], dtype: Any, out_dtype: Any = None, **options: Any) -> Any:
    """Returns a kernel that applies `function` to whole arrays in registers."""

    def body(*refs: Any) -> None:
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(shape, out_dtype or dtype), name="map", **options)
