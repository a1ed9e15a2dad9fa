"""What a simulation costs, in figures that do not depend on the machine: events, allocations, what is left behind."""

import functools
import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu import InterpretGPUParams
from mgpu.devices import load_device
from mgpu.sim import cta as cta_module
from mgpu.sim import matmul, products, simulation, slots
from mgpu.sim.simulation import RunResult, prepare, simulate
from mgpu.sim.values import to_carrier, uninitialised
from support.kernels import swizzled

H100 = load_device("h100")
TILE = 64


def run(kernel, *operands, **options) -> RunResult:
    program, consts = kernel._program(jax.tree.structure(operands), list(operands))
    options = {"detect_races": False, **options}
    return simulate(prepare(program, H100, H100.num_sms, InterpretGPUParams(**options)), consts, operands)


def ones(*shape):
    return np.ones(shape, np.float16)


def make_matmul(steps, *, num_ctas=1, waits=1, scoped=False):
    """One warpgroup loads, multiplies `steps` tiles and stores; `waits` times it waits for its wgmma and its store."""
    scratch = [*[swizzled(TILE, TILE)] * 3, mgpu.Barrier(num_arrivals=2)]

    def body(a, b, out, a_smem, b_smem, out_smem, barrier):
        def multiply(acc):
            def step(index, _):
                k = pl.ds(index * TILE, TILE)
                mgpu.copy_gmem_to_smem(a.at[:, k], a_smem, barrier)
                mgpu.copy_gmem_to_smem(b.at[k], b_smem, barrier)
                mgpu.barrier_wait(barrier)
                mgpu.wgmma(acc, a_smem, b_smem)
                for _ in range(waits):
                    mgpu.wgmma_wait(0)

            lax.fori_loop(0, steps, step, None)
            return acc[...]

        @pl.when(lax.axis_index("cta") == 0)
        def _():
            out_smem[...] = pl.run_scoped(multiply, mgpu.ACC((TILE, TILE))).astype(jnp.float16)
            mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(out_smem, out)
            for _ in range(waits):
                mgpu.wait_smem_to_gmem(0)

    def scoped_body(*operands):
        pl.run_scoped(functools.partial(body, *operands), *scratch)

    return mgpu.kernel(
        scoped_body if scoped else body,
        out_type=jax.ShapeDtypeStruct((TILE, TILE), jnp.float16),
        scratch_types=() if scoped else scratch,
        grid=(num_ctas,),
        grid_names=("cta",),
        name="matmul",
    )


def matmul_result(steps, **options):
    run_options = {key: options.pop(key) for key in ("numerics", "seed") if key in options}
    return run(make_matmul(steps, **options), ones(TILE, steps * TILE), ones(steps * TILE, TILE), **run_options)


def test_events_grow_linearly():
    events = [matmul_result(steps).events for steps in (2, 4, 8, 16)]
    each = (events[1] - events[0]) // 2
    assert np.diff(events).tolist() == [2 * each, 4 * each, 8 * each]
    # Two issues, two landings, the wgmma at the end of the wait, and the end of that with the loop's counting.
    assert each == 6


@pytest.mark.parametrize("numerics", [True, False])
def test_time_and_events_do_not_depend_on_values(numerics):
    result, reference = matmul_result(4, numerics=numerics), matmul_result(4)
    assert (result.cycles, result.events) == (reference.cycles, reference.events)


def test_waiting_again_for_what_is_over_takes_no_event():
    once, twice = matmul_result(4), matmul_result(4, waits=2)
    # Each store wait has its cycle; a wgmma wait that is over has none.
    assert twice.cycles == once.cycles + 1
    np.testing.assert_array_equal(twice.outputs[0], 4 * TILE)


def test_a_cta_without_work_allocates_nothing(monkeypatch):
    made = []
    for module in (cta_module, slots):
        monkeypatch.setattr(module, "uninitialised", lambda *args: made.append(args) or uninitialised(*args))
    result = matmul_result(2, num_ctas=20)
    np.testing.assert_array_equal(result.outputs[0], 2 * TILE)
    assert len(made) == 3


