"""Semaphores between the CTAs of one GPU."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.devices import load_device
from mgpu.sim.engine import Engine
from mgpu.sim.semaphore import Semaphore

CTA: Any = "cta"


def run(body, scratch, out=None, grid=4, **options):
    out = out or jax.ShapeDtypeStruct((128,), jnp.int32)
    return mgpu.kernel(body, out_type=out, scratch_types=scratch, grid=(grid,), grid_names=("i",), **options)()


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("api", [mgpu, pl])
def test_the_last_cta_sees_what_all_others_did_before_they_signalled(api, seed):
    def body(out_ref, done):
        rank = lax.axis_index("i")

        @pl.when(rank > 0)
        def _others():
            out_ref[pl.ds(rank * 32, 32)] = jnp.full((32,), rank, jnp.int32)
            api.semaphore_signal(done, 1)

        @pl.when(rank == 0)
        def _first():
            api.semaphore_wait(done, 3)
            out_ref[pl.ds(0, 32)] = out_ref[pl.ds(32, 32)] + out_ref[pl.ds(64, 32)] + out_ref[pl.ds(96, 32)]

    result = run(body, [mgpu.SemaphoreType.REGULAR], interpret=mgpu.InterpretGPUParams(seed=seed))
    np.testing.assert_array_equal(result, np.repeat([6, 1, 2, 3], 32))


def test_an_array_of_semaphores_orders_a_chain():
    """Each CTA waits for its predecessor, though they all run at once: a sequential scan over the grid."""

    def body(out_ref, turn):
        rank = lax.axis_index("i")
        pl.when(rank > 0)(lambda: mgpu.semaphore_wait(turn.at[rank]))

        @pl.when(rank == 0)
        def _begin():
            out_ref[...] = jnp.ones((128,), jnp.int32)

        @pl.when(rank > 0)
        def _continue():
            out_ref[...] = out_ref[...] * 2 + rank

        pl.when(rank < 3)(lambda: mgpu.semaphore_signal(turn.at[rank + 1]))

    expected = 1
    for rank in range(1, 4):
        expected = expected * 2 + rank
    np.testing.assert_array_equal(run(body, [mgpu.SemaphoreType.REGULAR((4,))]), np.full(128, expected))


def test_wait_without_decrement_leaves_the_count():
    def body(out_ref, count):
        mgpu.semaphore_signal(count, 5)
        mgpu.semaphore_wait(count, 2, decrement=False)
        mgpu.semaphore_wait(count, 3)
        out_ref[...] = jnp.full((128,), pl.semaphore_read(count))

    np.testing.assert_array_equal(run(body, [mgpu.SemaphoreType.REGULAR], grid=1), np.full(128, 2))


def test_signals_in_parallel_reach_every_semaphore():
    def body(out_ref, counts):
        mgpu.semaphore_signal_parallel(
            *(mgpu.SemaphoreSignal(counts.at[i], device_id=None, inc=i + 1) for i in range(3))
        )
        out_ref[...] = jnp.full((128,), sum(pl.semaphore_read(counts.at[i]) * 10**i for i in range(3)))

    np.testing.assert_array_equal(run(body, [mgpu.SemaphoreType.REGULAR((3,))], grid=1), np.full(128, 321))


def test_a_waiter_goes_on_one_hop_after_the_signal():
    engine, device = Engine(), load_device("h100")
    semaphore = Semaphore(engine, device, "s")
    log = []

    def waiter(value):
        if not semaphore.wait(process[value], value, True):
            yield None
        log.append((value, engine.now))

    process = {value: engine.start(waiter(value), f"wait {value}") for value in (2, 1)}
    engine.call_at(100, semaphore.signal, 1)
    engine.call_at(500, semaphore.signal, 2)
    engine.run()
    hop = device.cycles(device.gmem_semaphore_hop_ns)
    assert log == [(1, 100 + hop), (2, 500 + hop)]
    assert semaphore.count == 0


def test_a_semaphore_nobody_signals_is_reported():
    def body(out_ref, done):
        mgpu.semaphore_wait(done, 2)
        out_ref[...] = jnp.zeros((128,), jnp.int32)

    with pytest.raises(mgpu.errors.DeadlockError, match=r"test_semaphores.py:\d+ waits on semaphore done\[0\]: 0 of 2"):
        run(body, [mgpu.SemaphoreType.REGULAR])


@pytest.mark.parametrize(
    ("call", "message", "error"),
    [
        (mgpu.semaphore_signal, r"got \[2\] semaphores. Select it with .at\[index\]", "KernelTypeError"),
        (lambda s: mgpu.semaphore_wait(s.at[0], memory_scope=CTA), r"must be 'sys' or 'gpu'", "KernelTypeError"),
        (lambda s: mgpu.semaphore_signal(s.at[0], device_id=1), r"names another GPU", "Unsupported"),
        (lambda s: pl.semaphore_signal(s.at[0], device_id=1), r"on another device or core", "Unsupported"),
        (lambda s: mgpu.semaphore_signal_multicast(s.at[0], collective_axes="x"), r"names devices", "Unsupported"),
        (lambda s: mgpu.semaphore_signal_parallel(s.at[0]), r"takes SemaphoreSignal", "KernelTypeError"),
        (lambda s: mgpu.SemaphoreType.BARRIER(()), r"barrier semaphores join several GPUs", "Unsupported"),
    ],
)
def test_misuse_names_the_line_and_the_remedy(call, message, error):
    def body(out_ref, semaphores):
        call(semaphores)
        out_ref[...] = jnp.zeros((128,), jnp.int32)

    with pytest.raises(getattr(mgpu.errors, error), match=r"test_semaphores.py:\d+ .*" + message):
        run(body, [mgpu.SemaphoreType.REGULAR((2,))], grid=1)


def test_all_orders_of_signals_give_one_result():
    for seed, grid in itertools.product(range(3), (2, 5)):

        def body(out_ref, done, grid=grid):
            mgpu.semaphore_signal(done)
            pl.when(lax.axis_index("i") == 0)(lambda: mgpu.semaphore_wait(done, grid))
            pl.when(lax.axis_index("i") == 0)(lambda: out_ref.__setitem__(..., jnp.full((128,), 1, jnp.int32)))

        result = run(body, [mgpu.SemaphoreType.REGULAR], grid=grid, interpret=mgpu.InterpretGPUParams(seed=seed))
        np.testing.assert_array_equal(result, np.ones(128))
