"""Every cycle is counted once: analyses of random timelines against a cycle-by-cycle painting of the same."""

from __future__ import annotations

import dataclasses

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mgpu.sites import Category, SiteKind
from profiler.analysis.bubbles import find_bubbles
from profiler.analysis.categories import time_by_category
from profiler.intervals import find_gaps, merge_intervals
from profiler.trace import Trace
from support.traces import TraceBuilder

HORIZON = 60
SPAN_KINDS = [kind for kind in SiteKind if not kind.is_instant]

times = st.integers(0, HORIZON)
interval = st.tuples(times, times).map(sorted)


@st.composite
def nested(draw: st.DrawFn, begin: int, end: int, depth: int = 0) -> list[tuple[int, int, SiteKind, int]]:
    """Draws spans (begin, end, kind, depth) inside [begin, end) that nest."""
    cuts = sorted(draw(st.lists(st.integers(begin, end), max_size=6)))
    spans: list[tuple[int, int, SiteKind, int]] = []
    for low, high in zip(cuts[::2], cuts[1::2], strict=False):
        spans.append((low, high, draw(st.sampled_from(SPAN_KINDS)), depth))
        if depth < 2 and high - low > 1:
            spans += draw(nested(low, high, depth + 1))
    return spans


@st.composite
def timelines(draw: st.DrawFn) -> tuple[Trace, list[np.ndarray], dict[int, np.ndarray]]:
    """Draws a trace, with the category of every cycle of every track, and when each SM's tensor core was in use."""
    trace = TraceBuilder(num_sms=2)
    painted: list[np.ndarray] = []
    in_use: dict[int, np.ndarray] = {}
    for cta in range(draw(st.integers(1, 3))):
        begin, end = draw(interval)
        sm = draw(st.integers(0, 1))
        track = trace.track("compute", begin, end, sm=sm, cta=cta)
        trace.cta(cta, begin, end, sm=sm)
        cycles = np.full(HORIZON, str(Category.IDLE), dtype=object)
        cycles[begin:end] = str(Category.BUSY)
        for low, high, kind, _ in sorted(draw(nested(begin, end)), key=lambda span: span[3]):
            barrier = "full" if kind in (SiteKind.BARRIER_WAIT, SiteKind.TMA_LOAD) else ""
            trace.span(track, kind, low, high, barrier, 0 if barrier else -1)
            cycles[low:high] = str(kind.category)
        painted.append(cycles)
        for low, high in draw(st.lists(interval, max_size=4)):
            low, high = max(low, begin), min(high, end)
            if low < high:
                trace.mma(track, low, high)
                in_use.setdefault(sm, np.zeros(HORIZON, bool))[low:high] = True
    return trace.build(), painted, in_use


@given(timelines())
def test_categories_are_those_of_every_single_cycle(drawn: tuple[Trace, list[np.ndarray], object]) -> None:
    trace, painted, _ = drawn
    report = time_by_category(trace)
    for row, cycles in zip(report.tracks.iter_rows(named=True), painted, strict=True):
        for category in Category:
            assert row[f"{category}_cycles"] == int((cycles[: trace.end] == str(category)).sum())


@given(timelines())
def test_bubbles_cover_exactly_the_cycles_without_an_mma(
    drawn: tuple[Trace, list[np.ndarray], dict[int, np.ndarray]],
) -> None:
    trace, _, in_use = drawn
    if not in_use:
        return  # tensor-core use is then inferred from spans, which is another test's subject
    report = find_bubbles(trace)
    assert report.sms["sm"].to_list() == sorted(in_use)
    for sm, used in in_use.items():
        covered = np.zeros(trace.end, np.int64)
        rows = [table.filter(table["sm"] == sm) for table in (report.bubbles, report.edges)]
        for begin, dur in [row for table in rows for row in table.select("begin", "dur").iter_rows()]:
            assert dur > 0
            covered[begin : begin + dur] += 1
        np.testing.assert_array_equal(covered, (~used[: trace.end]).astype(np.int64))


@given(timelines(), st.integers(1, 4))
def test_recording_is_taken_from_the_other_categories(
    drawn: tuple[Trace, list[np.ndarray], object], record_cycles: int
) -> None:
    trace = drawn[0]
    header = dataclasses.replace(trace.header, record_cycles=record_cycles)
    report = time_by_category(dataclasses.replace(trace, header=header))  # its own check: sums to the window
    before = time_by_category(trace)
    taken = report.tracks["recording_cycles"].sum()
    assert taken <= record_cycles * (2 * trace.spans.height)
    if not (trace.spans["kind"] == str(SiteKind.UNRECORDED)).any():  # its marks are events too
        assert report.tracks["idle_cycles"].to_list() == before.tracks["idle_cycles"].to_list()
    change = {
        name: sum(report.tracks[f"{name}_cycles"].to_list()) - sum(before.tracks[f"{name}_cycles"].to_list())
        for name in ("overhead", "busy", "wait", "idle")
    }
    assert sum(change.values()) == 0


groups = st.lists(st.tuples(st.integers(0, 2), times, times), max_size=12)


@given(groups, groups)
def test_interval_sets_agree_with_bitmaps(
    rows: list[tuple[int, int, int]], queries: list[tuple[int, int, int]]
) -> None:
    bitmap = np.zeros((3, HORIZON), bool)
    for group, begin, end in rows:
        bitmap[group, begin:end] = True
    group, begin, end = np.array(rows, np.int64).reshape(-1, 3).T
    sets = merge_intervals(group, begin, end)
    painted = np.zeros_like(bitmap)
    for one, low, high in zip(sets.group, sets.begin, sets.end, strict=True):
        assert not painted[one, max(low - 1, 0) : high].any(), "intervals touch or overlap"
        painted[one, low:high] = True
    np.testing.assert_array_equal(painted, bitmap)
    for one, low, high in zip(*find_gaps(sets), strict=True):
        assert not bitmap[one, low:high].any()
        assert bitmap[one, low - 1]
        assert bitmap[one, high]
    ordered = np.array([(one, *sorted(pair)) for one, *pair in queries], np.int64).reshape(-1, 3)
    expected = [int(bitmap[one, low:high].sum()) for one, low, high in ordered]
    assert sets.covered(*ordered.T).tolist() == expected
