"""The last lines of a deadlock's report say what to look at first, for the mistakes that are made most."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import BarrierError, DeadlockError

X = np.ones((4, 64, 64), np.float32)
RING = mgpu.SMEM((2, 64, 64), jnp.float32)


def run(body, scratch, **options):
    out = jax.ShapeDtypeStruct((4, 64, 64), jnp.float32)
    return mgpu.kernel(body, out_type=out, scratch_types=scratch, **options)(X)


def deadlock(body, scratch, **options):
    """Returns the report of a kernel's deadlock."""
    with pytest.raises(DeadlockError) as caught:
        run(body, scratch, **options)
    return str(caught.value)


TWO = {"num_threads": 2, "thread_name": "wg"}


def ring(*, first_wait, release):
    def produce(x, smem, full, empty):
        def load(step, _):
            slot = lax.rem(step, 2)
            pl.when(step >= first_wait)(lambda: mgpu.barrier_wait(empty.at[slot]))
            mgpu.copy_gmem_to_smem(x.at[step], smem.at[slot], full.at[slot])

        lax.fori_loop(0, 4, load, None)

    def consume(out, smem, full, empty):
        def take(step, _):
            slot = lax.rem(step, 2)
            mgpu.barrier_wait(full.at[slot])
            out[step] = smem[slot]
            if release:
                mgpu.barrier_arrive(empty.at[slot])

        lax.fori_loop(0, 4, take, None)

    def body(x, out, smem, full, empty):
        pl.when(lax.axis_index("wg") == 0)(lambda: produce(x, smem, full, empty))
        pl.when(lax.axis_index("wg") == 1)(lambda: consume(out, smem, full, empty))

    barriers = [mgpu.Barrier(num_barriers=2), mgpu.Barrier(num_barriers=2)]
    return deadlock(body, [RING, *barriers], **TWO)


def test_a_barrier_on_which_nothing_arrives():
    last = ring(first_wait=2, release=False).splitlines()[-1]
    assert last == "Nothing arrives on empty: add barrier_arrive(empty), or give empty to the copy that is waited for."


def test_slots_that_are_free_in_the_beginning():
    last = ring(first_wait=0, release=True).splitlines()[-1]
    assert last.startswith("Nobody who arrives on empty gets that far before empty[0] completes for the first time.")
    assert last.endswith(
        "slots are free in the beginning: wait only before a slot is used again, and arrive after each use."
    )


def test_a_wait_on_another_slot_than_the_load():
    def body(x, out, smem, full):
        mgpu.copy_gmem_to_smem(x.at[0], smem.at[0], full.at[0])
        mgpu.barrier_wait(full.at[1])
        out[0] = smem[0]

    last = deadlock(body, [RING, mgpu.Barrier(num_barriers=2)]).splitlines()[-1]
    assert last.startswith("Nobody but the one who waits arrives on full, and not on full[1] in this phase: see")


def test_more_arrivals_expected_than_come():
    def body(x, out, smem, full):
        mgpu.copy_gmem_to_smem(x.at[0], smem.at[0], full)
        mgpu.barrier_wait(full)
        out[0] = smem[0]

    last = deadlock(body, [RING, mgpu.Barrier(num_arrivals=2)]).splitlines()[-1]
    assert last.startswith("full[0] got 1 of 2 arrivals: lower num_arrivals, or let everybody arrive who is counted")


@pytest.mark.parametrize("detect_races", [None, False])
def test_phases_that_went_by(detect_races):
    def body(x, out, ready):
        @pl.when(lax.axis_index("wg") == 0)
        def _():
            for _ in range(4):
                mgpu.barrier_arrive(ready)

        @pl.when(lax.axis_index("wg") == 1)
        def _():
            pl.delay(1000)
            lax.fori_loop(0, 4, lambda _, carry: mgpu.barrier_wait(ready), None)

    options = mgpu.InterpretGPUParams(detect_races=detect_races)
    last = deadlock(body, [mgpu.Barrier()], interpret=options, **TWO).splitlines()[-1]
    # Who looks for races counts waits, too.
    if detect_races is None:
        assert last.startswith(
            "ready[0] was completed 4 times, but the one who waits there has waited 0 times before: a phase is missed"
        )
    else:
        assert last.startswith("ready[0] was completed 4 times and is waited for once more: make as many waits as")
        assert "If it was completed twice between two waits, the first one was missed" in last


def roles(*bodies):
    """Returns a body whose warpgroups do one thing each, with the same refs."""

    def body(x, out, smem, full, empty):
        for number, each in enumerate(bodies):
            pl.when(lax.axis_index("wg") == number)(lambda each=each: each(x, out, smem, full, empty))

    return body


def fill(steps, delay_ns=0):
    """Returns a producer of so many steps that counts its slots from the first one on, and waits after a delay."""

    def produce(x, out, smem, full, empty):
        def load(step, _):
            slot = lax.rem(step, 2)
            pl.delay(delay_ns)
            pl.when(step >= 2)(lambda: mgpu.barrier_wait(empty.at[slot]))
            mgpu.copy_gmem_to_smem(x.at[lax.rem(step, 4)], smem.at[slot], full.at[slot])

        lax.fori_loop(0, steps, load, None)

    return produce


def take(refs, slot, row, releases=1):
    _, out, smem, full, empty = refs
    mgpu.barrier_wait(full.at[slot])
    out[row] = smem[slot]
    for _ in range(releases):
        mgpu.barrier_arrive(empty.at[slot])


PAIR = [mgpu.Barrier(num_barriers=2), mgpu.Barrier(num_barriers=2)]


