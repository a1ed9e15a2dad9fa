"""`emit_pipeline_warp_specialized`: every parameter, against NumPy and under shuffled ties."""

from __future__ import annotations

import functools
import inspect
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.core import ShapedArray
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as reference

import mgpu as plgpu
from mgpu.passes.sites import plan_sites

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((64, 96), np.float32)
Y = GENERATOR.standard_normal((96, 32), np.float32)
SUMS = X.reshape(2, 32, 3, 32).transpose(0, 2, 1, 3) + Y.reshape(3, 32, 32)  # of the blocks of step (i, j)
FLOAT = jnp.float32
State = plgpu.PipelinePipeline


def specs(delay: int = 0) -> list[Any]:
    """Returns specs for X and Y over a grid of (2, 3)."""
    return [
        plgpu.BlockSpec((32, 32), lambda i, j: (i, j), delay_release=delay),
        plgpu.BlockSpec((32, 32), lambda i, j: (j, 0), delay_release=delay),
    ]


def launch(body: Any, out_type: Any, num_threads: int, *operands: Any, seed: int | None = None, **options: Any) -> Any:
    """Runs a kernel with several warpgroups."""
    interpret = plgpu.InterpretGPUParams(seed=seed)
    run = plgpu.kernel(
        body, out_type=out_type, num_threads=num_threads, thread_name="wg", interpret=interpret, **options
    )
    return run(*operands)


def test_signature_and_states_are_those_of_jax() -> None:
    ours = inspect.signature(plgpu.emit_pipeline_warp_specialized).parameters
    theirs = inspect.signature(reference.emit_pipeline_warp_specialized).parameters
    newer = {"manual_produced_barriers"} - theirs.keys()  # JAX 0.12 has it, 0.10 and the reference page have not
    expected = [(p.name, p.kind, p.default) for p in theirs.values()]
    assert [(p.name, p.kind, p.default) for p in ours.values() if p.name not in newer] == expected
    assert [(s.name, s.value) for s in State] == [(s.name, s.value) for s in reference.PipelinePipeline]


FORMS = [
    form
    for form in itertools.product((1, 2, 4), (0, 1), (1, 2), (False, True), (False, True), (None, 0), (False, True))
    if form[1] < form[0] and (form[0] == 2 or form[2] == 1)
]


@pytest.mark.parametrize(("slots", "delay", "compute", "carry", "manual", "memory", "dynamic"), FORMS)
def test_every_compute_warpgroup_sees_every_step(
    slots: int, delay: int, compute: int, carry: bool, manual: bool, memory: int | None, dynamic: bool
) -> None:
    def body(x: Any, y: Any, sums: Any, last: Any) -> None:
        mine = lax.axis_index("wg") - (0 if memory is None else 1)

        def step(indices: Any, x_smem: Any, y_smem: Any, *rest: Any) -> Any:
            value = x_smem[...] + y_smem[...]
            sums[mine, indices[0], indices[1]] = value
            for barrier in rest[:2] if manual else ():
                pl.when(indices[0] * 3 + indices[1] >= delay)(functools.partial(plgpu.barrier_arrive, barrier))
            return rest[-1] + jnp.sum(value) if carry else None

        def context(pipeline: Any) -> None:
            last[mine] = jnp.full((32,), pipeline(jnp.float32(1)))

        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(2, lax.axis_index("cta") + 3) if dynamic else (2, 3),
            memory_registers=40,
            in_specs=specs(delay),
            max_concurrent_steps=slots,
            wg_axis="wg",
            num_compute_wgs=compute,
            manual_consumed_barriers=manual,
            compute_context=context if carry else None,
            memory_thread_idx=memory,
        )(x, y)

    out_type = (jax.ShapeDtypeStruct((compute, 2, 3, 32, 32), FLOAT), jax.ShapeDtypeStruct((compute, 32), FLOAT))
    sums, last = launch(body, out_type, compute + 1, X, Y, seed=slots, grid=(1,), grid_names=("cta",))
    np.testing.assert_array_equal(sums, np.broadcast_to(SUMS, sums.shape))
    if carry:
        np.testing.assert_allclose(last, 1 + SUMS.sum(), rtol=1e-4)


