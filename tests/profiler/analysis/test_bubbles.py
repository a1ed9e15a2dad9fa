"""Every cause of a bubble, planted in a timeline small enough to check by eye."""

from __future__ import annotations

import pytest

from mgpu.sites import SiteKind
from profiler.analysis.bubbles import BubbleReport, find_bubbles
from profiler.analysis.causes import Cause, Detail
from profiler.build import build_trace
from profiler.trace import Trace
from support.captures import ring_capture
from support.traces import TraceBuilder

WAIT, ISSUE, MMA_WAIT, SCOPE = SiteKind.BARRIER_WAIT, SiteKind.MMA_ISSUE, SiteKind.MMA_WAIT, SiteKind.SCOPE


def pieces(report: BubbleReport) -> list[tuple[int, int, str, str]]:
    """(begin, dur, cause, detail) of every bubble."""
    return report.bubbles.sort("sm", "begin").select("begin", "dur", "cause", "detail").rows()


def edges(report: BubbleReport) -> list[tuple[int, int, str]]:
    return report.edges.sort("sm", "begin").select("begin", "dur", "cause").rows()


def first_tile(trace: TraceBuilder, memory: int, compute: int) -> None:
    """A load of 200 cycles, a wait for it, and an MMA from 210 to 310."""
    trace.load(memory, 0, 200, "full")
    trace.span(compute, WAIT, 0, 204, "full", 0, line=21)
    trace.span(compute, ISSUE, 204, 210, line=22)
    trace.mma(compute, 210, 310, line=22)


def two_roles(end: int = 800) -> tuple[TraceBuilder, int, int]:
    trace = TraceBuilder()
    compute, memory = trace.track("compute", 0, end), trace.track("memory", 0, end)
    trace.cta(0, 0, end)
    return trace, memory, compute


def second_tile(trace: TraceBuilder, compute: int, wait_begin: int, landed: int) -> None:
    """A wait for the second load, and an MMA 10 cycles after it landed."""
    trace.span(compute, WAIT, wait_begin, landed + 4, "full", 0, line=21)
    trace.span(compute, ISSUE, landed + 4, landed + 10, line=22)
    trace.mma(compute, landed + 10, landed + 110, line=22)


def test_starved_producer() -> None:
    trace, memory, compute = two_roles()
    first_tile(trace, memory, compute)
    trace.span(memory, SCOPE, 10, 400)  # the producer does something else, although the slot is free
    trace.load(memory, 400, 600, "full")
    second_tile(trace, compute, 310, 600)
    assert pieces(find_bubbles(trace.build())) == [
        (310, 294, Cause.DATA_NOT_READY, Detail.ISSUED_LATE),  # of which in flight 204: issued in time, it was there
        (604, 6, Cause.DEPENDENCY, Detail.ISSUE),
    ]


def test_load_that_queues_is_bandwidth_bound() -> None:
    trace, memory, compute = two_roles()
    first_tile(trace, memory, compute)
    trace.load(memory, 300, 601, "full")  # 301 cycles: more than 1.5 times the 200 of the first
    second_tile(trace, compute, 310, 601)
    assert pieces(find_bubbles(trace.build()))[0] == (310, 295, Cause.DATA_NOT_READY, Detail.BANDWIDTH_BOUND)


def test_load_of_one_and_a_half_times_the_fastest_has_not_queued() -> None:
    trace, memory, compute = two_roles()
    first_tile(trace, memory, compute)
    trace.load(memory, 110, 410, "full")  # early enough, had it taken as long as the fastest
    second_tile(trace, compute, 310, 410)
    assert pieces(find_bubbles(trace.build()))[0] == (310, 104, Cause.DATA_NOT_READY, Detail.LATENCY_BOUND)


def test_slow_consumer_is_the_root_of_late_data() -> None:
    trace, memory, compute = two_roles()
    first_tile(trace, memory, compute)
    trace.span(compute, MMA_WAIT, 210, 314, line=23)
    trace.span(compute, SCOPE, 314, 500, line=24)  # holds the slot meanwhile
    trace.arrive(500, "empty", 0, compute)
    trace.span(memory, WAIT, 20, 504, "empty", 0, line=11)
    trace.load(memory, 504, 704, "full")
    second_tile(trace, compute, 500, 704)
    report = find_bubbles(trace.build())
    assert pieces(report) == [
        (310, 4, Cause.DEPENDENCY, Detail.OWN_RESULT),
        (314, 186, Cause.EPILOGUE, Detail.REGISTER_WORK),
        (500, 208, Cause.SLOT_NOT_FREE, Detail.BACK_PRESSURE),
        (708, 6, Cause.DEPENDENCY, Detail.ISSUE),
    ]
    slot = report.groups.filter(report.groups["cause"] == Cause.SLOT_NOT_FREE).row(0, named=True)
    assert (slot["barrier"], slot["root_barrier"], slot["source"]) == ("full", "empty", "hand.py:21")
    root = report.bubbles.filter(report.bubbles["cause"] == Cause.SLOT_NOT_FREE).row(0, named=True)
    assert (root["root_track"], root["root_source"], root["phase"]) == (memory, "hand.py:11", 1)


