"""SMEM that scopes use one after another: work in flight from an earlier scope, and writes TMA cannot see yet."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.sim.races.clocks import Agents
from mgpu.sim.races.report import Access, Place
from mgpu.sim.races.reuse import Extent, ScopeExtents, SmemReuse
from mgpu.sim.races.shadow import Shadow
from tests.support.races import I32, NUMBERS, find_races, needed, row

F32 = jnp.float32


def scoped(function, *types, shared=False):
    pl.run_scoped(function, *types, **({"collective_axes": "wg"} if shared else {}))


def store(out, smem, *, waits):
    smem[...] = jnp.full(smem.shape, 1, smem.dtype)
    mgpu.commit_smem()
    mgpu.copy_smem_to_gmem(smem, out)
    if waits:
        mgpu.wait_smem_to_gmem(0, wait_read_only=True)


@pytest.mark.parametrize("when", ["in time", "late", "never"])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_store_of_an_earlier_scope(when, threads):
    def body(out):
        warpgroup = lax.axis_index("wg") if threads > 1 else 0

        def first(smem):
            pl.when(warpgroup == 0)(lambda: store(out, smem, waits=when == "in time"))

        def second(other):
            def write():
                if when == "late":
                    mgpu.wait_smem_to_gmem(0, wait_read_only=True)
                other[...] = row(2)

            pl.when(warpgroup == 0)(write)
            pl.when(warpgroup == 0)(lambda: mgpu.wait_smem_to_gmem(0))

        for function in (first, second):
            scoped(function, mgpu.SMEM((4,), I32), shared=threads > 1)

    options = {"num_threads": 2, "thread_name": "wg"} if threads > 1 else {}
    races = find_races(body, (4,), **options)
    assert needed(races) == ("Needs wait_smem_to_gmem(n) with a smaller n in between." if when == "never" else "")
    for race in races:
        assert (race.first.buffer, race.second.buffer, race.region) == ("smem", "other", "other[0:4]")
        assert "whose SMEM it takes" in str(race)


@pytest.mark.parametrize("waits", [True, False])
def test_a_scope_that_a_loop_enters_again(waits):
    def body(out):
        def turn(number, _):
            def scope(smem):
                smem[...] = row(number)
                mgpu.commit_smem()
                mgpu.copy_smem_to_gmem(smem, out.at[number])
                if waits:
                    mgpu.wait_smem_to_gmem(0, wait_read_only=True)

            scoped(scope, mgpu.SMEM((4,), I32))

        lax.fori_loop(0, 3, turn, None)
        mgpu.wait_smem_to_gmem(0)

    races = find_races(body, (3, 4))
    assert bool(races) == (not waits)


@pytest.mark.parametrize("waits", [True, False])
def test_a_load_of_an_earlier_scope(waits):
    def body(x, out, barrier):
        def first(smem):
            mgpu.copy_gmem_to_smem(x, smem, barrier)
            if waits:
                mgpu.barrier_wait(barrier)

        def second(other):
            other[...] = row(2)
            out[...] = other[...]

        scoped(first, mgpu.SMEM((4,), I32))
        scoped(second, mgpu.SMEM((4,), I32))
        if not waits:
            mgpu.barrier_wait(barrier)

    needs = needed(find_races(body, (4,), NUMBERS[:4], scratch=[mgpu.Barrier()]))
    assert needs == ("" if waits else "Needs barrier_wait on the barrier of that load before this access.")


@pytest.mark.parametrize("waits", [True, False])
def test_a_wgmma_of_an_earlier_scope(waits):
    tiled = mgpu.SMEM((64, 64), jnp.bfloat16, transforms=(mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128)))

    def body(out, kept, acc):
        kept[...] = jnp.ones((64, 64), jnp.bfloat16)

        def first(smem):
            smem[...] = jnp.ones((64, 64), jnp.bfloat16)
            mgpu.commit_smem()
            mgpu.wgmma(acc, kept, smem)
            if waits:
                mgpu.wgmma_wait(0)

        def second(other):
            other[...] = jnp.zeros((64, 64), F32)
            mgpu.wgmma_wait(0)
            out[...] = acc[...].astype(I32) + other[...].astype(I32)

        scoped(first, tiled)
        scoped(second, mgpu.SMEM((64, 64), F32))

    needs = needed(find_races(body, (64, 64), scratch=[tiled, mgpu.ACC((64, 64))]))
    assert needs == ("" if waits else "Needs wgmma_wait(n) with a smaller n in between.")


@pytest.mark.parametrize("commits", [True, False])
def test_a_load_over_what_an_earlier_scope_wrote_needs_a_fence(commits):
    def body(x, out, barrier):
        def first(smem):
            smem[...] = row(1)
            out[...] = smem[...]

        def second(other):
            if commits:
                mgpu.commit_smem()
            mgpu.copy_gmem_to_smem(x, other, barrier)
            mgpu.barrier_wait(barrier)
            out[...] = other[...]

        scoped(first, mgpu.SMEM((4,), I32))
        scoped(second, mgpu.SMEM((4,), I32))

    needs = needed(find_races(body, (4,), NUMBERS[:4], scratch=[mgpu.Barrier()]))
    assert needs == ("" if commits else "Needs commit_smem() after the write, before this access.")


@pytest.mark.parametrize(("slot", "bytes_used", "races"), [(0, 512, True), (1, 512, False), (1, 516, True)])
def test_only_bytes_that_are_used_again_count(slot, bytes_used, races):
    """The second of two slots of 512 bytes is free as long as nobody takes more than the first."""

    def body(out):
        def first(smem):
            smem[...] = jnp.zeros((2, 128), I32)
            mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(smem.at[slot], out)

        def second(other):
            other[...] = row(2, bytes_used // 4)
            mgpu.wait_smem_to_gmem(0)

        scoped(first, mgpu.SMEM((2, 128), I32))
        scoped(second, mgpu.SMEM((bytes_used // 4,), I32))

    assert bool(find_races(body, (128,))) == races


def test_a_scope_around_keeps_its_bytes():
    def body(out):
        def outer(smem):
            smem[...] = row(1)
            mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(smem, out)
            scoped(lambda inner: inner.__setitem__(..., row(2)), mgpu.SMEM((4,), I32))
            mgpu.wait_smem_to_gmem(0)

        scoped(outer, mgpu.SMEM((4,), I32))

    assert not find_races(body, (4,))


def test_what_a_small_scope_leaves_alone_meets_a_later_one():
    def body(out):
        def first(smem):
            smem[...] = row(0, 256)
            mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(smem.at[pl.ds(128, 128)], out)

        def last(other):
            other[...] = row(2, 256)
            mgpu.wait_smem_to_gmem(0)

        scoped(first, mgpu.SMEM((256,), I32))
        scoped(lambda small: small.__setitem__(..., row(1)), mgpu.SMEM((4,), I32))
        scoped(last, mgpu.SMEM((256,), I32))

    assert find_races(body, (128,))


class Made:
    def __init__(self, array):
        self.made = array

    def get(self):
        return self.made


def plain(begin, shape):
    return Extent(begin, 4, shape, (1,) * len(shape))


@pytest.mark.parametrize(
    ("old", "new", "region", "expected"),
    [
        # 4 rows of 8 elements of 4 bytes; elements 12 to 15, seen by an array of other rows.
        (plain(0, (4, 8)), plain(0, (8, 4)), (1, slice(4, 8)), {12, 13, 14, 15}),
        (plain(0, (4, 8)), plain(32, (8, 4)), (1, slice(4, 8)), {4, 5, 6, 7}),
        (plain(0, (4, 8)), plain(0, (32,)), (slice(None), 3), {3, 11, 19, 27}),
        # Tiles of 2 x 4: a pair of rows is one row of tiles.
        (Extent(0, 64, (2,), (2, 8)), plain(0, (32,)), (2, 5), set(range(16, 32))),
        (plain(0, (32,)), Extent(0, 64, (2,), (2, 8)), (17,), set(range(16, 32))),
    ],
)
def test_where_bytes_of_one_buffer_lie_in_another(old, new, region, expected):
    def shape(extent):
        rows = (*extent.rows, *(1,) * (len(extent.row_sides) - len(extent.rows)))
        return tuple(n * side for n, side in zip(rows, extent.row_sides, strict=True))

    before, after = (np.zeros(shape(extent), np.float32) for extent in (old, new))
    shadows = {id(array): Shadow(array) for array in (before, after)}
    reader = Agents().asynchronous()
    read = Access(
        reader, 1, Place("TMA store", "", "", 0, view=lambda array: array[(*np.index_exp[region], ...)]), 0, 0
    )
    for state in shadows[id(before)].own(read.place, before, ()):
        state.reads = {reader: read}
    reuse, shadow_of = SmemReuse(), lambda array: shadows[id(array)]
    reuse.enter(ScopeExtents((0, 1), (old,)), (Made(before),), {}, shadow_of)
    reuse.enter(ScopeExtents((0, 2), (new,)), (Made(after),), {}, shadow_of)
    found = {
        element
        for element in range(after.size)
        for state in shadows[id(after)].own(
            Place("read", "", "", 0, view=lambda array, n: array.reshape(-1)[n : n + 1]), after, (element,)
        )
        if state.reads
    }
    assert found == expected
