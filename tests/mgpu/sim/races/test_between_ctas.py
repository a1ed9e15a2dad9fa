"""Races between CTAs: in GMEM, through semaphores and atomics, and in the shared memory of a cluster."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from tests.support.races import I32, NUMBERS, find_races, needed, row

GRID = {"grid": (8,), "grid_names": ("cta",)}
CLUSTER = {"cluster": (2,), "cluster_names": ("c",)}
TILE = mgpu.SMEM((4,), I32)


def store_tile(out, smem, part):
    smem[...] = row(1)
    mgpu.commit_smem()
    mgpu.copy_smem_to_gmem(smem, out.at[part])
    mgpu.wait_smem_to_gmem(0, wait_read_only=True)


@pytest.mark.parametrize("everywhere", [None, True])
@pytest.mark.parametrize("by_tma", [True, False])
@pytest.mark.parametrize("overlap", [0, 1, 4])
def test_outputs_of_two_late_ctas_overlap(overlap, by_tma, everywhere):
    def body(out, smem):
        cta = lax.axis_index("cta")
        part = pl.ds(4 * cta - jnp.where(cta == 7, overlap, 0), 4)
        if by_tma:
            store_tile(out, smem, part)
        else:
            out[part] = row(1)

    races = find_races(body, (32,), everywhere=everywhere, scratch=[TILE], **GRID)
    assert bool(races) == (overlap > 0)
    for race in races:
        assert {race.cta, race.first_cta} == {6, 7}
        assert race.first.buffer == race.second.buffer == "out"
        assert race.needs.startswith("Needs a part of out for each CTA, or ")
        assert f"CTA {race.first_cta}. Needs" in str(race)


@pytest.mark.parametrize("everywhere", [None, True])
def test_atomics_and_reductions_do_not_race_with_each_other(everywhere):
    def body(sums, more, smem):
        mgpu.atomic_add(sums, row(1))
        smem[...] = row(1)
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(smem, more, reduction_op="add")
        mgpu.wait_smem_to_gmem(0)

    out = (jax.ShapeDtypeStruct((4,), I32),) * 2
    assert not find_races(body, out, everywhere=everywhere, scratch=[TILE], **GRID)


@pytest.mark.parametrize("everywhere", [None, True])
def test_atomics_race_with_plain_reads(everywhere):
    def body(counts, out):
        mgpu.atomic_add(counts, row(1))
        out[lax.axis_index("cta")] = counts[0]

    races = find_races(body, (8,), NUMBERS[:4], everywhere=everywhere, **GRID)
    assert {race.first.what for race in races} | {race.second.what for race in races} == {"atomic", "read"}


@pytest.mark.parametrize("everywhere", [None, True])
@pytest.mark.parametrize("signals", [True, False])
@pytest.mark.parametrize("waits_for_store", [True, False])
def test_semaphores_order_ctas(signals, waits_for_store, everywhere):
    def body(out, total, smem):
        cta, ready = lax.axis_index("cta"), pl.get_global(mgpu.SemaphoreType.REGULAR)

        @pl.when(cta == 6)
        def _():
            smem[...] = row(1)
            mgpu.commit_smem()
            mgpu.copy_smem_to_gmem(smem, out)
            mgpu.wait_smem_to_gmem(0, wait_read_only=not waits_for_store)
            mgpu.semaphore_signal(ready)

        @pl.when(cta == 7)
        def _():
            if signals:
                mgpu.semaphore_wait(ready)
            total[...] = out[...]

    out = (jax.ShapeDtypeStruct((4,), I32),) * 2
    races = find_races(body, out, everywhere=everywhere, scratch=[TILE], **GRID)
    # Without a full watch, a store counts as done when it has been started.
    assert bool(races) == (not signals or (everywhere is True and not waits_for_store))


@pytest.mark.parametrize("synchronised", [True, False])
@pytest.mark.parametrize("memory", ["smem", "gmem"])
def test_ctas_of_a_cluster_need_its_barrier(memory, synchronised):
    def body(exchanged, out, smem, together, end):
        me = lax.axis_index("c")
        if memory == "gmem":
            exchanged[me] = row(me)
        else:
            smem[...] = row(me)
        mgpu.barrier_arrive(together)
        if synchronised:
            mgpu.barrier_wait(together)
        out[me] = exchanged[1 - me] if memory == "gmem" else mgpu.cluster_ref(smem, {"c": 1 - me})[...]
        mgpu.barrier_arrive(end)
        mgpu.barrier_wait(end)

    barrier = mgpu.ClusterBarrier(collective_axes=("c",))
    scratch = [TILE, barrier, barrier]
    races = find_races(body, (2, 4), NUMBERS[:8].reshape(2, 4), scratch=scratch, **CLUSTER)
    assert bool(races) == (not synchronised)
    for race in races:
        assert race.cta != race.first_cta
        assert race.needs == (
            f"Needs barrier_arrive on a ClusterBarrier by CTA {race.first_cta} and barrier_wait by CTA {race.cta} "
            "in between."
        )


@pytest.mark.parametrize(("waits", "late"), [(True, False), (False, False), (False, True)])
def test_smem_of_a_peer_must_outlive_its_accesses(waits, late):
    def body(out, smem, begin, end):
        me = lax.axis_index("c")
        smem[...] = row(me)
        mgpu.barrier_arrive(begin)
        mgpu.barrier_wait(begin)

        @pl.when(me == (1 if late else 0))
        def _():
            for _ in range(100):  # takes a while
                mgpu.commit_smem()

        pl.when(me == 1)(lambda: out.__setitem__(..., mgpu.cluster_ref(smem, {"c": 0})[...]))
        if waits:
            mgpu.barrier_arrive(end)
            mgpu.barrier_wait(end)

    barrier = mgpu.ClusterBarrier(collective_axes=("c",))
    races = find_races(body, (4,), scratch=[TILE, barrier, barrier], **CLUSTER)
    farewell = "Needs barrier_arrive on a ClusterBarrier by CTA 1 after this access"
    assert needed(races).startswith("" if waits else farewell)
    assert bool(races) == (not waits)
    for race in races:
        assert race.region == "smem[0:4]"
        assert ("whose SMEM it is, has exited" if late else "and does not wait for read of smem") in str(race)


def test_smem_that_a_peer_is_the_first_to_access():
    def body(out, smem):
        @pl.when(lax.axis_index("c") == 1)
        def _():
            for _ in range(100):  # takes a while
                mgpu.commit_smem()
            out[...] = mgpu.cluster_ref(smem, {"c": 0})[...]

    (race,) = find_races(body, (4,), scratch=[TILE], **CLUSTER)
    assert "read of smem by warpgroup 0" in str(race)
    assert "after CTA 0, whose SMEM it is, has exited" in str(race)


@pytest.mark.parametrize("by_reference", [True, False])
@pytest.mark.parametrize(("waits", "late"), [(True, False), (True, True), (False, False), (False, True)])
def test_a_barrier_must_outlive_the_arrivals_of_peers(waits, late, by_reference):
    def body(out, end):
        me = lax.axis_index("c")

        @pl.when(me == (1 if late else 0))
        def _():
            for _ in range(100):  # takes a while
                mgpu.commit_smem()

        if by_reference:
            pl.when(me == 1)(lambda: mgpu.barrier_arrive(mgpu.cluster_ref(end, {"c": 0})))
        else:
            mgpu.barrier_arrive(end)
        if waits:
            pl.when((me == 0) | (not by_reference))(lambda: mgpu.barrier_wait(end))
        out[me] = row(me)

    end = mgpu.Barrier() if by_reference else mgpu.ClusterBarrier(collective_axes=("c",))
    races = [str(race) for race in find_races(body, (2, 4), scratch=[end], **CLUSTER)]
    assert bool(races) == (not waits)
    if waits:
        return
    says = "remote arrival on end by warpgroup 0 at test_between_ctas.py:"
    (race,) = [race for race in races if "Needs barrier_wait on end by CTA 0 for that phase before its end" in race]
    assert says in race
    assert "end[0]" in race
    assert ("after CTA 0, whose SMEM it is, has exited" in race) == late
    assert ("the CTA exits at test_between_ctas.py:" in race and f"does not wait for {says}" in race) == (not late)
    assert "CTA 1" in race


def test_a_fault_of_all_clusters_is_one_report():
    def body(out, end):
        mgpu.barrier_arrive(end)
        out[lax.axis_index("g"), lax.axis_index("c")] = row(1)

    scratch = [mgpu.ClusterBarrier(collective_axes=("c",))]
    options = {"grid": (6,), "grid_names": ("g",), **CLUSTER}
    assert [race.count for race in find_races(body, (6, 2, 4), scratch=scratch, **options)] == [12]


def test_a_cluster_barrier_orders_the_ctas_along_each_axis_only():
    def body(exchanged, out, together):
        row_, column = lax.axis_index("r"), lax.axis_index("c")
        exchanged[row_, column] = row(1)
        mgpu.barrier_arrive(together)
        mgpu.barrier_wait(together)
        out[row_, column] = exchanged[1 - row_, 1 - column]

    scratch = [mgpu.ClusterBarrier(collective_axes=("r", "c"))]
    operand = NUMBERS.reshape(2, 2, 4)
    cluster = {"cluster": (2, 2), "cluster_names": ("r", "c")}
    assert find_races(body, (2, 2, 4), operand, scratch=scratch, **cluster)
    # One entry of both axes joins all four.
    assert not find_races(
        body, (2, 2, 4), operand, scratch=[mgpu.ClusterBarrier(collective_axes=(("r", "c"),))], **cluster
    )


@pytest.mark.parametrize("asks_peer", [True, False])
def test_a_multicast_slot_is_free_when_all_ctas_have_read_it(asks_peer):
    def body(x, out, smem, full, empty):
        me = lax.axis_index("c")
        for step in range(2):
            mgpu.copy_gmem_to_smem(x.at[step], smem, full, collective_axes="c")
            mgpu.barrier_wait(full)
            out[step, me] = smem[...]
            mgpu.barrier_arrive(empty)
            if asks_peer:
                mgpu.barrier_wait(empty)

    scratch = [mgpu.SMEM((8,), I32), mgpu.Barrier(), mgpu.ClusterBarrier(collective_axes=("c",))]
    races = find_races(body, (2, 2, 8), NUMBERS.reshape(2, 8), scratch=scratch, **CLUSTER)
    assert bool(races) == (not asks_peer)


@pytest.mark.parametrize("waits", [True, False])
def test_a_remote_store_is_known_to_those_who_wait_for_its_barrier(waits):
    def body(out, smem, landed, together):
        me = lax.axis_index("c")
        mgpu.barrier_arrive(together)
        mgpu.barrier_wait(together)
        value = mgpu.layout_cast(jnp.full((64, 64), me, I32), mgpu.Layout.WGMMA)
        mgpu.async_store_smem(value, smem, landed, cluster_idx=1 - me, cluster_dim="c")
        if waits:
            mgpu.barrier_wait(landed)
        out[me] = smem[...]
        if not waits:
            mgpu.barrier_wait(landed)

    tiled = mgpu.SMEM((64, 64), I32, transforms=(mgpu.TilingTransform((8, 32)), mgpu.SwizzleTransform(128)))
    scratch = [tiled, mgpu.Barrier(), mgpu.ClusterBarrier(collective_axes=("c",))]
    assert bool(find_races(body, (2, 64, 64), scratch=scratch, **CLUSTER)) == (not waits)


def test_clusters_that_nobody_watches_in_full_may_order_their_ctas_as_they_like():
    """Nothing of their barriers is followed, so what they do to each other is not judged."""

    def body(exchanged, out, together):
        me, cluster = lax.axis_index("c"), lax.axis_index("g")
        exchanged[cluster, me] = row(me)
        mgpu.barrier_arrive(together)
        mgpu.barrier_wait(together)
        out[cluster, me] = exchanged[cluster, 1 - me]

    scratch = [mgpu.ClusterBarrier(collective_axes=("c",))]
    operand = np.zeros((6, 2, 4), np.int32)
    options = {"grid": (6,), "grid_names": ("g",), **CLUSTER}
    assert not find_races(body, (6, 2, 4), operand, everywhere=None, scratch=scratch, **options)


def test_an_input_that_the_kernel_writes_is_its_own_copy():
    def body(x, out):
        x[...] = x[...] + 1
        out[...] = x[...]

    x = jnp.asarray(NUMBERS[:4])
    result = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), I32))(x)
    np.testing.assert_array_equal(result, NUMBERS[:4] + 1)
    np.testing.assert_array_equal(x, NUMBERS[:4])


def test_what_is_needed_between_clusters_names_the_way_out():
    def body(out):
        out[...] = row(1)

    needs = needed(find_races(body, (4,), grid=(2,), grid_names=("cta",)))
    assert needs.endswith(
        "semaphore_signal by CTA 0 and semaphore_wait by CTA 1 in between, on a semaphore of pl.get_global, for a "
        "value that takes that signal, or atomics."
    )
