"""Semaphores within a CTA and between the CTAs of one GPU."""

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


def run(body, scratch=(), out=None, grid=4, **options):
    out = out or jax.ShapeDtypeStruct((128,), jnp.int32)
    return mgpu.kernel(body, out_type=out, scratch_types=scratch, grid=(grid,), grid_names=("i",), **options)()


@pytest.mark.parametrize("seed", [None, 0, 1])
@pytest.mark.parametrize("api", [mgpu, pl])
def test_the_last_cta_sees_what_all_others_did_before_they_signalled(api, seed):
    def body(out_ref):
        rank = lax.axis_index("i")
        done = pl.get_global(mgpu.SemaphoreType.REGULAR)

        @pl.when(rank > 0)
        def _others():
            out_ref[pl.ds(rank * 32, 32)] = jnp.full((32,), rank, jnp.int32)
            api.semaphore_signal(done, 1)

        @pl.when(rank == 0)
        def _first():
            api.semaphore_wait(done, 3)
            out_ref[pl.ds(0, 32)] = out_ref[pl.ds(32, 32)] + out_ref[pl.ds(64, 32)] + out_ref[pl.ds(96, 32)]

    result = run(body, interpret=mgpu.InterpretGPUParams(seed=seed))
    np.testing.assert_array_equal(result, np.repeat([6, 1, 2, 3], 32))


def test_an_array_of_semaphores_orders_a_chain():
    """Each CTA waits for its predecessor, though they all run at once: a sequential scan over the grid."""

    def body(out_ref):
        rank = lax.axis_index("i")
        turn = pl.get_global(mgpu.SemaphoreType.REGULAR((4,)))
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
    np.testing.assert_array_equal(run(body), np.full(128, expected))


def test_wait_without_decrement_leaves_the_count():
    def body(out_ref, count):
        mgpu.semaphore_signal(count, 5)
        mgpu.semaphore_wait(count, 2, decrement=False)
        mgpu.semaphore_wait(count, 3)
        out_ref[...] = jnp.full((128,), pl.semaphore_read(count))

    np.testing.assert_array_equal(run(body, [mgpu.SemaphoreType.REGULAR], grid=1), np.full(128, 2))


@pytest.mark.parametrize("api", [mgpu, pl])
def test_what_a_cta_allocates_is_its_own(api):
    """Each CTA signals a different number, and sees no other CTA's."""

    def body(out_ref, count):
        rank = lax.axis_index("i")
        api.semaphore_signal(count, rank + 1)
        api.semaphore_wait(count, rank + 1, decrement=False)
        out_ref[pl.ds(rank * 32, 32)] = jnp.full((32,), pl.semaphore_read(count))

    np.testing.assert_array_equal(run(body, [mgpu.SemaphoreType.REGULAR]), np.repeat([1, 2, 3, 4], 32))


def test_counters_stay_when_their_scope_is_left():
    """As on the device, where nobody resets them."""

    def body(out_ref):
        def count_up(count):
            mgpu.semaphore_signal(count)
            out_ref[...] = jnp.full((128,), pl.semaphore_read(count))

        pl.loop(0, 3)(lambda _: pl.run_scoped(count_up, mgpu.SemaphoreType.REGULAR))

    np.testing.assert_array_equal(run(body, grid=1), np.full(128, 3))


def test_each_call_of_get_global_gives_another_semaphore():
    def body(out_ref):
        first, second = (pl.get_global(mgpu.SemaphoreType.REGULAR) for _ in range(2))
        rank = lax.axis_index("i")

        @pl.when(rank == 0)
        def _signal():
            inner = pl.get_global(mgpu.SemaphoreType.REGULAR)
            mgpu.semaphore_signal(inner, 7)
            out_ref[pl.ds(0, 1)] = jnp.full((1,), pl.semaphore_read(inner))
            mgpu.semaphore_signal(first, 5)
            mgpu.semaphore_signal(second, 3)

        @pl.when(rank == 1)
        def _wait():
            mgpu.semaphore_wait(first, 5, decrement=False)
            mgpu.semaphore_wait(second, 3, decrement=False)
            out_ref[pl.ds(1, 1)] = jnp.full((1,), pl.semaphore_read(first))
            out_ref[pl.ds(2, 1)] = jnp.full((1,), pl.semaphore_read(second))

    np.testing.assert_array_equal(run(body, out=jax.ShapeDtypeStruct((3,), jnp.int32)), [7, 5, 3])


def test_warps_signal_each_other():
    def body(out_ref):
        count = pl.get_global(mgpu.SemaphoreType.REGULAR)

        @mgpu.warp_map
        def _(warp):
            pl.when(warp == 0)(lambda: mgpu.semaphore_signal(count, 3))
            pl.when(warp == 1)(lambda: mgpu.semaphore_wait(count, 2))

        out_ref[...] = jnp.full((128,), pl.semaphore_read(count))

    np.testing.assert_array_equal(run(body, grid=1), np.ones(128))


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


@pytest.mark.parametrize(("scratch", "name"), [([mgpu.SemaphoreType.REGULAR], "done"), ([], "global0")])
def test_a_semaphore_nobody_signals_is_reported(scratch, name):
    def body(out_ref, done=None):
        mgpu.semaphore_wait(pl.get_global(mgpu.SemaphoreType.REGULAR) if done is None else done, 2)
        out_ref[...] = jnp.zeros((128,), jnp.int32)

    message = rf"test_semaphores.py:\d+ waits on semaphore {name}\[0\]: 0 of 2"
    with pytest.raises(mgpu.errors.DeadlockError, match=message):
        run(body, scratch)


def test_a_wait_for_another_cta_on_a_semaphore_of_ones_own_is_explained():
    def body(out_ref, done):
        pl.when(lax.axis_index("i") == 0)(lambda: mgpu.semaphore_signal(done))
        pl.when(lax.axis_index("i") == 1)(lambda: mgpu.semaphore_wait(done))
        out_ref[...] = jnp.zeros((128,), jnp.int32)

    message = r"(?s)waits on semaphore done\[0\]: 0 of 1: CTA 1.*done belongs to one CTA; pl.get_global gives"
    with pytest.raises(mgpu.errors.DeadlockError, match=message):
        run(body, [mgpu.SemaphoreType.REGULAR], grid=2)


def test_get_global_is_for_semaphores():
    def body(out_ref):
        buffer = pl.get_global(mgpu.SMEM((128,), jnp.int32))
        out_ref[...] = buffer[...]

    with pytest.raises(mgpu.errors.Unsupported, match=r"test_semaphores.py:\d+ .*get_global.*It gives semaphores"):
        run(body)


def test_a_batch_does_not_share_global_semaphores():
    def body(x_ref, out_ref):
        mgpu.semaphore_signal(pl.get_global(mgpu.SemaphoreType.REGULAR))
        out_ref[...] = x_ref[...]

    kernel = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.int32))
    with pytest.raises(mgpu.errors.Unsupported, match=r"get_global.*jax.lax.map"):
        jax.vmap(kernel)(np.zeros((2, 128), np.int32))


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

        def body(out_ref, grid=grid):
            done = pl.get_global(mgpu.SemaphoreType.REGULAR)
            mgpu.semaphore_signal(done)
            pl.when(lax.axis_index("i") == 0)(lambda: mgpu.semaphore_wait(done, grid))
            pl.when(lax.axis_index("i") == 0)(lambda: out_ref.__setitem__(..., jnp.full((128,), 1, jnp.int32)))

        result = run(body, grid=grid, interpret=mgpu.InterpretGPUParams(seed=seed))
        np.testing.assert_array_equal(result, np.ones(128))
