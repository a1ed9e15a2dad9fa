"""Races: every way to forget one piece of synchronisation is reported with its two lines, and nothing else is."""

import itertools
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import MgpuError, RaceWarning

ROWS, COLUMNS = 64, 64


@pytest.fixture(autouse=True)
def no_earlier_races():
    mgpu.reset()


def swizzled(*shape):
    return mgpu.SMEM(shape, jnp.bfloat16, transforms=(mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128)))


def run(kernel, *operands):
    """Returns the output and the races, which are not warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RaceWarning)
        return np.asarray(kernel(*operands)), mgpu.get_races()


def numbers(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape) % 32


def copy_kernel(*, waits, commits, waits_for_store):
    """Load a tile, double it in place, store it, overwrite the buffer."""

    def body(x, out, smem, barrier):
        mgpu.copy_gmem_to_smem(x, smem, barrier)
        if waits:
            mgpu.barrier_wait(barrier)
        smem[...] = smem[...] * 2
        if commits:
            mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(smem, out)
        if waits_for_store:
            mgpu.wait_smem_to_gmem(0, wait_read_only=True)
        smem[...] = jnp.zeros((ROWS, COLUMNS), jnp.float32)
        mgpu.wait_smem_to_gmem(0)
        if not waits:
            mgpu.barrier_wait(barrier)

    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32),
        scratch_types=[mgpu.SMEM((ROWS, COLUMNS), jnp.float32), mgpu.Barrier()],
    )


@pytest.mark.parametrize(("waits", "commits", "waits_for_store"), list(itertools.product([True, False], repeat=3)))
def test_matrix_of_one_warpgroup(waits, commits, waits_for_store):
    x = numbers(ROWS, COLUMNS)
    out, races = run(copy_kernel(waits=waits, commits=commits, waits_for_store=waits_for_store), x)
    needs = {race.needs.split(" ")[1].split("(")[0] for race in races}
    expected = set()
    if not waits:
        expected.add("barrier_wait")
    if not commits:
        expected.add("commit_smem")
    if not waits_for_store:
        expected.add("wait_smem_to_gmem")
    assert needs == expected
    if not races:
        np.testing.assert_array_equal(out, 2 * x)


def test_a_report_names_both_lines_the_buffer_and_what_is_missing():
    with pytest.warns(RaceWarning, match="commit_smem"):
        copy_kernel(waits=True, commits=False, waits_for_store=True)(numbers(ROWS, COLUMNS))
    (race,) = mgpu.get_races()
    assert (race.first.what, race.second.what) == ("write", "TMA store")
    assert race.first.buffer == race.second.buffer == "smem"
    assert "test_races.py" in race.first.line
    assert "test_races.py" in race.second.line
    assert race.first.line != race.second.line
    assert race.needs == "Needs commit_smem() after the write, before this access."
    assert str(race).startswith("kernel body: race in CTA 0")
    assert "<function" not in repr(race)
    mgpu.reset()
    assert mgpu.get_races() == ()


def test_detection_can_be_turned_off():
    kernel = copy_kernel(waits=True, commits=False, waits_for_store=True)
    off = mgpu.kernel(
        kernel.__wrapped__,
        out_type=jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32),
        scratch_types=[mgpu.SMEM((ROWS, COLUMNS), jnp.float32), mgpu.Barrier()],
        interpret=mgpu.InterpretGPUParams(detect_races=False),
    )
    off(numbers(ROWS, COLUMNS))
    assert mgpu.get_races() == ()


def exchange_kernel(*, arrives, waits):
    """Warpgroup 0 writes a buffer, warpgroup 1 reads it."""

    def body(out, smem, barrier):
        warpgroup = lax.axis_index("wg")

        @pl.when(warpgroup == 0)
        def _():
            smem[...] = jnp.ones((ROWS, COLUMNS), jnp.float32)
            if arrives:
                mgpu.barrier_arrive(barrier)

        @pl.when(warpgroup == 1)
        def _():
            if waits:
                mgpu.barrier_wait(barrier)
            out[...] = smem[...]

    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((ROWS, COLUMNS), jnp.float32),
        scratch_types=[mgpu.SMEM((ROWS, COLUMNS), jnp.float32), mgpu.Barrier()],
        num_threads=2,
        thread_name="wg",
    )


def test_two_warpgroups_need_an_arrival_and_a_wait():
    out, races = run(exchange_kernel(arrives=True, waits=True))
    assert not races
    np.testing.assert_array_equal(out, 1)
    _, races = run(exchange_kernel(arrives=True, waits=False))
    (race,) = races
    assert {race.first.warpgroup, race.second.warpgroup} == {0, 1}
    assert "barrier_arrive by warpgroup" in race.needs
    with pytest.raises(MgpuError, match="deadlock"):
        exchange_kernel(arrives=False, waits=True)()


def ring_kernel(stages, tiles, consumers, *, drop="", seed=None):
    """A producer feeds matmuls through a ring of slots; `drop` leaves one piece of synchronisation out."""
    rows = 64 * consumers

    def body(a, b, out, a_smem, b_smem, out_smem, full, empty):
        warpgroup = lax.axis_index("wg")

        @pl.when(warpgroup == consumers)
        def _():
            def load(tile, _):
                slot = lax.rem(tile, stages)
                if drop != "wait empty":
                    pl.when(tile >= stages)(lambda: mgpu.barrier_wait(empty.at[slot]))
                depth = pl.ds(tile * 64, 64)
                mgpu.copy_gmem_to_smem(a.at[:, depth], a_smem.at[slot], full.at[slot])
                mgpu.copy_gmem_to_smem(b.at[depth], b_smem.at[slot], full.at[slot])

            lax.fori_loop(0, tiles, load, None)

        @pl.when(warpgroup < consumers)
        def _():
            mine = pl.ds(warpgroup * 64, 64)

            def multiply(acc):
                def step(tile, _):
                    slot = lax.rem(tile, stages)
                    if drop != "wait full":
                        mgpu.barrier_wait(full.at[slot])
                    mgpu.wgmma(acc, a_smem.at[slot, mine], b_smem.at[slot])
                    if drop != "wait wgmma":
                        mgpu.wgmma_wait(0)
                    if drop != "arrive empty":
                        mgpu.barrier_arrive(empty.at[slot])

                lax.fori_loop(0, tiles, step, None)
                return acc[...]

            out_smem[warpgroup] = pl.run_scoped(multiply, mgpu.ACC((64, 64)))
            if drop != "commit":
                mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(out_smem.at[warpgroup], out.at[mine])
            mgpu.wait_smem_to_gmem(0)

    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((rows, 64), jnp.float32),
        scratch_types=[
            swizzled(stages, rows, 64),
            swizzled(stages, 64, 64),
            mgpu.SMEM((consumers, 64, 64), jnp.float32),
            mgpu.Barrier(num_arrivals=2, num_barriers=stages),
            mgpu.Barrier(num_arrivals=consumers, num_barriers=stages),
        ],
        num_threads=consumers + 1,
        thread_name="wg",
        interpret=mgpu.InterpretGPUParams(seed=seed),
    )


RINGS = {"stages": st.integers(1, 4), "tiles": st.integers(1, 9), "consumers": st.integers(1, 2)}


@given(seed=st.one_of(st.none(), st.integers(0, 2**32)), **RINGS)
@settings(max_examples=25, deadline=None)
def test_legal_rings_are_right_under_every_seed_and_have_no_race(stages, tiles, consumers, seed):
    a, b = (numbers(*shape).astype(jnp.bfloat16) for shape in ((64 * consumers, 64 * tiles), (64 * tiles, 64)))
    out, races = run(ring_kernel(stages, tiles, consumers, seed=seed), a, b)
    assert not races
    # Small integers: sums in float32 are exact.
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))


DROPS = ("wait full", "wait empty", "wait wgmma", "arrive empty", "commit")


@given(drop=st.sampled_from(DROPS), **RINGS)
@settings(max_examples=40, deadline=None)
def test_every_mutant_of_a_ring_is_caught_or_harmless(drop, stages, tiles, consumers):
    a, b = (numbers(*shape).astype(jnp.bfloat16) for shape in ((64 * consumers, 64 * tiles), (64 * tiles, 64)))
    try:
        _, races = run(ring_kernel(stages, tiles, consumers, drop=drop), a, b)
        caught = bool(races)
    except MgpuError:  # a deadlock, or an arrival too many
        caught = True
    mgpu.reset()
    # No slot is used twice in a ring that is long enough, so nobody has to wait until one is free.
    harmless = tiles <= stages and drop in ("wait empty", "arrive empty", "wait wgmma")
    assert caught != harmless