def test_one_stage_only() -> None:
    """The load of every tile but the first waits for the slot, so its whole latency is the slot's fault."""
    report = find_bubbles(build_trace(ring_capture(num_ctas=1, stages=1, iterations=3)))
    # Iteration: consumers see their results at +728 (WG1), the slot frees, the load starts at 732 and lands at 1232.
    causes = report.groups.select("cause", "count", "total_cycles").rows()
    assert causes[0] == (Cause.SLOT_NOT_FREE, 2, 2 * (1236 - 724))
    assert [row[0] for row in causes[1:]] == [Cause.DEPENDENCY]


def test_enough_stages_leave_no_bubble_but_the_fill() -> None:
    report = find_bubbles(
        build_trace(ring_capture(num_ctas=1, stages=6, iterations=12, tma_cycles=150, mma_cycles=400))
    )
    assert report.groups.is_empty()
    assert {cause for _, _, cause in edges(report)} == {Cause.FILL, Cause.DRAIN}


def test_work_between_mmas_without_a_wait_is_epilogue() -> None:
    trace, memory, compute = two_roles()
    first_tile(trace, memory, compute)
    trace.span(compute, ISSUE, 450, 460, line=25)
    trace.mma(compute, 460, 500, line=25)
    assert pieces(find_bubbles(trace.build())) == [
        (310, 140, Cause.EPILOGUE, Detail.REGISTER_WORK),
        (450, 10, Cause.DEPENDENCY, Detail.ISSUE),
    ]


@pytest.mark.parametrize(
    ("kind", "cause"),
    [
        (SiteKind.STORE_WAIT, Cause.STORE_WAIT),
        (SiteKind.COMMIT_SMEM, Cause.DEPENDENCY),
        (SiteKind.MMA_WAIT, Cause.DEPENDENCY),
        (SiteKind.SYNC, Cause.SKEW),
        (SiteKind.SET_REGISTERS, Cause.SKEW),
    ],
)
def test_the_innermost_span_of_the_next_issuer_names_the_cause(kind: SiteKind, cause: Cause) -> None:
    trace, memory, compute = two_roles()
    first_tile(trace, memory, compute)
    trace.span(compute, SCOPE, 305, 460)
    trace.span(compute, kind, 310, 460)
    trace.mma(compute, 460, 500)
    assert [row[:3] for row in pieces(find_bubbles(trace.build()))] == [(310, 150, cause)]


def test_waiting_for_another_warpgroup_is_skew_and_for_a_slot_if_it_loads_itself() -> None:
    for role, cause in (("compute", Cause.SKEW), ("memory+compute", Cause.SLOT_NOT_FREE)):
        trace = TraceBuilder()
        first, second = trace.track(role, 0, 600), trace.track("compute", 0, 600)
        trace.mma(first, 100, 200)
        trace.arrive(390, "turn", 0, second)
        trace.span(first, WAIT, 200, 400, "turn", 0)
        trace.mma(first, 400, 500)
        assert [row[:3] for row in pieces(find_bubbles(trace.build()))] == [(200, 200, cause)]


def test_recording_is_a_cause_only_where_it_delays() -> None:
    trace = TraceBuilder(record_cycles=5)
    compute, memory = trace.track("compute", 0, 800), trace.track("memory", 0, 800)
    first_tile(trace, memory, compute)
    trace.load(memory, 350, 550, "full")
    second_tile(trace, compute, 310, 550)
    # The wait's begin is stored while the wait would be blocked anyway; its end and the issue's begin share cycle 554.
    assert [row[:3] for row in pieces(find_bubbles(trace.build()))] == [
        (310, 244, Cause.DATA_NOT_READY),
        (554, 6, Cause.RECORDING),
    ]