@pytest.mark.parametrize("consumed", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_the_body_waits_for_its_loads(nested: bool, consumed: bool) -> None:
    """The barriers come one for each copied input, nested as the specs are; an input in GMEM has none."""

    def body(x: Any, y: Any, sums: Any) -> None:
        def step(indices: Any, *arguments: Any) -> None:
            assert len(arguments) == ((1 if nested else 3) + (1 if nested else 2) * (1 + consumed))
            refs, barriers = arguments[: 1 if nested else 3], arguments[1 if nested else 3 :]
            x_smem, y_smem, y_gmem = jax.tree.leaves(refs)
            x_loaded, y_loaded, *released = jax.tree.leaves(barriers)
            plgpu.barrier_wait(x_loaded)
            value = x_smem[...]
            plgpu.barrier_wait(y_loaded)
            sums[indices[0], indices[1]] = value + (y_smem[...] + y_gmem[...]) / 2
            for barrier in released:
                plgpu.barrier_arrive(barrier)

        x_spec, y_spec = specs()
        y_in_gmem = plgpu.BlockSpec((32, 32), lambda i, j: (j, 0), memory_space=plgpu.GMEM)
        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(2, 3),
            memory_registers=40,
            in_specs=[{"x": x_spec, "ys": (y_spec, y_in_gmem)}] if nested else [x_spec, y_spec, y_in_gmem],
            wg_axis="wg",
            num_compute_wgs=1,
            manual_produced_barriers=True,
            manual_consumed_barriers=consumed,
        )(*([{"x": x, "ys": (y, y)}] if nested else [x, y, y]))

    sums = launch(body, jax.ShapeDtypeStruct((2, 3, 32, 32), FLOAT), 2, X, Y)
    np.testing.assert_array_equal(sums, SUMS)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_outputs_leave_through_shared_memory(slots: int) -> None:
    def body(x: Any, y: Any, sums: Any, rows: Any) -> None:
        def step(indices: Any, x_smem: Any, y_smem: Any, sum_smem: Any, row_smem: Any) -> None:
            value = x_smem[...] + y_smem[...]
            sum_smem[...] = value
            row_smem[...] = jnp.where(indices[1] == 0, 0.0, row_smem[...]) + value

        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(2, 3),
            memory_registers=40,
            in_specs=specs(),
            out_specs=[
                plgpu.BlockSpec((None, None, 32, 32), lambda i, j: (i, j, 0, 0)),
                plgpu.BlockSpec((None, 32, 32), lambda i, j: (i, 0, 0)),
            ],
            max_concurrent_steps=slots,
            wg_axis="wg",
            num_compute_wgs=1,
        )(x, y, sums, rows)

    out_type = (jax.ShapeDtypeStruct((2, 3, 32, 32), FLOAT), jax.ShapeDtypeStruct((2, 32, 32), FLOAT))
    sums, rows = launch(body, out_type, 2, X, Y, seed=slots)
    np.testing.assert_array_equal(sums, SUMS)
    np.testing.assert_allclose(rows, SUMS.sum(1), rtol=1e-5, atol=1e-6)


def test_prologue_and_epilogue_run_in_the_compute_warpgroups_only() -> None:
    def body(x: Any, y: Any, marks: Any) -> None:
        wg = lax.axis_index("wg")
        marks[wg] = jnp.full((32,), -1.0)

        def context(pipeline: Any) -> None:
            steps = pipeline(jnp.float32(0))
            marks[wg] = jnp.full((32,), steps)

        plgpu.emit_pipeline_warp_specialized(
            lambda indices, x_smem, y_smem, carry: carry + 1,
            grid=(2, 3),
            memory_registers=40,
            in_specs=specs(),
            wg_axis="wg",
            num_compute_wgs=2,
            compute_context=context,
            memory_thread_idx=1,
        )(x, y)

    marks = launch(body, jax.ShapeDtypeStruct((3, 32), FLOAT), 3, X, Y)
    assert np.asarray(marks)[:, 0].tolist() == [6, -1, 6]


@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize(("slots", "delay"), [(1, 0), (2, 1), (3, 0), (3, 2), (6, 1)])
def test_a_sequence_of_pipelines_shares_its_slots(slots: int, delay: int, in_loop: bool) -> None:
    count = 4

    def body(x: Any, y: Any, out: Any) -> None:
        def pipeline(state: Any, number: Any) -> Any:
            def step(indices: Any, x_smem: Any, y_smem: Any) -> None:
                out[number, indices[0], indices[1]] = (x_smem[...] + y_smem[...]) * (number + 1)

            return plgpu.emit_pipeline_warp_specialized(
                step,
                grid=(2, 3),
                memory_registers=40,
                in_specs=specs(delay),
                max_concurrent_steps=slots,
                wg_axis="wg",
                num_compute_wgs=1,
                pipeline_state=state,
            )

        def run_all(refs: Any) -> None:
            def one(number: Any, _: None) -> None:
                middle = jnp.where(number == count - 1, State.STOP, State.STEADY)
                pipeline(jnp.where(number == 0, State.START, middle), number)(x, y, allocations=refs)

            if in_loop:
                lax.fori_loop(0, count, one, None)
            else:
                for number, state in enumerate([State.START, State.STEADY, State.STEADY, State.STOP]):
                    pipeline(state, number)(x, y, allocations=refs)

        pl.run_scoped(run_all, pipeline(State.START, 0).get_allocations(x, y), collective_axes="wg")

    out = launch(body, jax.ShapeDtypeStruct((count, 2, 3, 32, 32), FLOAT), 2, X, Y, seed=slots)
    np.testing.assert_allclose(out, SUMS * np.arange(1, count + 1).reshape(-1, 1, 1, 1, 1), rtol=1e-6)


