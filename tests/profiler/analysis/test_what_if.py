"""Replays against pipelines that were really built that way: the ring's timeline follows from arithmetic alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profiler.analysis.event_graph import EventGraph
from profiler.analysis.graph_edges import build_graph
from profiler.analysis.what_if import WhatIfReport, predict_changes
from profiler.build import build_trace
from profiler.trace import Trace
from support.captures import ring_capture


def ring(**shape: Any) -> Trace:
    """A ring on a device whose peak rates are not known: its loads land closer together than an engine's could."""
    capture = ring_capture(**{"num_ctas": 1, "iterations": 9, **shape})
    return build_trace(dataclasses.replace(capture, header=dataclasses.replace(capture.header, peaks={})))


def predicted(report: WhatIfReport, scenario: str) -> int:
    rows = report.scenarios.filter(report.scenarios["scenario"].str.starts_with(scenario))
    return int(rows["predicted_cycles"][0]) if rows.height else report.cycles


shapes = st.fixed_dictionaries(
    {
        "num_ctas": st.integers(1, 4),
        "num_sms": st.integers(1, 2),
        "stages": st.integers(1, 4),
        "iterations": st.integers(1, 8),
        "tma_cycles": st.integers(30, 900),
        "mma_cycles": st.integers(30, 400),
        "issue_cycles": st.integers(1, 29),
        "wake_cycles": st.integers(0, 9),
    }
)


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_replaying_a_launch_unchanged_gives_the_launch(shape) -> None:
    graph = build_graph(build_trace(ring_capture(**shape))).graph
    np.testing.assert_array_equal(graph.solve(), graph.time)
    assert (graph.spare >= 0).all()


@pytest.mark.parametrize("activity", [True, False])
def test_a_measured_launch_replays_to_itself_too(activity) -> None:
    offsets = () if activity else (0, 700)
    trace = build_trace(ring_capture(num_ctas=4, num_sms=2, activity=activity, sm_clock_offsets=offsets))
    graph = build_graph(trace).graph
    np.testing.assert_array_equal(graph.solve(), graph.time)
    assert graph.time[EventGraph.SINK] == trace.end


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
@pytest.mark.parametrize("mma_cycles", [40, 100, 300])
def test_one_more_stage_is_the_ring_with_one_more_stage(stages, mma_cycles) -> None:
    report = predict_changes(ring(stages=stages, mma_cycles=mma_cycles))
    assert predicted(report, "one more stage") == ring(stages=stages + 1, mma_cycles=mma_cycles).end


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_faster_loads_are_the_ring_with_faster_loads(stages) -> None:
    report = predict_changes(ring(stages=stages, tma_cycles=500))
    assert predicted(report, "TMA loads take half") == ring(stages=stages, tma_cycles=250).end


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_faster_mmas_are_the_ring_with_faster_mmas(stages) -> None:
    report = predict_changes(ring(stages=stages, mma_cycles=110))
    assert predicted(report, "MMAs take 10% less") == ring(stages=stages, mma_cycles=100).end


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_no_hop_is_at_least_the_ring_whose_waits_wake_at_once(stages) -> None:
    """The ring's wake-up also ends the waits for MMAs, which are no barriers: the replay keeps those."""
    report = predict_changes(ring(stages=stages, wake_cycles=4))
    at_once = predicted(report, "barrier hops at once")
    assert ring(stages=stages, wake_cycles=0).end <= at_once < report.cycles


def test_what_cannot_gain_does_not() -> None:
    report = predict_changes(ring(stages=6, tma_cycles=100, mma_cycles=400))
    assert report.gain("one more stage") == 0
    assert report.gain("no such scenario") == 0
    assert (report.scenarios["gain_cycles"] >= 0).all()


def test_scenarios_are_ranked_and_marked() -> None:
    report = predict_changes(ring())
    gains = report.scenarios["gain_cycles"].to_list()
    assert gains == sorted(gains, reverse=True)
    assert set(report.scenarios["provenance"]) == {"estimate"}
    bounds = dict(report.scenarios.select("scenario", "is_bound").iter_rows())
    assert bounds["MMAs at once"]
    assert not bounds["MMAs take 10% less time"]


def test_next_launch_begins_when_ctas_start_at_once() -> None:
    """Two CTAs on one SM run one after the other; their start costs nothing in the ring, so nothing is gained."""
    report = predict_changes(build_trace(ring_capture(num_ctas=2, num_sms=1)))
    assert report.gain("CTAs start at once") == 0
