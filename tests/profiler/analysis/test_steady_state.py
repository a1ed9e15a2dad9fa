"""Iterations of main loops, their interval and what bounds it."""

from __future__ import annotations

import pytest

from mgpu.sites import SiteKind
from profiler.analysis.steady_state import steady_state
from profiler.build import build_trace
from support.captures import ring_capture
from support.traces import TraceBuilder


def one_loop(begins: list[int], *, end: int, known_until: int | None = None) -> TraceBuilder:
    """A compute track that waits 30 cycles for data at each begin, then 40 for its MMA."""
    trace = TraceBuilder()
    memory, compute = trace.track("memory", 0, end), trace.track("compute", 0, end, known_until=known_until)
    for i, begin in enumerate(begins):
        trace.load(memory, begin, begin + 26, "full", i % 2)
        trace.span(compute, SiteKind.BARRIER_WAIT, begin, begin + 30, "full", i % 2)
        trace.span(compute, SiteKind.MMA_WAIT, begin + 40, begin + 80)
    return trace


def test_interval_prologue_epilogue_and_outliers() -> None:
    report = steady_state(one_loop([50, 150, 250, 350, 550], end=700).build())
    row = report.tracks.row(0, named=True)
    assert (row["iterations"], row["interval_cycles"], row["outliers"]) == (5, 100.0, 1)
    assert (row["prologue_cycles"], row["loop_cycles"], row["epilogue_cycles"]) == (50, 580, 70)
    assert report.iterations.filter(report.iterations["is_outlier"]).select("begin", "dur").rows() == [(350, 200)]


def test_parts_of_an_iteration_sum_to_its_mean() -> None:
    row = steady_state(one_loop([0, 100, 200], end=300).build()).tracks.row(0, named=True)
    parts = [row[f"{name}_cycles"] for name in ("data_wait", "mma_wait", "other")]
    assert parts == [30.0, 40.0, 30.0]
    assert row["bound_by"] == "tensor core"


def test_ring_that_is_bound_by_its_tensor_core() -> None:
    """Two consumers of 400-cycle MMAs keep the tensor core busy: an iteration takes 800 cycles."""
    report = steady_state(build_trace(ring_capture(stages=4, iterations=12, mma_cycles=400, tma_cycles=150)))
    assert report.interval_cycles == pytest.approx(800, abs=30)
    assert report.bound_by == "tensor core"


def test_epilogue_of_a_track_that_outlives_the_window_is_unknown() -> None:
    row = steady_state(one_loop([50, 150, 250], end=700, known_until=330).build()).tracks.row(0, named=True)
    assert (row["iterations"], row["epilogue_cycles"]) == (3, None)


def test_track_with_one_wait_has_no_steady_state() -> None:
    report = steady_state(one_loop([50], end=200).build())
    assert report.tracks.is_empty()
    assert (report.interval_cycles, report.bound_by) == (0.0, "")
