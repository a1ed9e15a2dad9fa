"""Random kernels of many kinds are right and quiet under every seed; with a mistake, none is wrong quietly."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.pipelines import run_checked
from support.random_kernels import BUILDERS, Sync

SEEDS = st.one_of(st.none(), st.integers(0, 2**32))


def is_right(out, drawn):
    return out is not None and np.array_equal(out, drawn.expected)


@pytest.mark.parametrize("kind", BUILDERS)
@given(draw=st.randoms(use_true_random=False), seed=SEEDS)
@settings(max_examples=6, deadline=None)
def test_legal_kernels_are_right_and_quiet(kind, draw, seed):
    drawn = BUILDERS[kind](draw, Sync())
    out, found = run_checked(drawn.kernel(seed=seed), *drawn.operands)
    assert found == ""
    assert is_right(out, drawn)


@pytest.mark.parametrize("kind", [kind for kind in BUILDERS if kind != "pipeline"])
@given(sizes=st.integers(0, 2**32), missing=st.integers(0, 7), seed=SEEDS)
@settings(max_examples=8, deadline=None)
def test_a_missing_synchronisation_is_caught_or_harmless(kind, sizes, missing, seed):
    sync = Sync(missing)
    drawn = BUILDERS[kind](random.Random(sizes), sync)
    out, found = run_checked(drawn.kernel(seed=seed), *drawn.operands)
    assert found or is_right(out, drawn), sync.calls


def test_without_the_detector_values_are_wrong_quietly():
    """So the test above can fail."""
    drawn = BUILDERS["through_gmem"](random.Random(0), sync := Sync(2))
    out, found = run_checked(drawn.kernel(detect_races=False), *drawn.operands)
    assert sync.calls[2] == "barrier_wait"
    assert found == ""
    assert not is_right(out, drawn)
