"""Which CTAs are watched in full."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu import InterpretGPUParams
from mgpu.launch import race_log
from mgpu.sim.races.watching import sampled_clusters


@pytest.mark.parametrize(
    ("clusters", "size", "expected"),
    [
        (1, 1, {0}),
        (2, 1, {0, 1}),
        (3, 1, {0, 1, 2}),
        (4, 1, {0, 1, 2, 3}),
        (132, 1, {0, 1, 66, 131}),
        (66, 2, {0, 1}),
        (1, 2, {0}),
        (33, 4, {0}),
        (16, 8, {0}),
    ],
)
def test_sampled_clusters(clusters, size, expected):
    assert sampled_clusters(clusters, size) == expected


@pytest.mark.filterwarnings("ignore::mgpu.errors.RaceWarning")
@pytest.mark.parametrize(("wrong", "found"), [(0, True), (1, True), (5, False), (10, True), (19, True)])
@pytest.mark.parametrize("watch_all", [None, True])
def test_a_fault_of_one_cta_shows_in_those_that_are_watched(wrong, found, watch_all):
    """One CTA of 20 stores SMEM without a commit, so the copy may read old bytes."""

    def body(out, smem):
        cta = lax.axis_index("cta")
        smem[...] = jnp.full((128,), 1.0)

        @pl.when(cta != wrong)
        def _():
            mgpu.commit_smem()

        mgpu.copy_smem_to_gmem(smem, out.at[cta])
        mgpu.wait_smem_to_gmem(0)

    race_log.reset()
    mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((20, 128), jnp.float32),
        scratch_types=[mgpu.SMEM((128,), jnp.float32)],
        grid=(20,),
        grid_names=("cta",),
        interpret=InterpretGPUParams(detect_races=watch_all),
    )().block_until_ready()
    assert [race.cta for race in mgpu.get_races()] == ([wrong] if found or watch_all else [])
