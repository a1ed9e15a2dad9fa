"""Random multicast rings over a cluster: legal ones are right and quiet, and each mutant is caught or harmless."""

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

SIDE = 16
DROPS = ("wait full", "wait empty", "arrive empty", "own slots only", "wait at the end")


def ring(stages, tiles, size, *, drop="", seed=None):
    """Every CTA sums all tiles; each tile is loaded once for the cluster, a share by every CTA."""

    def body(x, out, smem, full, empty):
        rank, warpgroup = lax.axis_index("c"), lax.axis_index("wg")

        @pl.when(warpgroup == 1)
        def _():
            def load(tile, _):
                slot = lax.rem(tile, stages)
                if drop != "wait empty":
                    pl.when(tile >= stages)(lambda: mgpu.barrier_wait(empty.at[slot]))
                mgpu.copy_gmem_to_smem(x.at[tile], smem.at[slot], full.at[slot], collective_axes="c")

            lax.fori_loop(0, tiles, load, None)
            if drop != "wait at the end":  # a CTA stays until its peers have told it that they are done
                first = max(0, tiles - stages)
                lax.fori_loop(first, tiles, lambda tile, _: mgpu.barrier_wait(empty.at[lax.rem(tile, stages)]), None)

        @pl.when(warpgroup == 0)
        def _():
            def add(tile, total):
                slot = lax.rem(tile, stages)
                if drop != "wait full":
                    mgpu.barrier_wait(full.at[slot])
                total += smem[slot]
                if drop != "arrive empty":
                    mgpu.barrier_arrive(empty.at[slot])
                return total

            out[rank] = lax.fori_loop(0, tiles, add, jnp.zeros((SIDE, SIDE), jnp.float32))

    empty = mgpu.Barrier(num_barriers=stages)
    if drop != "own slots only":
        empty = mgpu.ClusterBarrier(collective_axes=("c",), num_barriers=stages)
    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((size, SIDE, SIDE), jnp.float32),
        scratch_types=[mgpu.SMEM((stages, SIDE, SIDE), jnp.float32), mgpu.Barrier(num_barriers=stages), empty],
        cluster=(size,),
        cluster_names=("c",),
        num_threads=2,
        thread_name="wg",
        interpret=mgpu.InterpretGPUParams(seed=seed, detect_races=True),
    )


def run(kernel, x):
    mgpu.reset()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RaceWarning)
        out = np.asarray(kernel(x))
    races = mgpu.get_races()
    mgpu.reset()
    return out, races


def numbers(tiles):
    return (np.arange(tiles * SIDE * SIDE, dtype=np.float32) % 61).reshape(tiles, SIDE, SIDE)


RINGS = {"stages": st.integers(1, 3), "tiles": st.integers(1, 6), "size": st.sampled_from([2, 4])}


@given(seed=st.one_of(st.none(), st.integers(0, 2**32)), **RINGS)
@settings(max_examples=6, deadline=None)
def test_legal_rings_are_right_under_every_seed_and_have_no_race(stages, tiles, size, seed):
    x = numbers(tiles)
    out, races = run(ring(stages, tiles, size, seed=seed), x)
    assert not races
    np.testing.assert_array_equal(out, np.broadcast_to(x.sum(0), out.shape))


@pytest.mark.parametrize("drop", DROPS)
@given(**RINGS)
@settings(max_examples=8, deadline=None)
def test_every_mutant_is_caught_or_harmless(drop, stages, tiles, size):
    try:
        _, races = run(ring(stages, tiles, size, drop=drop), numbers(tiles))
        caught = bool(races)
    except MgpuError:  # a deadlock, or an arrival too many
        caught = True
    # Without a slot that is used twice, nobody has to know that it is free before the end.
    assert caught != (tiles <= stages and drop in ("wait empty", "own slots only"))
