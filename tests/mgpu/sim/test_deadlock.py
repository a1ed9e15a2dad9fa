"""The report of a deadlock: who waits on which barrier and phase, who could have arrived, and where that one stands."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import DeadlockError


def make_kernel(*, releases, stages=2):
    """A producer fills a ring whose slots a consumer gives back only if `releases`."""

    def body(x, out, smem, full, empty):
        @pl.when(lax.axis_index("wg") == 0)
        def _():
            def load(turn, _):
                slot = lax.rem(turn, stages)
                pl.when(turn >= stages)(lambda: mgpu.barrier_wait(empty.at[slot]))
                mgpu.copy_gmem_to_smem(x, smem.at[slot], full.at[slot])

            lax.fori_loop(0, 5, load, None)

        @pl.when(lax.axis_index("wg") == 1)
        def _():
            def take(turn, _):
                slot = lax.rem(turn, stages)
                mgpu.barrier_wait(full.at[slot])
                out[...] = smem[slot]
                if releases:
                    mgpu.barrier_arrive(empty.at[slot])

            lax.fori_loop(0, 5, take, None)

    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[
            mgpu.SMEM((stages, 64, 64), jnp.float32),
            mgpu.Barrier(num_barriers=stages),
            mgpu.Barrier(num_barriers=stages),
        ],
        num_threads=2,
        thread_name="wg",
    )


def test_the_report_names_waits_phases_and_possible_arrivals():
    with pytest.raises(DeadlockError) as caught:
        make_kernel(releases=False)(np.ones((64, 64), np.float32))
    text = str(caught.value)
    line = r"test_deadlock\.py:\d+"
    assert re.search(rf"warpgroup 0 at {line} waits on empty\[0\] phase 0 parity 0 \(0 of 1 arrivals\)", text)
    assert re.search(rf"warpgroup 1 at {line} waits on full\[0\] phase 1 parity 1 \(0 of 1 arrivals\)", text)
    assert "arrivals on empty come from: nowhere" in text
    assert re.search(rf"arrivals on full come from: tma load at {line} by warpgroup 0, which is at {line}", text)


def test_the_same_kernel_with_its_arrivals_runs():
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    np.testing.assert_array_equal(make_kernel(releases=True)(x), x)


def run(body, scratch=(), **options):
    mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), jnp.int32), scratch_types=scratch, **options)(
        np.zeros(4, np.int32)
    )


def test_a_semaphore_that_nobody_signals_often_enough_names_its_signals():
    def body(x, out):
        ready = pl.get_global(mgpu.SemaphoreType.REGULAR)
        mgpu.semaphore_signal(ready)
        mgpu.semaphore_wait(ready, 5)
        out[...] = x[...]

    with pytest.raises(DeadlockError) as caught:
        run(body, grid=(2,), grid_names=("cta",))
    text = str(caught.value)
    assert re.search(r"waits on semaphore \S+\[0\]: 2 of 5: 2 CTAs, first CTA 0", text)
    assert re.search(r"signals of \S+ come from: test_deadlock\.py:\d+\n", text)


def test_waiting_for_a_cta_that_cannot_begin():
    def body(x, out, smem):
        del smem  # so large that a CTA fills an SM
        ready, cta = pl.get_global(mgpu.SemaphoreType.REGULAR), lax.axis_index("cta")
        pl.when(cta == 139)(lambda: mgpu.semaphore_signal(ready, 139))
        pl.when(cta < 139)(lambda: mgpu.semaphore_wait(ready))
        out[...] = x[...]

    with pytest.raises(DeadlockError, match="132 warpgroups wait") as caught:
        run(body, [mgpu.SMEM((56, 1024), jnp.float32)], grid=(140,), grid_names=("cta",))
    assert "8 CTAs have not begun: an SM takes one when another exits" in str(caught.value)


def test_a_scope_that_only_some_warpgroups_enter():
    def body(x, out):
        def scope(smem):
            smem[...] = x[...]

        pl.when(lax.axis_index("wg") == 0)(
            lambda: pl.run_scoped(scope, mgpu.SMEM((4,), jnp.int32), collective_axes="wg")
        )

    expected = r"waits on the other warpgroups of its CTA, to enter a run_scoped together \(1 of 2 warpgroups\)"
    with pytest.raises(DeadlockError, match=expected) as caught:
        run(body, num_threads=2, thread_name="wg")
    assert "one warpgroup waits for what nobody will do" in str(caught.value)


def test_a_share_of_a_multicast_that_nobody_announced():
    def body(x, out, smem, full):
        first = lax.axis_index("c") == 0
        pl.when(first)(lambda: mgpu.copy_gmem_to_smem(x, smem, full, collective_axes="c"))
        mgpu.barrier_wait(full)
        out[...] = smem[...]

    with pytest.raises(DeadlockError) as caught:
        run(body, [mgpu.SMEM((4,), jnp.int32), mgpu.Barrier()], cluster=(2,), cluster_names=("c",))
    assert "phase 0 parity 0 (1 of 1 arrivals, 8 bytes outstanding): CTA 0" in str(caught.value)
    assert "(0 of 1 arrivals, 8 bytes have landed that no arrival has announced): CTA 1" in str(caught.value)


def test_an_arrival_too_many_names_its_warpgroup_and_what_the_phase_waits_for():
    def body(x, out, smem, full):
        for _ in range(2):
            mgpu.copy_gmem_to_smem(x, smem, full)
        mgpu.barrier_wait(full)
        out[...] = smem[...]

    message = (
        r"test_deadlock\.py:\d+ kernel body: full\[0\]: warpgroup 0 arrives at cycle [\d,]+, but phase 0 has taken "
        r"1 of its 1 arrivals, and waits for bytes to land\. Wait for the phase"
    )
    with pytest.raises(mgpu.errors.BarrierError, match=message):
        run(body, [mgpu.SMEM((4,), jnp.int32), mgpu.Barrier()])


def test_a_warp_that_waits_forever_is_named_with_its_line():
    def body(x, out, never):
        @mgpu.warp_map
        def _(warp):
            pl.when(warp == 2)(lambda: mgpu.barrier_wait(never))

        out[...] = x[...]

    with pytest.raises(DeadlockError) as caught:
        run(body, [mgpu.Barrier()])
    text = str(caught.value)
    assert re.search(r"warp 2 of warpgroup 0 at test_deadlock\.py:\d+ waits on never\[0\] phase 0", text)
    assert "arrivals on never come from: nowhere" in text


def test_a_cluster_barrier_shows_where_each_cta_stands():
    def body(x, out, together):
        @pl.when(lax.axis_index("c") == 1)
        def _():
            mgpu.barrier_arrive(together)
            mgpu.barrier_wait(together)

        out[...] = x[...]

    with pytest.raises(DeadlockError) as caught:
        run(
            body,
            [mgpu.ClusterBarrier(collective_axes=("c",))],
            cluster=(2,),
            cluster_names=("c",),
            interpret=mgpu.InterpretGPUParams(detect_races=False),
        )
    arrivals = str(caught.value).partition("arrivals on together come from: ")[2]
    assert "by warpgroup 0, which has finished in CTA 0, is at test_deadlock.py:" in arrivals
    assert "in CTA 1" in arrivals


@pytest.mark.parametrize("max_events", [200, 5000])
def test_a_loop_that_never_ends_stops_at_the_limit_and_is_named(max_events):
    def body(x, out):
        turns = lax.while_loop(lambda turn: turn >= 0, lambda turn: (turn + 1) % 7, x[0])
        out[...] = x[...] + turns

    with pytest.raises(mgpu.errors.SimulationError) as caught:
        run(body, interpret=mgpu.InterpretGPUParams(max_events=max_events))
    text = str(caught.value)
    assert f"kernel body: runaway simulation: {max_events:,} events" in text
    assert "raise max_events. 0 of 1 CTAs have exited." in text
    assert re.search(r"What goes on:\n  warpgroup 0 at test_deadlock\.py:\d+: CTA 0", text)


@pytest.mark.parametrize("is_jitted", [True, False])
def test_a_grid_that_takes_more_events_than_allowed_says_how_many_it_takes(is_jitted):
    def body(out):
        out[lax.axis_index("cta")] = lax.fori_loop(0, 9, lambda _, sum: sum + out[0], jnp.int32(0))

    def launch(max_events):
        kernel = mgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((4000,), jnp.int32),
            grid=(4000,),
            grid_names=("cta",),
            interpret=mgpu.InterpretGPUParams(max_events=max_events, detect_races=False),
        )
        return (jax.jit(kernel) if is_jitted else kernel)().block_until_ready()

    with pytest.raises(Exception, match="CTAs have exited") as caught:  # JAX's own under jit
        launch(40_000)
    found = re.search(
        r"([\d,]+) of 4,000 CTAs have exited\. If CTAs are alike, all take up to ([\d,]+)", str(caught.value)
    )
    assert found is not None
    exited, needed = (int(group.replace(",", "")) for group in found.groups())
    assert 0 < exited < 4000
    launch(needed)


@pytest.mark.parametrize(("wanted", "fits"), [((24, 232), True), ((128, 240), False)])
def test_registers_that_a_cta_does_not_own_are_refused_before_the_run(wanted, fits):
    def body(x, out):
        for warpgroup in range(4):
            share = wanted[warpgroup > 1]

            @pl.when(lax.axis_index("wg") == warpgroup)
            def _(share=share):
                mgpu.set_max_registers(share, action="increase" if share > 128 else "decrease")

        pl.when(lax.axis_index("wg") == 0)(lambda: out.__setitem__(..., x[...]))

    if fits:
        run(body, num_threads=4, thread_name="wg")
        return
    with pytest.raises(mgpu.errors.ResourceError) as caught:
        run(body, num_threads=4, thread_name="wg")
    assert re.match(
        r"test_deadlock\.py:\d+ kernel body: set_max_registers leaves its warpgroups with 128, 128, 240, 240 registers "
        r"per thread, 736 in all; a CTA of 4 warpgroups owns 512 \(128 each at launch\)",
        str(caught.value),
    )
