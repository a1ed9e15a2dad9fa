"""Where the time of a track goes, by hand."""

from __future__ import annotations

from mgpu.sites import SiteKind
from profiler.analysis.categories import time_by_category
from profiler.build import build_trace
from support.captures import ring_capture
from support.traces import TraceBuilder


def test_innermost_span_decides_and_the_rest_is_busy_or_idle() -> None:
    trace = TraceBuilder()
    track = trace.track("compute", 10, 90)
    trace.track("memory", 0, 100)
    trace.span(track, SiteKind.SCOPE, 20, 80)
    trace.span(track, SiteKind.BARRIER_WAIT, 25, 55, "full", 1)
    trace.span(track, SiteKind.MMA_ISSUE, 60, 65)
    report = time_by_category(trace.build())
    row = report.tracks.row(0, named=True)
    assert [row[f"{name}_cycles"] for name in ("busy", "wait", "overhead", "idle", "recording")] == [45, 30, 5, 20, 0]
    assert report.waits.rows() == [("compute", "barrier_wait", "full", 30)]
    kinds = dict(report.parts.filter(report.parts["track"] == 0).select("kind", "cycles").iter_rows())
    assert kinds == {
        "barrier_wait": 30, "mma_issue": 5, "scope": 25, "unrecorded code": 20, "before start": 10, "after exit": 10,
    }  # fmt: skip


def test_recording_costs_every_event_and_counts_as_overhead() -> None:
    trace = TraceBuilder(record_cycles=3)
    track = trace.track("compute", 0, 100)
    trace.span(track, SiteKind.SCOPE, 10, 90)
    trace.span(track, SiteKind.BARRIER_WAIT, 20, 60, "full", 0)
    row = time_by_category(trace.build()).tracks.row(0, named=True)
    # Four events: the begin of each span costs inside it, the end outside.
    assert (row["recording_cycles"], row["overhead_cycles"]) == (12, 12)
    assert (row["wait_cycles"], row["busy_cycles"]) == (40 - 3, 100 - 40 - 9)


def test_dropped_events_shorten_the_window_for_all() -> None:
    trace = TraceBuilder()
    full = trace.track("compute", 0, 100, known_until=40)
    trace.track("memory", 0, 100)
    trace.span(full, SiteKind.MMA_WAIT, 30, 40)
    report = time_by_category(trace.build())
    assert (report.window.end, report.window.launch_end) == (40, 100)
    assert report.tracks["wait_cycles"].to_list() == [10, 0]
    assert "profile_space=99" in report.window.note
    assert "first 40 of 100 cycles" in report.window.note


def test_roles_of_a_ring_sum_their_tracks() -> None:
    report = time_by_category(build_trace(ring_capture(num_ctas=3)))
    for role, category, cycles, tracks in report.roles.iter_rows():
        rows = report.tracks.filter(report.tracks["role"] == role)
        assert cycles == rows[f"{category}_cycles"].sum()
        assert tracks == rows.height
