"""Misused pipelines: each error names the user's line, what was got and what would be right."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mgpu as plgpu
from mgpu.errors import KernelTypeError, Unsupported

HERE = r"test_pipeline_errors\.py:\d+ "
ROWS = plgpu.BlockSpec((16, 32), lambda i: (i, 0))
STATE = plgpu.PipelinePipeline


def spec(*block: Any, index: Any = None, **options: Any) -> Any:
    return plgpu.BlockSpec(block, index or (lambda i: (i, 0)), **options)


def run_pipeline(*, refs: int = 1, **options: Any) -> None:
    """Runs a pipeline over rows of a float32[64, 32], with some options replaced."""

    def body(x: Any, out: Any) -> None:
        del out
        given = {"grid": (4,), "in_specs": [ROWS]} | options
        plgpu.emit_pipeline(lambda *_: None, **given)(*[x] * refs)

    plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), jnp.float32))(np.zeros((64, 32), np.float32))


ERRORS = [
    ({"grid": 4}, r"emit_pipeline: grid must be a tuple of sizes, got 4"),
    ({"grid": (4, 2.5)}, r"emit_pipeline: grid=\(4, 2\.5\) holds 2\.5; each size is an integer of at least 1"),
    ({"grid": (-1,)}, r"emit_pipeline: grid=\(-1,\) holds -1"),
    ({"grid": (0, 2)}, r"emit_pipeline: grid=\(0, 2\) holds 0; each size is an integer of at least 1"),
    ({"refs": 2}, r"called with 2 refs, but has 1 in_specs and 0 out_specs"),
    ({"max_concurrent_steps": 0}, r"max_concurrent_steps must be an integer of at least 1, got 0"),
    ({"in_specs": [spec(16, 32, delay_release=1)]}, r"in_specs\[0\] has delay_release=1 but.*max_concurrent_steps=1"),
    ({"in_specs": [spec(16, 32, delay_release=-1)]}, r"in_specs\[0\]: delay_release must be an integer of at least 0"),
    ({"in_specs": [spec(16)]}, r"in_specs\[0\]: block_shape \(16,\) has 1 dimensions, the operand \(64, 32\) has 2"),
    ({"in_specs": [spec(0, 32)]}, r"in_specs\[0\]: a block size must be a positive integer or None, got 0"),
    ({"in_specs": [spec("a", 32)]}, r"in_specs\[0\]: a block size must be a positive integer or None, got 'a'"),
    ({"in_specs": [spec(16, 32, index=lambda i, j: (i, j))]}, r"in_specs\[0\]: index_map cannot be called with the 1"),
    ({"in_specs": [spec(16, 32, index=lambda i: (i,))]}, r"in_specs\[0\]: index_map returns 1 indices for.* of 2"),
    ({"in_specs": [spec(16, 32, index=lambda i: (i, 0.5))]}, r"index_map returns 0\.5 as an index; each.*integer"),
    ({"in_specs": [3]}, r"in_specs\[0\] must be a BlockSpec, got 3"),
    ({"in_specs": [[ROWS, ROWS]]}, r"in_specs and the refs differ in structure"),
]


def test_a_pipeline_mode_is_refused() -> None:
    rows = pl.BlockSpec((16, 32), lambda i: (i, 0), pipeline_mode=pl.Buffered(2))
    with pytest.raises(Unsupported, match=HERE + r".*in_specs\[0\]: pipeline_mode=.*give max_concurrent_steps"):
        run_pipeline(in_specs=[rows])


@pytest.mark.parametrize(("options", "message"), ERRORS)
def test_emit_pipeline(options: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=HERE + ".*" + message):
        run_pipeline(**options)


UNSUPPORTED = [
    (spec(16, 32, collective_axes=("cluster",)), r"in_specs\[0\] has collective_axes.*emit_pipeline_warp_specialized"),
    (spec(16, 32, memory_space=plgpu.REGS), r"in_specs\[0\]: memory_space=.*a block is in SMEM .* or GMEM"),
    (spec(pl.BoundedSlice(16), 32), r"in_specs\[0\]: .* is a block of run-time size, and a TMA box has a fixed one"),
]


@pytest.mark.parametrize(("in_spec", "message"), UNSUPPORTED)
def test_what_pipelines_do_not_offer(in_spec: Any, message: str) -> None:
    with pytest.raises(Unsupported, match=HERE + ".*" + message):
        run_pipeline(in_specs=[in_spec])


def test_operands_must_be_in_gmem() -> None:
    def body(x: Any, out: Any, smem: Any) -> None:
        plgpu.emit_pipeline(lambda *_: None, grid=(4,), in_specs=[ROWS])(smem)

    run = plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((4,), jnp.float32), scratch_types=[plgpu.SMEM((64, 32), jnp.float32)]
    )
    with pytest.raises(
        KernelTypeError, match=r"operand of in_specs\[0\] must be a ref in GMEM, got float32\[64, 32\] in SM"
    ):
        run(np.zeros((64, 32), np.float32))


def test_an_error_of_an_operation_in_the_pipeline_names_its_line() -> None:
    with pytest.raises(KernelTypeError, match=HERE + r"copy_gmem_to_smem: a row of float32\[16, 2\].* is 8 bytes"):
        run_pipeline(in_specs=[spec(16, 2)])


def test_an_error_in_the_body_names_the_line_in_the_body() -> None:
    def body(x: Any, out: Any) -> None:
        def step(_: Any, x_smem: Any) -> None:
            plgpu.barrier_wait(x_smem)

        plgpu.emit_pipeline(step, grid=(4,), in_specs=[ROWS])(x)

    line = test_an_error_in_the_body_names_the_line_in_the_body.__code__.co_firstlineno + 3
    run = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), jnp.float32))
    with pytest.raises(
        KernelTypeError, match=rf"test_pipeline_errors\.py:{line} barrier_wait: barrier must be a Barrier"
    ):
        run(np.zeros((64, 32), np.float32))


def test_foreign_allocations_are_refused() -> None:
    def body(x: Any, out: Any) -> None:
        plgpu.emit_pipeline(lambda *_: None, grid=(4,), in_specs=[ROWS])(x, allocations=[x])

    run = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), jnp.float32))
    with pytest.raises(KernelTypeError, match=HERE + r"emit_pipeline: allocations must be the refs .* got list"):
        run(np.zeros((64, 32), np.float32))


def run_specialized(*, threads: int = 3, allocations: bool = False, **options: Any) -> None:
    """Runs a warp-specialised pipeline over rows of a float32[64, 32], with some options replaced."""

    def body(x: Any, out: Any) -> None:
        given = {
            "grid": (4,),
            "memory_registers": 40,
            "in_specs": [ROWS],
            "wg_axis": "wg",
            "num_compute_wgs": 2,
        } | options
        pipeline = plgpu.emit_pipeline_warp_specialized(lambda *_: None, **given)
        refs = (x, out)[: 2 if "out_specs" in given else 1]
        if not allocations:
            pipeline(*refs)
        else:
            types = pipeline.get_allocations(*refs)
            pl.run_scoped(lambda slots: pipeline(*refs, allocations=slots), types, collective_axes="wg")

    run = plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((64, 32), jnp.float32), num_threads=threads, thread_name="wg"
    )
    run(np.zeros((64, 32), np.float32))


SPECIALIZED = [
    ({"threads": 2}, r"num_compute_wgs=2 and a memory warpgroup make 3, but the kernel has 2 along 'wg'"),
    ({"wg_axis": "warpgroup"}, r"the kernel has no axis wg_axis='warpgroup'"),
    ({"num_compute_wgs": 0}, r"num_compute_wgs must be an integer of at least 1, got 0"),
    ({"memory_thread_idx": 3}, r"memory_thread_idx=3 is no warpgroup; the kernel has 0 to 2"),
    ({"pipeline_state": 7}, r"pipeline_state must be a PipelinePipeline or a scalar array of its values, got 7"),
    ({"pipeline_state": STATE.START}, r"pipeline_state needs slots that outlive the call"),
    (
        {"pipeline_state": STATE.START, "allocations": True, "max_concurrent_steps": 3},
        r"4 steps with 3 slots would leave the next pipeline in the middle of the ring",
    ),
    ({"out_specs": [ROWS]}, r"out_specs\[0\] is in SMEM, but 2 compute warpgroups would have to agree"),
    ({"grid": (0,)}, r"grid=\(0,\) holds 0; each size is an integer of at least 1"),
    ({"in_specs": [spec(16, 32, delay_release=2)]}, r"in_specs\[0\] has delay_release=2 but.*max_concurrent_steps=2"),
]


@pytest.mark.parametrize(("options", "message"), SPECIALIZED)
def test_emit_pipeline_warp_specialized(options: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=HERE + "emit_pipeline_warp_specialized: .*" + message):
        run_specialized(**options)


def test_inputs_are_released_together() -> None:
    def body(x: Any, out: Any) -> None:
        plgpu.emit_pipeline_warp_specialized(
            lambda *_: None,
            grid=(4,),
            memory_registers=40,
            in_specs=[ROWS, spec(16, 32, delay_release=1)],
            wg_axis="wg",
            num_compute_wgs=1,
        )(x, x)

    run = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), jnp.float32), num_threads=2, thread_name="wg")
    with pytest.raises(KernelTypeError, match=HERE + r".*their delay_release is \[0, 1\]\. Give all of them the same"):
        run(np.zeros((64, 32), np.float32))