@pytest.mark.parametrize("steps", [1, 4, 16])
def test_a_loop_over_k_is_one_product(monkeypatch, steps):
    computed = []

    def multiply(acc, a, b):
        computed.append((a.shape, b.shape))
        acc += a @ b

    for module in (matmul, products):
        monkeypatch.setattr(module, "add_product", multiply)
    np.testing.assert_array_equal(matmul_result(steps).outputs[0], steps * TILE)
    assert computed == [((TILE, steps * TILE), (steps * TILE, TILE))]


@pytest.mark.parametrize(("halves", "depths"), [((0, 1), [512]), ((1, 0), [64] * 8)])
def test_halves_of_slots_are_one_product_only_side_by_side(monkeypatch, halves, depths):
    """Each slot holds 128 of k, and a wgmma takes 64 of them, at other places of the slot and of GMEM."""
    computed = []

    def multiply(acc, a, b):
        computed.append(a.shape[1])
        acc += a @ b

    for module in (matmul, products):
        monkeypatch.setattr(module, "add_product", multiply)

    def body(a, b, out, a_smem, b_smem, barrier):
        def accumulate(acc):
            for slot in range(4):
                k = pl.ds(slot * 128, 128)
                mgpu.copy_gmem_to_smem(a.at[pl.ds(64, 64), k], a_smem.at[slot], barrier.at[slot])
                mgpu.copy_gmem_to_smem(b.at[k], b_smem.at[slot], barrier.at[slot])
                mgpu.barrier_wait(barrier.at[slot])
                for half in halves:
                    part = pl.ds(half * 64, 64)
                    mgpu.wgmma(acc, a_smem.at[slot, :, part], b_smem.at[slot, part, pl.ds(64, 64)])
            return acc[...]

        out[...] = pl.run_scoped(accumulate, mgpu.ACC((64, 64)))

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[
            swizzled(4, 64, 128, dtype=jnp.float16),
            swizzled(4, 128, 128, dtype=jnp.float16),
            mgpu.Barrier(num_arrivals=2, num_barriers=4),
        ],
    )
    generator = np.random.default_rng(0)
    a, b = (generator.integers(-4, 5, shape).astype(np.float16) for shape in ((128, 512), (512, 128)))
    product = a[64:].astype(np.float32) @ b[:, 64:].astype(np.float32)
    np.testing.assert_array_equal(run(kernel, a, b).outputs[0], product)
    assert computed == depths


def test_time_alone_allocates_no_tiles(monkeypatch):
    made = []
    monkeypatch.setattr(cta_module, "uninitialised", lambda *args: made.append(args) or uninitialised(*args))
    matmul_result(2, numerics=False)
    assert made == []


def test_time_alone_converts_no_operands(monkeypatch):
    converted = []
    monkeypatch.setattr(simulation, "to_carrier", lambda array: converted.append(array.shape) or to_carrier(array))
    matmul_result(2)
    assert converted == [(TILE, 2 * TILE), (2 * TILE, TILE)]
    matmul_result(2, numerics=False)
    assert len(converted) == 2


@pytest.mark.parametrize("detect_races", [False, None, True])
def test_a_launch_leaves_nothing_for_the_cyclic_collector(detect_races):
    operands = ones(TILE, 2 * TILE), ones(2 * TILE, TILE)
    program, consts = make_matmul(2, num_ctas=3, scoped=True)._program(jax.tree.structure(operands), list(operands))
    kernel = prepare(program, H100, H100.num_sms, InterpretGPUParams(detect_races=detect_races))
    simulate(kernel, consts, operands)
    gc.collect()
    gc.disable()
    try:
        simulate(kernel, consts, operands)
        assert gc.collect() == 0
    finally:
        gc.enable()
