"""The critical path of timelines whose longest chain is known."""

from __future__ import annotations

import polars as pl
import pytest

from mgpu.sites import SiteKind
from profiler.analysis.critical_path import QUEUEING, RECORDING, CriticalPathReport, find_critical_path
from profiler.build import build_trace
from support.captures import ring_capture
from support.traces import TraceBuilder

WAIT, ISSUE, MMA_WAIT, SCOPE = SiteKind.BARRIER_WAIT, SiteKind.MMA_ISSUE, SiteKind.MMA_WAIT, SiteKind.SCOPE


def steps(report: CriticalPathReport) -> list[tuple[int, int, str]]:
    return report.steps.select("begin", "dur", "kind").rows()


def test_ring_with_one_stage_by_hand() -> None:
    """An iteration: load 500, hop 4, issue 20, two MMAs of 100 in the pipe, 4 to see the result, 4 to the producer."""
    report = find_critical_path(build_trace(ring_capture(num_ctas=1, stages=1, iterations=2)))
    iteration = [("TMA load", 500), ("barrier hop", 4), ("mma_issue", 20), ("MMA throughput", 100), ("MMA", 100)]
    expected = [*iteration, ("completion", 4), ("barrier hop", 4), *iteration, ("completion", 4)]
    assert [(kind, dur) for _, dur, kind in steps(report)] == expected
    assert report.share("TMA load") == pytest.approx(1000 / report.end)
    assert report.share_of_site("ring.py:12") == pytest.approx(1000 / report.end)


def test_steps_follow_each_other() -> None:
    trace = build_trace(ring_capture(num_ctas=5, num_sms=2, stages=3, tma_cycles=300, mma_cycles=170))
    table = find_critical_path(trace).steps
    ends = (table["begin"] + table["dur"]).to_list()
    assert table["begin"].to_list() == [0, *ends[:-1]]
    assert ends[-1] == trace.end


def test_tensor_bound_ring_runs_along_the_pipe() -> None:
    report = find_critical_path(build_trace(ring_capture(num_ctas=1, stages=4, iterations=20, mma_cycles=400)))
    assert report.parts["kind"][0] == "MMA throughput"
    # 40 MMAs of 400 cycles one after the other; the last one is counted by its result.
    assert report.parts["cycles"][0] == 39 * 400


def slow_producer() -> TraceBuilder:
    """The producer works for 400 cycles before its load of 200; another warpgroup works 100 and has 520 to spare."""
    trace = TraceBuilder(record_cycles=0)
    compute, memory = trace.track("compute", 0, 620), trace.track("memory", 0, 420)
    other = trace.track("other", 0, 100)
    trace.cta(0, 0, 620)
    trace.span(memory, SCOPE, 0, 400, line=10)
    trace.span(memory, SiteKind.TMA_LOAD, 400, 420, "full", 0, line=11)
    trace.load(memory, 400, 600, "full", line=11)
    trace.span(compute, WAIT, 0, 604, "full", 0, line=21)
    trace.span(compute, SCOPE, 604, 620, line=22)
    trace.span(other, SCOPE, 0, 100, line=30)
    return trace


def test_a_slow_producer_is_on_the_path_and_the_bystander_has_slack() -> None:
    report = find_critical_path(slow_producer().build())
    assert steps(report) == [(0, 400, "scope"), (400, 200, "TMA load"), (600, 4, "barrier hop"), (604, 16, "scope")]
    assert report.parts.select("source", "cycles").row(0) == ("hand.py:10", 400)
    bystander = report.slack.filter(pl.col("source") == "hand.py:30").row(0, named=True)
    assert bystander["min_slack_cycles"] == 520
    assert bystander["role"] == "other"


def test_recording_is_told_apart() -> None:
    trace = TraceBuilder(record_cycles=10)
    track = trace.track("other", 0, 100)
    trace.span(track, SCOPE, 20, 80, line=5)
    report = find_critical_path(trace.build())
    around = [(0, 20, "unrecorded code"), (90, 10, "unrecorded code")]
    assert sorted(steps(report)) == sorted([*around, (20, 10, RECORDING), (30, 50, "scope"), (80, 10, RECORDING)])


def test_a_load_slower_than_the_fastest_of_its_size_queued() -> None:
    trace = TraceBuilder()
    compute, memory = trace.track("compute", 0, 1000), trace.track("memory", 0, 510)
    trace.load(memory, 0, 200, "full")
    trace.span(memory, SCOPE, 0, 500, line=3)
    trace.load(memory, 500, 900, "full")
    trace.span(compute, WAIT, 0, 204, "full", 0)
    trace.span(compute, WAIT, 500, 904, "full", 0)
    trace.span(compute, SCOPE, 904, 1000, line=4)
    expected = [(0, 500, "scope"), (500, 200, "TMA load"), (700, 200, QUEUEING), (900, 4, "barrier hop")]
    assert steps(find_critical_path(trace.build())) == [*expected, (904, 96, "scope")]


def test_ctas_of_one_sm_follow_each_other() -> None:
    trace = TraceBuilder()
    first = trace.track("other", 0, 300)
    second = trace.track("other", 350, 500, cta=1)
    trace.cta(0, 0, 300)
    trace.cta(1, 340, 500)
    trace.span(first, SCOPE, 0, 300)
    trace.span(second, SCOPE, 350, 500)
    report = find_critical_path(trace.build())
    assert steps(report) == [(0, 300, "scope"), (300, 40, "CTA switch"), (340, 10, "CTA start"), (350, 150, "scope")]


def test_those_who_meet_wait_for_the_last() -> None:
    trace = TraceBuilder()
    late, early = trace.track("compute", 0, 500), trace.track("memory", 0, 500)
    trace.span(late, SCOPE, 0, 300, line=7)
    trace.span(late, SiteKind.SYNC, 300, 330, line=8)
    trace.span(early, SiteKind.SYNC, 50, 330, line=8)
    trace.span(early, SCOPE, 330, 500, line=9)
    report = find_critical_path(trace.build())
    assert report.parts.filter(pl.col("source") == "hand.py:7")["cycles"].to_list() == [300]


def test_an_empty_launch_has_an_empty_path() -> None:
    report = find_critical_path(build_trace(ring_capture(num_ctas=1, capacity=0)))
    assert report.end == int(report.steps["dur"].sum())
