"""Copies: what a wait covers, what a fence makes visible, what is in flight at the end, in SMEM and in GMEM."""

import itertools

import jax
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from tests.support.races import I32, NUMBERS, find_races, needed, row

TILE = mgpu.SMEM((4,), I32)
PAIR = {"num_threads": 2, "thread_name": "wg"}


def by_warpgroup(*roles):
    for number, role in enumerate(roles):
        pl.when(lax.axis_index("wg") == number)(role)


def by_warp(*roles):
    @mgpu.warp_map
    def _(warp):
        for number, role in enumerate(roles):
            pl.when(warp == number)(role)


ROLES = [(by_warpgroup, PAIR), (by_warp, {})]
"""Two agents: warpgroups, or warps of one, which have scalars only."""


@pytest.mark.parametrize(("read_only", "where"), list(itertools.product([True, False], ["smem", "out"])))
def test_a_wait_for_reading_frees_smem_and_not_gmem(read_only, where):
    def body(out, smem):
        smem[...] = row(1, 8)
        mgpu.commit_smem()
        for part in (pl.ds(0, 4), pl.ds(4, 4)):
            mgpu.copy_smem_to_gmem(smem.at[part], out.at[part])
        mgpu.wait_smem_to_gmem(1, wait_read_only=read_only)
        (smem if where == "smem" else out)[pl.ds(0, 4)] = row(2)
        mgpu.wait_smem_to_gmem(0, wait_read_only=True)

    needs = needed(find_races(body, (8,), scratch=[mgpu.SMEM((8,), I32)]))
    assert needs.startswith("Needs wait_smem_to_gmem(n)" if read_only and where == "out" else "")
    assert ("without wait_read_only" in needs) == (read_only and where == "out")


@pytest.mark.parametrize("waited", [0, 1, 2])
def test_a_wait_covers_the_oldest_stores(waited):
    def body(out, total, smem):
        smem[...] = row(1, 12)
        mgpu.commit_smem()
        for start in (0, 4, 8):
            mgpu.copy_smem_to_gmem(smem.at[pl.ds(start, 4)], out.at[pl.ds(start, 4)])
        mgpu.wait_smem_to_gmem(waited)
        total[...] = out[pl.ds(4, 4)]
        mgpu.wait_smem_to_gmem(0)

    out = (jax.ShapeDtypeStruct((12,), I32), jax.ShapeDtypeStruct((4,), I32))
    assert bool(find_races(body, out, scratch=[mgpu.SMEM((12,), I32)])) == (waited == 2)


def test_two_stores_to_one_place_race_with_each_other():
    def body(out, smem):
        smem[...] = row(1)
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(smem, out)
        mgpu.copy_smem_to_gmem(smem, out)
        mgpu.wait_smem_to_gmem(0)

    (race,) = find_races(body, (4,), scratch=[TILE])
    assert (race.first.space, race.first.what, race.region) == ("GMEM", "TMA store", "out[0:4]")


@pytest.mark.parametrize(("roles", "options"), ROLES)
@pytest.mark.parametrize(("by_writer", "by_receiver"), [(False, False), (True, False), (False, True)])
def test_writer_or_receiver_may_fence(roles, options, by_writer, by_receiver):
    def body(x, out, smem, handed, full):
        def write():
            smem[0] = 1
            if by_writer:
                mgpu.commit_smem()
            mgpu.barrier_arrive(handed)

        def overwrite():
            mgpu.barrier_wait(handed)
            if by_receiver:
                mgpu.commit_smem()
            mgpu.copy_gmem_to_smem(x, smem, full)
            mgpu.barrier_wait(full)
            out[0] = smem[0]

        roles(write, overwrite)

    scratch = [TILE, mgpu.Barrier(), mgpu.Barrier()]
    needs = needed(find_races(body, (4,), NUMBERS[:4], scratch=scratch, **options))
    fenced = by_writer or by_receiver
    assert needs == ("" if fenced else "Needs commit_smem() after the write and before the arrival that hands it over.")


@pytest.mark.parametrize(("roles", "options"), ROLES)
@pytest.mark.parametrize("is_own", [True, False])
def test_a_wait_for_stores_is_that_of_their_issuer(roles, options, is_own):
    def body(out, smem, started, done):
        def store():
            smem[0] = 1
            mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(smem, out)
            if is_own:
                mgpu.wait_smem_to_gmem(0)
            mgpu.barrier_arrive(started)
            mgpu.barrier_wait(done)
            mgpu.wait_smem_to_gmem(0)

        def overwrite():
            mgpu.barrier_wait(started)
            mgpu.wait_smem_to_gmem(0)
            out[0] = 2
            mgpu.barrier_arrive(done)

        roles(store, overwrite)

    races = find_races(body, (4,), scratch=[TILE, mgpu.Barrier(), mgpu.Barrier()], **options)
    assert bool(races) == (not is_own)