def test_cta_switch_fill_ramp_and_tail() -> None:
    """Two CTAs, one after the other, on SM 0; SM 1 has one that starts late and ends early."""
    trace = TraceBuilder(num_sms=2)
    one, two, other = (
        trace.track("compute", *life, sm=sm, cta=cta)
        for cta, sm, life in ((0, 0, (0, 300)), (1, 0, (350, 900)), (2, 1, (40, 700)))
    )
    for cta, sm, life in ((0, 0, (0, 300)), (1, 0, (350, 900)), (2, 1, (40, 700))):
        trace.cta(cta, *life, sm=sm)
    trace.mma(one, 100, 200)
    trace.span(one, SiteKind.STORE_WAIT, 250, 300)
    trace.mma(two, 500, 800)
    trace.mma(other, 60, 600)
    report = find_bubbles(trace.build())
    assert pieces(report) == [
        (200, 50, Cause.DRAIN, Detail.REGISTER_WORK),
        (250, 50, Cause.DRAIN, Detail.STORE),
        (300, 50, Cause.DRAIN, Detail.EXITED),
        (350, 150, Cause.FILL, Detail.REGISTER_WORK),
    ]
    assert edges(report) == [
        (0, 100, Cause.FILL),
        (800, 100, Cause.DRAIN),
        (0, 40, Cause.SCHEDULING),
        (40, 20, Cause.FILL),
        (600, 100, Cause.DRAIN),
        (700, 200, Cause.SCHEDULING),
    ]
    drain = report.groups.filter(report.groups["cause"] == Cause.DRAIN)
    assert drain["total_cycles"].sum() == 150
    assert drain["kernel_share"].sum() == pytest.approx(150 / (2 * 900))


def test_a_second_cta_on_the_sm_covers_the_first_ones_bubble() -> None:
    trace = TraceBuilder()
    one, two = trace.track("compute", 0, 400, cta=0), trace.track("compute", 0, 400, cta=1)
    trace.mma(one, 0, 100)
    trace.mma(two, 90, 250)
    trace.mma(one, 200, 300)
    report = find_bubbles(trace.build())
    assert report.bubbles.is_empty()
    assert report.sms.row(0, named=True)["busy_cycles"] == 300


def test_gain_is_bounded_by_the_sm_that_loses_most() -> None:
    trace = TraceBuilder(num_sms=2)
    for sm, gap in ((0, 30), (1, 70)):
        track = trace.track("compute", 0, 1000, sm=sm, cta=sm)
        trace.mma(track, 0, 100, line=9)
        trace.mma(track, 100 + gap, 300, line=9)
    report = find_bubbles(trace.build())
    group = report.groups.row(0, named=True)
    assert (group["total_cycles"], group["gain_bound_cycles"], group["count"]) == (100, 70, 2)
    assert (group["example_sm"], group["example_begin"], group["example_dur"]) == (1, 100, 70)
    assert group["p50_cycles"] == 50.0


def test_the_largest_groups_include_what_lies_outside_first_and_last_mma() -> None:
    trace = TraceBuilder()
    track = trace.track("compute", 0, 1000)
    trace.mma(track, 600, 700, line=9)
    trace.mma(track, 750, 900, line=9)
    report = find_bubbles(trace.build())
    largest = report.largest(10)
    assert largest["total_cycles"].to_list() == sorted(largest["total_cycles"].to_list(), reverse=True)
    assert largest["total_cycles"][0] == 600
    assert largest["total_cycles"].sum() == 600 + 50 + 100
    assert report.largest(1).height == 1


def test_bubbles_of_a_measured_trace_are_inferred() -> None:
    trace = TraceBuilder(provenance="measured")
    compute = trace.track("compute", 0, 500)
    for begin in (0, 200):
        trace.mma(compute, begin, begin + 100)
        trace.span(compute, MMA_WAIT, begin + 40, begin + 100)
    report = find_bubbles(trace.build())
    assert report.provenance == "inferred"
    assert pieces(report) == [(100, 100, Cause.EPILOGUE, Detail.REGISTER_WORK)]


def test_loads_that_nobody_recorded_are_called_unknown() -> None:
    trace, _, compute = two_roles()
    trace.mma(compute, 0, 310)
    trace.site(SiteKind.TMA_LOAD, "full")
    trace.span(compute, WAIT, 310, 500, "full", 0)
    trace.mma(compute, 500, 600)
    assert pieces(find_bubbles(trace.build())) == [(310, 190, Cause.DATA_NOT_READY, Detail.UNKNOWN_LOAD)]


def test_trace_without_mma_has_no_bubbles(empty_trace: Trace) -> None:
    report = find_bubbles(empty_trace)
    assert report.bubbles.is_empty()
    assert report.sms.is_empty()
    assert report.bubble_share == 0.0


@pytest.fixture
def empty_trace() -> Trace:
    trace = TraceBuilder()
    trace.track("other", 0, 100)
    return trace.build()
