"""Mistakes between tiles, in the last turn, at the border of a matrix; and what is legal there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import BarrierError, OutOfBoundsError
from tests.support.races import I32, NUMBERS, find_races, needed, row

ROLES = {"num_threads": 2, "thread_name": "wg"}
SWIZZLED = (mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128))
X = NUMBERS.reshape(4, 4)


def role(number):
    return pl.when(lax.axis_index("wg") == number)


def ring(*users, steps, num_arrivals=1, waits=lambda step: step >= 2):
    """Returns the races of a producer (warpgroup 0) and users (the next ones), each `user(step, read, release)`.

    Args:
      *users: called in each step with what reads the slot and what releases it; returns a row.
      steps: how many.
      num_arrivals: of the barriers that say that a slot is free.
      waits: in which steps the producer waits for one.
    """

    def body(x, out, smem, full, empty):
        @role(0)
        def _():
            def load(step, _):
                slot = lax.rem(step, 2)
                pl.when(waits(step))(lambda: mgpu.barrier_wait(empty.at[slot]))
                mgpu.copy_gmem_to_smem(x.at[lax.rem(step, 4)], smem.at[slot], full.at[slot])

            lax.fori_loop(0, steps, load, None)

        for number, user in enumerate(users):

            @role(1 + number)
            def _(user=user, number=number):
                def use(step, total):
                    slot = lax.rem(step, 2)
                    mgpu.barrier_wait(full.at[slot])
                    return total + user(step, lambda: smem[slot], lambda: mgpu.barrier_arrive(empty.at[slot]))

                out[number] = lax.fori_loop(0, steps, use, row(0))

    empty = mgpu.Barrier(num_barriers=2, num_arrivals=num_arrivals)
    scratch = [mgpu.SMEM((2, 4), I32), mgpu.Barrier(num_barriers=2), empty]
    return find_races(body, (len(users), 4), X, scratch=scratch, num_threads=1 + len(users), thread_name="wg")


def use_and_release(times):
    def user(_step, read, release):
        value = read()
        for _ in range(times):
            release()
        return value

    return user


@pytest.mark.parametrize(
    ("releases", "num_arrivals", "races"), [((1, 1), 2, 0), ((2, 1), 3, 0), ((2, 0), 2, 1), ((1, 0), 1, 1)]
)
def test_a_consumer_does_not_release_for_another_one(releases, num_arrivals, races):
    found = ring(*map(use_and_release, releases), steps=6, num_arrivals=num_arrivals)
    assert len(found) == races
    if races:
        assert needed(found) == "Needs barrier_arrive by warpgroup 2 and barrier_wait by warpgroup 0 in between."


def test_a_slot_that_is_released_before_it_is_read():
    def user(_step, read, release):
        release()
        return read()

    assert (
        needed(ring(user, steps=5)) == "Needs barrier_arrive by warpgroup 1 and barrier_wait by warpgroup 0 in between."
    )


@pytest.mark.parametrize("trips", [2, 3])
def test_a_producer_that_takes_each_tile_for_the_first_one(trips):
    """Slots are free in the beginning of the kernel, not of each tile."""
    with pytest.raises(BarrierError, match=r"Before that, and perhaps its cause: .*TMA load of smem by warpgroup 0"):
        ring(use_and_release(1), steps=3 * trips, waits=lambda step: lax.rem(step, trips) >= 2)


@pytest.mark.parametrize("trips", [2, 3])
def test_rings_that_begin_anew_at_slot_0_on_both_sides(trips):
    """Every barrier still gets as many arrivals as waits."""

    def body(x, out, smem, full, empty):
        @role(0)
        def _():
            def load(tile, step):
                pl.when((tile > 0) | (step >= 2))(lambda: mgpu.barrier_wait(empty.at[lax.rem(step, 2)]))
                mgpu.copy_gmem_to_smem(x.at[step], smem.at[lax.rem(step, 2)], full.at[lax.rem(step, 2)])

            lax.fori_loop(0, 3, lambda t, _: lax.fori_loop(0, trips, lambda k, _: load(t, k), None), None)

        @role(1)
        def _():
            def use(step, total):
                mgpu.barrier_wait(full.at[lax.rem(step, 2)])
                total += smem[lax.rem(step, 2)]
                mgpu.barrier_arrive(empty.at[lax.rem(step, 2)])
                return total

            out[...] = lax.fori_loop(0, 3, lambda _, total: lax.fori_loop(0, trips, use, total), row(0))

    barriers = [mgpu.Barrier(num_barriers=2), mgpu.Barrier(num_barriers=2)]
    assert not find_races(body, (4,), X, scratch=[mgpu.SMEM((2, 4), I32), *barriers], **ROLES)


@pytest.mark.parametrize(("early", "tiles", "races"), [(False, 2, 0), (True, 2, 1), (True, 1, 0)])
def test_a_last_slot_that_is_released_before_its_wgmma_is_over(early, tiles, races):
    """In the other turns the slot of the turn before is released, whose wgmma is over. One tile loads nothing after."""

    def body(x, out, smem, full, empty):
        @role(0)
        def _():
            def load(step, _):
                slot = lax.rem(step, 2)
                pl.when(step >= 2)(lambda: mgpu.barrier_wait(empty.at[slot]))
                mgpu.copy_gmem_to_smem(x, smem.at[slot], full.at[slot])

            lax.fori_loop(0, 4 * tiles, load, None)

        @role(1)
        def _():
            def multiply(acc):
                def step(k, _):
                    slot = lax.rem(k, 2)
                    mgpu.barrier_wait(full.at[slot])
                    mgpu.wgmma(acc, smem.at[slot], smem.at[slot])
                    mgpu.wgmma_wait(1)
                    pl.when(k > 0)(lambda: mgpu.barrier_arrive(empty.at[1 - slot]))

                lax.fori_loop(0, 4, step, None)
                if early:
                    mgpu.barrier_arrive(empty.at[1])
                mgpu.wgmma_wait(0)
                if not early:
                    mgpu.barrier_arrive(empty.at[1])
                return acc[...]

            def tile(number, _):
                out[number] = pl.run_scoped(multiply, mgpu.ACC((64, 64)))

            lax.fori_loop(0, tiles, tile, None)

    slots = mgpu.SMEM((2, 64, 64), jnp.bfloat16, transforms=SWIZZLED)
    scratch = [slots, mgpu.Barrier(num_barriers=2), mgpu.Barrier(num_barriers=2)]
    out = jax.ShapeDtypeStruct((tiles, 64, 64), jnp.float32)
    found = find_races(body, out, np.ones((64, 64), jnp.bfloat16), scratch=scratch, **ROLES)
    assert len(found) == races
    if races:
        assert needed(found).startswith("Needs wgmma_wait(n) with a smaller n, then barrier_arrive by warpgroup 1")


@pytest.mark.parametrize("waits", ["before", "after", "never"])
def test_the_next_tile_writes_the_buffer_of_the_last_store(waits):
    def body(x, out, smem):
        def tile(number, _):
            if waits == "before":
                mgpu.wait_smem_to_gmem(0, wait_read_only=True)
            smem[...] = x[...] + number
            mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(smem, out.at[number])
            if waits == "after":
                mgpu.wait_smem_to_gmem(0, wait_read_only=True)

        lax.fori_loop(0, 3, tile, None)
        mgpu.wait_smem_to_gmem(0)

    races = find_races(body, (3, 64), np.arange(64, dtype=np.int32), scratch=[mgpu.SMEM((64,), I32)])
    assert needed(races) == ("Needs wait_smem_to_gmem(n) with a smaller n in between." if waits == "never" else "")


@pytest.mark.parametrize("shared", [True, False])
def test_two_warpgroups_with_one_epilogue_buffer(shared):
    def body(x, out, smem):
        warpgroup = lax.axis_index("wg")
        buffer = smem.at[0 if shared else warpgroup]
        buffer[...] = x[...]
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(buffer, out.at[warpgroup])
        mgpu.wait_smem_to_gmem(0)

    races = find_races(body, (2, 64), np.arange(64, dtype=np.int32), scratch=[mgpu.SMEM((2, 64), I32)], **ROLES)
    assert bool(races) == shared
    if shared:
        assert races[0].needs.startswith("Needs a part of smem for each warpgroup, or barrier_arrive by warpgroup 0")


@pytest.mark.parametrize(("in_flight", "delay_release", "races"), [(0, 0, 0), (1, 1, 0), (1, 0, 2), (None, 1, 2)])
def test_a_pipeline_keeps_a_slot_until_its_wgmma_is_over(in_flight, delay_release, races):
    def block(index_map):
        return mgpu.BlockSpec((64, 64), index_map, transforms=SWIZZLED, delay_release=delay_release)

    def body(a, b, out):
        def multiply(acc):
            def step(_, a_smem, b_smem):
                mgpu.wgmma(acc, a_smem, b_smem)
                if in_flight is not None:
                    mgpu.wgmma_wait(in_flight)

            specs = [block(lambda k: (0, k)), block(lambda k: (k, 0))]
            mgpu.emit_pipeline(step, grid=(6,), in_specs=specs, max_concurrent_steps=3)(a, b)
            mgpu.wgmma_wait(0)
            return acc[...]

        out[...] = pl.run_scoped(multiply, mgpu.ACC((64, 64)))

    operands = np.ones((64, 384), jnp.bfloat16), np.ones((384, 64), jnp.bfloat16)
    found = find_races(body, jax.ShapeDtypeStruct((64, 64), jnp.float32), *operands)
    assert len(found) == races
    for race in found:
        assert race.needs == (
            "Needs wgmma_wait(n) with a smaller n (or, in emit_pipeline, a larger delay_release) in between."
        )


@pytest.mark.parametrize(("second", "races"), [(2, 0), (1, 2), (0, 2)])
@pytest.mark.parametrize("ctas", [4, 20])
def test_a_barrier_of_all_ctas_that_is_used_twice(second, races, ctas):
    """The second time, the counter has to be twice as high; with what it was, nobody waits. 0 is no second time."""

    def body(parts, out):
        cta, count = lax.axis_index("i"), pl.get_global(mgpu.SemaphoreType.REGULAR)
        parts[cta] = row(cta)
        mgpu.semaphore_signal(count)
        mgpu.semaphore_wait(count, ctas, decrement=False)
        out[cta] = parts[lax.rem(cta + 1, ctas)]
        if second:
            mgpu.semaphore_signal(count)
            mgpu.semaphore_wait(count, second * ctas, decrement=False)
        parts[cta] = row(7)

    out_type = [jax.ShapeDtypeStruct((ctas, 4), I32)] * 2
    found = find_races(body, out_type, everywhere=None, grid=(ctas,), grid_names=("i",))
    assert len(found) == races
    for race in found:
        assert "semaphore_signal by CTA" in race.needs


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(("value", "decrement", "races"), [(4, True, 0), (4, False, 0), (3, True, 1), (3, False, 1)])
def test_a_wait_for_fewer_signals_than_there_are_parts(value, decrement, races, late):
    """All parts may be there by then, in this run."""

    def body(x, parts, out):
        cta, done = lax.axis_index("i"), pl.get_global(mgpu.SemaphoreType.REGULAR)
        parts[cta] = x[cta]
        mgpu.semaphore_signal(done)

        @pl.when(cta == 0)
        def _():
            if late:
                pl.delay(10_000)
            mgpu.semaphore_wait(done, value, decrement=decrement)
            out[...] = parts[0] + parts[1] + parts[2] + parts[3]

    out_type = [jax.ShapeDtypeStruct((4, 4), I32), jax.ShapeDtypeStruct((4,), I32)]
    found = find_races(body, out_type, X, grid=(4,), grid_names=("i",))
    assert len(found) == races
    for race in found:
        assert race.first_cta == 3
        assert race.needs.endswith("on a semaphore of pl.get_global, for a value that takes that signal.")


@pytest.mark.parametrize("num_arrivals", [2, 1])
def test_two_producers_fill_a_slot_together(num_arrivals):
    def body(x, y, out, x_smem, y_smem, full, empty):
        for number, (source, target) in enumerate([(x, x_smem), (y, y_smem)]):

            @role(number)
            def _(source=source, target=target):
                def load(step, _):
                    slot = lax.rem(step, 2)
                    pl.when(step >= 2)(lambda: mgpu.barrier_wait(empty.at[slot]))
                    mgpu.copy_gmem_to_smem(source.at[lax.rem(step, 4)], target.at[slot], full.at[slot])

                lax.fori_loop(0, 5, load, None)

        @role(2)
        def _():
            def use(step, total):
                slot = lax.rem(step, 2)
                mgpu.barrier_wait(full.at[slot])
                total += x_smem[slot] * y_smem[slot]
                mgpu.barrier_arrive(empty.at[slot])
                return total

            out[...] = lax.fori_loop(0, 5, use, row(0))

    full = mgpu.Barrier(num_barriers=2, num_arrivals=num_arrivals)
    scratch = [mgpu.SMEM((2, 4), I32), mgpu.SMEM((2, 4), I32), full, mgpu.Barrier(num_barriers=2)]

    def run():
        return find_races(body, (4,), X, X, scratch=scratch, num_threads=3, thread_name="wg")

    if num_arrivals == 2:
        assert not run()
    else:
        with pytest.raises(BarrierError, match=r"full\[0\]: warpgroup 1 arrives .* or raise num_arrivals"):
            run()


@pytest.mark.parametrize("by_tma", [True, False])
def test_a_tile_across_the_border_of_its_matrix(by_tma):
    """TMA fills what lies outside and leaves it out when it stores; a warpgroup itself must not go there."""

    def body(x, out, smem, full):
        part = pl.ds(lax.axis_index("i") * 64, 64)
        mgpu.copy_gmem_to_smem(x.at[part], smem, full)
        mgpu.barrier_wait(full)
        if by_tma:
            mgpu.copy_smem_to_gmem(smem, out.at[part])
            mgpu.wait_smem_to_gmem(0)
        else:
            out[part] = smem[...]

    def run():
        scratch = [mgpu.SMEM((64, 64), I32), mgpu.Barrier()]
        return find_races(body, (96, 64), np.ones((96, 64), np.int32), scratch=scratch, grid=(2,), grid_names=("i",))

    if by_tma:
        assert not run()
    else:
        with pytest.raises(OutOfBoundsError, match="slice 64:128 of out leaves its dimension of 96"):
            run()
