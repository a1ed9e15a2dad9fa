"""Pipelines and `pallas_call` are made of operations that JAX's Mosaic GPU compiler takes as they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from support.gpu_lowering import kernel_texts, lower_for_gpu

FLOAT = jnp.float32
X = np.zeros((128, 96), np.float32)
BLOCK = plgpu.BlockSpec((64, 32), lambda i, j: (i, j))


def add_one(_: Any, x_smem: Any, out_smem: Any) -> None:
    out_smem[...] = x_smem[...] + 1


def pipeline() -> Any:
    return plgpu.emit_pipeline(add_one, grid=(2, 3), in_specs=[BLOCK], out_specs=[BLOCK], max_concurrent_steps=2)


def in_one_warpgroup() -> Any:
    def body(x: Any, out: Any) -> None:
        pipeline()(x, out)

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(X.shape, FLOAT))


def in_one_of_two_warpgroups() -> Any:
    def body(x: Any, out: Any) -> None:
        def run(slots: Any) -> None:
            pl.when(lax.axis_index("wg") == 0)(lambda: pipeline()(x, out, allocations=slots))

        pl.run_scoped(run, pipeline().get_allocations(x, out), collective_axes="wg")

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(X.shape, FLOAT), num_threads=2, thread_name="wg")


def warp_specialised() -> Any:
    def body(x: Any, out: Any) -> None:
        def step(_: Any, x_smem: Any, out_smem: Any, carry: Any) -> Any:
            out_smem[...] = x_smem[...] + carry
            return carry + 1

        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(2, 3),
            memory_registers=40,
            in_specs=[BLOCK],
            out_specs=[BLOCK],
            wg_axis="wg",
            num_compute_wgs=1,
            compute_context=lambda run: run(jnp.float32(0)),
        )(x, out)

    return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(X.shape, FLOAT), num_threads=2, thread_name="wg")


def over_a_grid() -> Any:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] + pl.program_id(1)

    return plgpu.pallas_call(
        kernel,
        jax.ShapeDtypeStruct(X.shape, FLOAT),
        grid=(2, 3),
        in_specs=[BLOCK],
        out_specs=BLOCK,
        input_output_aliases={0: 0},
        compiler_params=plgpu.CompilerParams(
            dimension_semantics=("parallel", "sequential"), max_concurrent_steps=2, delay_release=1
        ),
    )


@pytest.mark.parametrize("make", [in_one_warpgroup, in_one_of_two_warpgroups, warp_specialised, over_a_grid])
def test_pipelines_compile_to_copies_and_barriers(make: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    (text,) = kernel_texts(lower_for_gpu(make(), X))
    assert "cp.async.bulk.tensor" in text
    assert "mbarrier.try_wait" in text