def test_a_sequence_has_no_bubble_between_its_pipelines() -> None:
    def cycles(shared: bool) -> int:
        def body(x: Any, y: Any, out: Any) -> None:
            def pipeline(state: Any) -> Any:
                def step(indices: Any, x_smem: Any, y_smem: Any) -> None:
                    out[indices[0], indices[1]] = x_smem[...] + y_smem[...]

                return plgpu.emit_pipeline_warp_specialized(
                    step,
                    grid=(2, 3),
                    memory_registers=40,
                    in_specs=specs(),
                    max_concurrent_steps=3,
                    wg_axis="wg",
                    num_compute_wgs=1,
                    pipeline_state=state,
                )

            if not shared:
                for _ in range(3):
                    pipeline(None)(x, y)
                return

            def run_all(refs: Any) -> None:
                for state in State:
                    pipeline(state)(x, y, allocations=refs)

            pl.run_scoped(run_all, pipeline(State.START).get_allocations(x, y), collective_axes="wg")

        run = plgpu.kernel(
            body, out_type=jax.ShapeDtypeStruct((2, 3, 32, 32), FLOAT), num_threads=2, thread_name="wg", name="sequence"
        )
        _, (capture,) = plgpu.profile(run)(X, Y)
        return int(capture.tracks["clock_end"].max() - capture.tracks["clock_begin"].min())

    # Two boundaries, each of which costs a load latency and more without the shared slots.
    assert cycles(shared=True) < cycles(shared=False) - 1000


@pytest.mark.parametrize("slots", [2, 3])
def test_a_block_common_to_a_cluster_is_multicast(slots: int) -> None:
    def body(x: Any, y: Any, out: Any) -> None:
        rank = lax.axis_index("cluster")

        def step(indices: Any, own_smem: Any, common_smem: Any) -> None:
            (k,) = indices

            @pl.when(lax.axis_index("wg") == 0)
            def _() -> None:
                out[rank, k] = own_smem[...] + common_smem[...]

        plgpu.emit_pipeline_warp_specialized(
            step,
            grid=(3,),
            memory_registers=40,
            in_specs=[
                plgpu.BlockSpec((32, 32), lambda k: (rank, k)),
                plgpu.BlockSpec((32, 32), lambda k: (k, 0), collective_axes=("cluster",)),
            ],
            max_concurrent_steps=slots,
            wg_axis="wg",
            num_compute_wgs=2,
        )(x, y)

    out = launch(
        body,
        jax.ShapeDtypeStruct((2, 3, 32, 32), FLOAT),
        3,
        X,
        Y,
        seed=slots,
        grid=(1,),
        grid_names=("cta",),
        cluster=(2,),
        cluster_names=("cluster",),
    )
    np.testing.assert_array_equal(out, SUMS)


@pytest.mark.parametrize("manual", [False, True])
def test_slots_and_barriers_are_called_what_the_body_calls_them(manual: bool) -> None:
    from mgpu.frontend.build import build_program
    from mgpu.frontend.program import Launch

    def body(x: Any, out: Any) -> None:
        plgpu.emit_pipeline_warp_specialized(
            lambda _, weights, *barriers: None,
            grid=(2,),
            memory_registers=40,
            in_specs=[plgpu.BlockSpec((32, 32), lambda i: (i, 0))],
            wg_axis="wg",
            num_compute_wgs=1,
            manual_produced_barriers=manual,
            manual_consumed_barriers=manual,
        )(x)

    program, _ = build_program(
        body,
        name="k",
        in_tree=jax.tree.structure((0,)),
        in_avals=[ShapedArray((64, 32), FLOAT)],
        out_type=jax.ShapeDtypeStruct((4,), FLOAT),
        scratch=(),
        launch=Launch(num_threads=2, thread_name="wg"),
        params=plgpu.CompilerParams(),
    )
    plan = plan_sites(program)
    names = {"loaded_weights", "consumed_weights"} if manual else {"loaded", "consumed"}
    assert {barrier.name for barrier in plan.barriers} == names
    waits = {"wait consumed_weights"} if manual else {"wait consumed", "wait loaded"}
    assert {"load weights"} | waits <= {site.name for site in plan.sites}
