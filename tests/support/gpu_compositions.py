"""Kernels made of larger parts of the language: pipelines, reductions, an accumulator that starts from an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from support.kernels import swizzled

# For each name, what makes (kernel, operands, expected outputs) from compiler parameters.
COMPOSITIONS: dict[str, Callable[[Any], tuple[Any, list[np.ndarray], Any]]] = {}


def _composition(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    COMPOSITIONS[make.__name__] = make
    return make


def _numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(1).integers(-3, 4, shape).astype(dtype)


_ROWS = plgpu.BlockSpec((64, 64), lambda i: (i, 0))


def _double(_: Any, x_smem: Any, out_smem: Any) -> None:
    out_smem[...] = x_smem[...] * 2


@_composition
def pipeline(params: Any) -> Any:
    def body(x_gmem: Any, out_gmem: Any) -> None:
        run = plgpu.emit_pipeline(_double, grid=(4,), in_specs=[_ROWS], out_specs=[_ROWS], max_concurrent_steps=2)
        run(x_gmem, out_gmem)

    x = _numbers(256, 64)
    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32), compiler_params=params), [x], x * 2


@_composition
def warp_specialised_pipeline(params: Any) -> Any:
    def body(x_gmem: Any, out_gmem: Any) -> None:
        run = plgpu.emit_pipeline_warp_specialized(
            _double,
            grid=(4,),
            memory_registers=40,
            wg_axis="wg",
            num_compute_wgs=1,
            in_specs=[_ROWS],
            out_specs=[_ROWS],
            max_concurrent_steps=2,
        )
        run(x_gmem, out_gmem)

    x = _numbers(256, 64)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        num_threads=2,
        thread_name="wg",
        compiler_params=params,
    )
    return kernel, [x], x * 2


@_composition
def accumulator_from_array(params: Any) -> Any:
    def body(a_gmem: Any, b_gmem: Any, out_ref: Any, a_smem: Any, b_smem: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, full)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, full)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> None:
            acc[...] = acc[...] * 2
            plgpu.wgmma(acc, a_smem, b_smem)
            plgpu.wgmma_wait(0)

        ones = plgpu.layout_cast(jnp.ones((64, 64), jnp.float32), plgpu.Layout.WGMMA)
        out_ref[...] = pl.run_state(multiply)(plgpu.ACC.init(ones))

    a, b = _numbers(64, 64, dtype=np.float16), _numbers(64, 64, dtype=np.float16)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[swizzled(64, 64), swizzled(64, 64), plgpu.Barrier(num_arrivals=2)],
        compiler_params=params,
    )
    return kernel, [a, b], 2 + a.astype(np.float32) @ b.astype(np.float32)


@_composition
def row_maximum(params: Any) -> Any:
    """A reduction over the lanes of a warpgroup, and a broadcast back."""

    def body(x_gmem: Any, out_ref: Any, smem: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, smem, full)
        plgpu.barrier_wait(full)
        x = plgpu.load(smem, layout=plgpu.Layout.WGMMA)
        out_ref[...] = x - lax.broadcast_in_dim(x.max(axis=1), (64, 64), (0,))

    x = _numbers(64, 64)
    tiled = plgpu.SMEM(x.shape, jnp.float32, transforms=(plgpu.TilingTransform((8, 32)), plgpu.SwizzleTransform(128)))
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        scratch_types=[tiled, plgpu.Barrier()],
        compiler_params=params,
    )
    return kernel, [x], x - x.max(axis=1, keepdims=True)


@_composition
def shared_loop(params: Any) -> Any:
    """Three CTAs share sixteen steps of a loop."""

    def body(x_ref: Any, out_ref: Any) -> None:
        @plgpu.nd_loop((4, 4), collective_axes="sm")
        def _(info: Any) -> None:
            out_ref[info.index[0], info.index[1]] = x_ref[info.index[0], info.index[1]] + 1

    x = _numbers(4, 4)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        grid=(3,),
        grid_names=("sm",),
        compiler_params=params,
    )
    return kernel, [x], x + 1


@_composition
def columns(params: Any) -> Any:
    """No input: an array that counts."""

    def body(out_ref: Any) -> None:
        out_ref[...] = plgpu.broadcasted_iota(jnp.int32, (64, 64), 1, layout=plgpu.Layout.WGMMA)

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, 64), jnp.int32), compiler_params=params)
    return kernel, [], np.broadcast_to(np.arange(64, dtype=np.int32), (64, 64))


@_composition
def peer_reads(params: Any) -> Any:
    """Each of two CTAs reads the other's SMEM; the first one waits until both have, and the second for the first."""

    def body(x_gmem: Any, out_gmem: Any, smem: Any, full: Any, filled: Any, read: Any, end: Any) -> None:
        me = lax.axis_index("cta")
        plgpu.copy_gmem_to_smem(x_gmem.at[me], smem, full)
        plgpu.barrier_wait(full)
        plgpu.barrier_arrive(filled)
        plgpu.barrier_wait(filled)
        out_gmem[me] = plgpu.cluster_ref(smem, {"cta": 1 - me})[...]
        plgpu.barrier_arrive(read)
        pl.when(me == 0)(lambda: plgpu.barrier_wait(read))
        plgpu.barrier_arrive(end)
        plgpu.barrier_wait(end)

    x = _numbers(2, 128)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        cluster=(2,),
        cluster_names=("cta",),
        scratch_types=[
            plgpu.SMEM((128,), jnp.float32),
            plgpu.Barrier(),
            plgpu.ClusterBarrier(collective_axes=("cta",)),
            plgpu.ClusterBarrier(collective_axes=("cta",), leader_tracked=True),
            plgpu.ClusterBarrier(collective_axes=("cta",)),
        ],
        compiler_params=params,
    )
    return kernel, [x], x[::-1]