def test_a_consumer_that_begins_each_tile_at_slot_0():
    """Tiles of three steps over a ring of two slots."""

    def consume(*refs):
        def tile(number, _):
            lax.fori_loop(0, 3, lambda step, _: take(refs, lax.rem(step, 2), number), None)

        lax.fori_loop(0, 3, tile, None)

    text = deadlock(roles(fill(9), consume), [RING, *PAIR], **TWO)
    assert "full[1] has completed a phase that the one who waits on full[0] has not waited for: those who" in text
    assert "Count slots from the first step of the kernel on, on both sides: what begins each tile at slot 0" in text


def test_a_slot_that_is_released_twice_for_each_use():
    def consume(*refs):
        lax.fori_loop(0, 4, lambda step, _: take(refs, lax.rem(step, 2), step, releases=2), None)

    last = deadlock(roles(fill(4, delay_ns=5000), consume), [RING, *PAIR], **TWO).splitlines()[-1]
    assert last.startswith("empty[0] was completed 2 times, but the one who waits there has waited 0 times before")
    assert last.endswith(
        "too often for one use of a slot, or num_arrivals is smaller than the number of those who arrive."
    )


def test_a_consumer_that_waits_for_a_load_where_there_is_none():
    def consume(*refs):
        take(refs, 0, 0)

    last = deadlock(roles(fill(0), consume), [RING, *PAIR], **TWO).splitlines()[-1]
    assert last == "full[0] was never completed, and all who arrive on full have ended: make as many waits as arrivals."


def test_a_barrier_of_all_ctas_that_takes_the_counter_down():
    def body(x, out):
        count = pl.get_global(mgpu.SemaphoreType.REGULAR)
        mgpu.semaphore_signal(count)
        mgpu.semaphore_wait(count, 4)
        out[lax.axis_index("i")] = x[lax.axis_index("i")]

    last = deadlock(body, (), grid=(4,), grid_names=("i",)).splitlines()[-1]
    assert last.startswith("Waits have taken 4 from global0[0]: semaphore_wait takes the value that it waited for.")
    assert "wait with decrement=False" in last


def test_a_barrier_of_more_ctas_than_run_side_by_side():
    def body(x, out, smem):
        del smem  # so large that a CTA fills an SM
        count = pl.get_global(mgpu.SemaphoreType.REGULAR)
        mgpu.semaphore_signal(count)
        mgpu.semaphore_wait(count, 140, decrement=False)

    *_, outside, last = deadlock(
        body, [mgpu.SMEM((56, 1024), jnp.float32)], grid=(140,), grid_names=("i",)
    ).splitlines()
    assert outside == "  8 CTAs have not begun: an SM takes one when another exits"
    assert last.startswith("132 CTAs run side by side, the grid has 8 more, and those that run wait for more signals")
    assert "Launch 132 CTAs or fewer and let each loop over its share of the work, make CTAs smaller" in last


def test_a_race_before_a_failure_is_told_with_it():
    """The consumer releases a slot before it reads it, and takes one step too many."""

    def consume(x, out, smem, full, empty):
        def step(number, _):
            slot = lax.rem(number, 2)
            mgpu.barrier_wait(full.at[slot])
            mgpu.barrier_arrive(empty.at[slot])
            out[lax.rem(number, 4)] = smem[slot]

        lax.fori_loop(0, 7, step, None)

    *_, race = deadlock(roles(fill(6), consume), [RING, *PAIR], **TWO).splitlines()
    assert race.startswith("Before that, and perhaps its cause: kernel body: race in CTA 0 at cycle")
    assert "TMA load of smem by warpgroup 0" in race


def test_a_load_into_a_slot_that_is_still_being_filled_says_that_a_copy_arrives():
    def body(x, out, smem, full):
        for number in range(2):
            mgpu.copy_gmem_to_smem(x.at[number], smem.at[0], full.at[0])

    with pytest.raises(BarrierError) as caught:
        run(body, [RING, mgpu.Barrier(num_barriers=2)])
    text, race = str(caught.value).splitlines()
    assert text.endswith(
        "Wait for the phase before arriving again (a copy arrives, too: wait until its slot was released before it is "
        "loaded again), or raise num_arrivals."
    )
    assert "Needs barrier_wait on the barrier of that load before this access." in race


def test_a_collective_copy_that_one_cta_issues():
    def body(x, out, smem, full):
        cta = lax.axis_index("c")
        pl.when(cta == 0)(lambda: mgpu.copy_gmem_to_smem(x.at[0], smem.at[0], full, collective_axes="c"))
        mgpu.barrier_wait(full)
        out[cta] = smem[0]

    *_, first, second = deadlock(body, [RING, mgpu.Barrier()], cluster=(2,), cluster_names=("c",)).splitlines()
    assert first.startswith("full[0] has its arrivals, but not all bytes: a copy with collective_axes has to be issued")
    assert second.startswith("Bytes of a peer's copy have landed on full[0], but this CTA has issued none")


@pytest.mark.parametrize("is_last_by_warp", [True, False])
def test_waits_of_warps_count(is_last_by_warp):
    """Four phases, each waited for by the warps; the fifth never comes."""

    def body(x, out, ready):
        def step(_, carry):
            mgpu.warp_map(lambda warp: pl.when(warp == 0)(lambda: mgpu.barrier_arrive(ready)))
            mgpu.warp_map(lambda warp: mgpu.barrier_wait(ready))

        lax.fori_loop(0, 4, step, None)
        if is_last_by_warp:
            mgpu.warp_map(lambda warp: mgpu.barrier_wait(ready))
        else:
            mgpu.barrier_wait(ready)

    text = deadlock(body, [mgpu.Barrier()])
    assert "waits on ready[0] phase 4" in text
    assert "a phase is missed" not in text
