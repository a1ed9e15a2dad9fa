"""Random legal pipelines are right, quiet and do not hang; with one mistake, each is caught or provably harmless.

"Provably" means: for each mistake a rule, worked out by hand, says for which pipelines it changes nothing that the
hardware promises. The checks have to agree with the rule in both directions.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import mgpu
from mgpu.sites import Category
from profiler.analysis.categories import time_by_category
from profiler.build import build_trace
from support.pipelines import Pipeline, make_kernel, operands, run_checked


def pipelines(least_stages, in_flight):
    return st.builds(
        Pipeline,
        stages=st.integers(least_stages, 4),
        tiles=st.integers(1, 4),
        turns=st.integers(1, 3),
        consumers=st.integers(1, 2),
        out_slots=st.integers(1, 2),
        in_flight=st.just(in_flight),
        cluster=st.sampled_from([1, 2]),
    )


PIPELINES = pipelines(1, 0) | pipelines(2, 1)
SEEDS = st.one_of(st.none(), st.integers(0, 2**32))


@given(pipeline=PIPELINES, seed=SEEDS)
@settings(max_examples=20, deadline=None)
def test_legal_pipelines_are_right_under_every_seed_and_quiet(pipeline, seed):
    a, b, expected = operands(pipeline)
    kernel = make_kernel(pipeline, interpret=mgpu.InterpretGPUParams(seed=seed, detect_races=True))
    out, found = run_checked(kernel, a, b)
    assert found == ""
    np.testing.assert_array_equal(out, expected)


@given(pipeline=PIPELINES, seed=SEEDS)
@settings(max_examples=3, deadline=None)
def test_every_cycle_of_a_pipeline_has_one_category(pipeline, seed):
    a, b, _ = operands(pipeline)
    kernel = make_kernel(pipeline, interpret=mgpu.InterpretGPUParams(seed=seed))
    _, (capture,) = mgpu.profile(kernel)(a, b)
    trace = build_trace(capture)
    for track in time_by_category(trace).tracks.iter_rows(named=True):
        cycles = {category: track[f"{category}_cycles"] for category in Category}
        assert min(cycles.values()) >= 0
        assert sum(cycles.values()) == trace.end
        assert cycles[Category.WAIT] > 0 or track["role"] == "memory"  # nobody holds it up unless slots are used twice


def never(_):
    return False


def unless_ring(p):
    """No slot is used twice, so nobody needs to know that it is free."""
    return not p.is_ring


def is_released_by_round(p):
    """The first slot is released with the last one of its round, and by then all others are free.

    It hangs if the last one is released when the step after it has been issued, since that needs the first slot.
    """
    rounds = range(p.stages, p.steps, p.stages)
    return p.in_flight == 0 or all(step % p.tiles == 0 for step in rounds)


MISTAKES = {
    "no wait for a full slot": never,
    "wait for the next full slot": lambda p: p.stages == 1,
    "no wait for an empty slot": unless_ring,
    "wait one load too late": unless_ring,
    "wait for the first slots too": never,
    "no release": unless_ring,
    "release the next slot": is_released_by_round,
    "release before the wait": unless_ring,
    "a load too many expected": never,
    "a load too few expected": never,
    "a release too many expected": unless_ring,
    "no commit": never,
    "commit after the store": never,
    "no wait for a stored buffer": lambda p: p.turns <= p.out_slots,
    "wait for one store too few": lambda p: p.turns <= p.out_slots,
    "no wait at the end": never,
    "store two results to one place": lambda p: p.turns < 2,
}


@pytest.mark.parametrize("mistake", MISTAKES)
@given(pipeline=PIPELINES, seed=SEEDS)
@settings(max_examples=6, deadline=None)
def test_each_mistake_is_caught_or_harmless(mistake, pipeline, seed):
    check(mistake, pipeline, seed, is_harmless=MISTAKES[mistake](pipeline))


def check(mistake, pipeline, seed, *, is_harmless):
    a, b, expected = operands(pipeline)
    kernel = make_kernel(pipeline, mistake, interpret=mgpu.InterpretGPUParams(seed=seed))
    out, found = run_checked(kernel, a, b)
    assert bool(found) != is_harmless, found or "nothing found"
    if not found:
        np.testing.assert_array_equal(out, expected)


def pipelines_with(**fields):
    drawn = {
        "stages": st.integers(1, 4),
        "tiles": st.integers(1, 4),
        "turns": st.integers(1, 3),
        "consumers": st.integers(1, 2),
        "out_slots": st.integers(1, 2),
        "in_flight": st.just(0),
        "cluster": st.sampled_from([1, 2]),
    }
    return st.builds(Pipeline, **(drawn | {name: st.just(value) for name, value in fields.items()}))


@given(pipeline=pipelines_with(consumers=2), seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_one_consumer_of_two_does_not_free_a_slot(pipeline, seed):
    check("a release too few expected", pipeline, seed, is_harmless=not pipeline.is_ring)


@given(pipeline=pipelines_with(cluster=2), seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_slot_that_peers_fill_has_to_be_released_to_them(pipeline, seed):
    check("release to one's own CTA only", pipeline, seed, is_harmless=not pipeline.is_ring)


@given(pipeline=pipelines_with(in_flight=0), seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_slot_is_read_until_its_wgmma_has_been_waited_for(pipeline, seed):
    check("no wgmma wait", pipeline, seed, is_harmless=not pipeline.is_ring)


@given(pipeline=pipelines_with(in_flight=1, stages=3), seed=SEEDS)
@settings(max_examples=6, deadline=None)
def test_an_accumulator_is_added_to_until_its_wgmmas_have_been_waited_for(pipeline, seed):
    check("read the accumulator early", pipeline, seed, is_harmless=False)


@given(pipeline=PIPELINES, seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_wait_for_a_slot_that_is_freed_later_hangs_or_costs_time_only(pipeline, seed):
    a, b, expected = operands(pipeline)
    params = mgpu.InterpretGPUParams(seed=seed)
    out, found = run_checked(make_kernel(pipeline, "wait for the next slot", interpret=params), a, b)
    assert found == "" or found.startswith("DeadlockError")
    if not found:
        np.testing.assert_array_equal(out, expected)


@given(pipeline=PIPELINES, seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_load_into_a_wrong_slot_is_caught_or_gives_wrong_values(pipeline, seed):
    a, b, expected = operands(pipeline)
    params = mgpu.InterpretGPUParams(seed=seed)
    out, found = run_checked(make_kernel(pipeline, "load into the next slot", interpret=params), a, b)
    is_right = out is not None and np.array_equal(out, expected)
    assert (found == "" and is_right) == (pipeline.stages == 1)