@pytest.mark.parametrize(("roles", "options"), ROLES)
@pytest.mark.parametrize("hands_over", [True, False])
def test_hand_over_of_smem(roles, options, hands_over):
    def body(out, smem, full):
        def write():
            smem[0] = 1
            mgpu.barrier_arrive(full)

        def read():
            if hands_over:
                mgpu.barrier_wait(full)
            out[0] = smem[0]

        roles(write, read)

    races = find_races(body, (4,), scratch=[TILE, mgpu.Barrier()], **options)
    assert bool(races) == (not hands_over)
    if races and not options:
        assert races[0].first.who == "warp 1 of warpgroup 0" or races[0].second.who == "warp 1 of warpgroup 0"


def test_a_warpgroup_meets_its_warps_before_and_after_a_region():
    def body(out, smem):
        smem[...] = row(1)

        @mgpu.warp_map
        def _(warp):
            smem[warp] = smem[warp] + warp

        out[...] = smem[...]

    assert not find_races(body, (4,), scratch=[TILE])


@pytest.mark.parametrize("waits", [True, False])
def test_a_load_reads_gmem_until_it_has_been_waited_for(waits):
    def body(x, smem_out, smem, full):
        mgpu.copy_gmem_to_smem(x, smem, full)
        if waits:
            mgpu.barrier_wait(full)
        x[...] = row(7)
        if not waits:
            mgpu.barrier_wait(full)
        smem_out[...] = smem[...]

    races = find_races(body, (4,), NUMBERS[:4], scratch=[TILE, mgpu.Barrier()])
    assert bool(races) == (not waits)


def test_tma_does_not_see_plain_writes_of_gmem():
    def body(out, smem, full):
        out[...] = row(7)
        mgpu.commit_smem()
        mgpu.copy_gmem_to_smem(out, smem, full)
        mgpu.barrier_wait(full)

    needs = needed(find_races(body, (4,), scratch=[TILE, mgpu.Barrier()]))
    assert needs.startswith("Needs copy_smem_to_gmem instead of the write")


@pytest.mark.parametrize("kind", ["load", "store", "none"])
def test_copies_in_flight_at_the_end(kind):
    def body(x, out, smem, other, full):
        mgpu.copy_gmem_to_smem(x, other, full)
        if kind != "load":
            mgpu.barrier_wait(full)
        smem[...] = row(1)
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(smem, out)
        if kind != "store":
            mgpu.wait_smem_to_gmem(0, wait_read_only=True)

    races = find_races(body, (4,), NUMBERS[:4], scratch=[TILE, TILE, mgpu.Barrier()])
    expected = {
        "load": "Needs barrier_wait on the barrier of that load before the end.",
        "store": "Needs wait_smem_to_gmem(0, wait_read_only=True) before the end.",
        "none": "",
    }
    assert needed(races) == expected[kind]
    for race in races:
        assert "the CTA exits at test_copies.py" in str(race)


def test_single_elements_are_told_apart():
    def body(out, smem):
        warpgroup = lax.axis_index("wg")
        for element in range(300):
            pl.when(warpgroup == element % 2)(lambda element=element: smem.__setitem__((0, element), element))
        out[...] = row(0)

    scratch = [mgpu.SMEM((1, 300), I32)]
    assert {r.first.space for r in find_races(body, (4,), scratch=scratch, **PAIR)} == {"GMEM"}


def test_rows_that_an_index_array_names():
    def body(x, rows, out, smem):
        smem[...] = x[rows[...]]
        x[pl.ds(8, 4)] = row(0).reshape(4, 1)
        pl.when(lax.axis_index("cta") == 1)(lambda: out.__setitem__(..., smem[...]))

    def races(*rows):
        x = NUMBERS.reshape(16, 1)
        options = {"scratch": [mgpu.SMEM((4, 1), I32)], "grid": (2,), "grid_names": ("cta",)}
        found = find_races(body, (4, 1), x, NUMBERS[list(rows)], **options)
        return {(race.first.what, race.second.what) for race in found}

    assert races(0, 3, 7, 12) == {("write", "write")}
    assert ("write", "read") in races(0, 3, 9, 12) or ("read", "write") in races(0, 3, 9, 12)
