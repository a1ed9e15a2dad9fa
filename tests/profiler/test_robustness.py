"""Damaged captures: what is damaged is counted, what is not damaged is not touched, and nothing raises."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from mgpu.capture import Capture, pack_tag
from mgpu.errors import CaptureError
from mgpu.sites import Edge
from profiler.build import build_trace
from profiler.check import check_trace
from profiler.report import build_report
from profiler.trace import SCHEMAS, Trace
from support.captures import SITES, ring_capture

CLEAN = ring_capture(num_ctas=4, num_sms=2, iterations=5)
CLEAN_TRACE = build_trace(CLEAN)
WRAP = 1 << 32

word = st.integers(0, WRAP - 1)
damage = st.lists(st.tuples(st.integers(0, len(CLEAN.words) - 1), st.integers(0, 1), word), min_size=1, max_size=12)


def damaged(changes: list[tuple[int, int, int]]) -> tuple[Capture, set[int]]:
    """Returns the clean capture with some words replaced, and the tracks that were hit."""
    words = CLEAN.words.copy()
    for row, column, value in changes:
        words[row, column] = value
    hit = {int(np.searchsorted(CLEAN.offsets, row, side="right")) - 1 for row, _, _ in changes}
    return dataclasses.replace(CLEAN, words=words), hit


def spans_of(trace: Trace, tracks: set[int]) -> pl.DataFrame:
    chosen = trace.spans.filter(pl.col("track").is_in(sorted(tracks)))
    return chosen.select("track", "site", "kind", "name", "begin", "dur", "depth", "slot", "phase", "closed")


@settings(max_examples=60, deadline=None)
@given(damage)
def test_corrupt_words_stay_in_their_track(changes) -> None:
    capture, hit = damaged(changes)
    trace = build_trace(capture)
    whole = set(range(len(CLEAN.tracks))) - hit
    assert_frame_equal(spans_of(trace, whole), spans_of(CLEAN_TRACE, whole))
    # Every event is in a span, an instant, or counted as a defect of a track that was hit.
    assert set(trace.defects["track"].to_list()) <= hit
    # A damaged clock can put a wait before its release; nothing else may break.
    assert not [rule for rule in check_trace(trace) if not rule.startswith("a wait ends")]
    ends = trace.spans.join(trace.tracks.select("track", start="begin", stop="end"), on="track")
    assert ends.select(
        ((pl.col("begin") >= pl.col("start")) & (pl.col("begin") + pl.col("dur") <= pl.col("stop"))).all()
    ).item()


@settings(max_examples=25, deadline=None)
@given(damage)
def test_a_report_of_a_damaged_capture_says_so_and_does_not_fail(changes) -> None:
    capture, _ = damaged(changes)
    trace = build_trace(capture)
    report = build_report(trace)
    assert bool(report.notes) == bool(trace.defects.height)
    assert report.to_text()


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 5 * WRAP))
def test_where_the_clock_starts_and_wraps_changes_nothing(start) -> None:
    trace = build_trace(ring_capture(num_ctas=4, num_sms=2, iterations=5, start_cycles=start))
    for name in SCHEMAS:
        assert_frame_equal(trace.table(name), CLEAN_TRACE.table(name))


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 60))
def test_overflow_keeps_the_first_and_counts_the_rest(capacity) -> None:
    trace = build_trace(ring_capture(num_ctas=4, num_sms=2, iterations=5, capacity=capacity))
    counts = CLEAN.tracks["count"].astype(np.int64)
    assert trace.tracks["kept"].to_list() == np.minimum(counts, capacity).tolist()
    assert trace.tracks["dropped"].to_list() == np.maximum(counts - capacity, 0).tolist()
    assert trace.sufficient_profile_space == counts.max()
    closed = spans_of(trace, set(range(len(counts)))).filter("closed")
    joined = closed.join(spans_of(CLEAN_TRACE, set(range(len(counts)))), on=closed.columns, how="semi")
    assert joined.height == closed.height  # what is left is as it was
    space = trace.sufficient_profile_space
    enough = ring_capture(num_ctas=4, num_sms=2, iterations=5, capacity=space)
    assert build_trace(enough).events_dropped == 0


@pytest.mark.parametrize("capacity", [0, 1, 7, 30])
def test_a_report_of_an_overflowed_capture_names_the_space_that_suffices(capacity) -> None:
    report = build_report(build_trace(ring_capture(num_ctas=2, capacity=capacity)))
    assert "profile_space=54" in report.to_text(200)


def test_orphans_are_counted_one_by_one() -> None:
    words = CLEAN.words.copy()
    first, last = CLEAN.offsets[1], CLEAN.offsets[2] - 1
    words[first, 0] = pack_tag(SITES[0].id, Edge.END)  # an end that nothing began, instead of a begin
    words[last, 0] = pack_tag(SITES[5].id, Edge.BEGIN)  # a begin that nothing ends
    trace = build_trace(dataclasses.replace(CLEAN, words=words))
    counts = dict(trace.defects.group_by("kind").agg(pl.col("count").sum()).iter_rows())
    assert counts["orphan_end"] >= 1
    assert counts["unclosed"] >= 1
    assert set(trace.defects["track"].to_list()) == {1}


def test_the_clean_capture_is_clean() -> None:
    assert CLEAN_TRACE.defects.is_empty()
    assert check_trace(CLEAN_TRACE) == []


@settings(max_examples=60, deadline=None)
@given(damage)
def test_every_stored_event_is_in_the_tables_or_counted(changes) -> None:
    capture, _ = damaged(changes)
    trace = build_trace(capture)
    closed = int(trace.spans["closed"].sum())
    counted = {"orphan_end", "unknown_site", "bad_edge"}
    left_out = int(trace.defects.filter(pl.col("kind").is_in(counted))["count"].sum())
    shown = 2 * closed + (trace.spans.height - closed) + trace.instants.height
    # An end that closes an outer span cuts the inner ones, whose own ends are not lost: they become orphans.
    assert shown + left_out == len(capture.words)
    unclosed = trace.defects.filter(pl.col("kind") == "unclosed")["count"].sum()
    assert unclosed == trace.spans.height - closed


MEASURED = {"num_ctas": 3, "num_sms": 3, "iterations": 5, "activity": False, "sm_clock_offsets": (0, 10_000, 777)}


@settings(max_examples=30, deadline=None)
@given(st.integers(0, (1 << 64) - 1))
def test_where_the_global_timer_starts_and_wraps_changes_nothing(start: int) -> None:
    capture = ring_capture(**MEASURED)
    tracks = capture.tracks.copy()
    for name in ("ns_begin", "ns_end"):
        tracks[name] += np.uint64(start)  # modulo 2**64
    expected, found = (build_trace(one) for one in (capture, dataclasses.replace(capture, tracks=tracks)))
    for name in SCHEMAS:
        assert_frame_equal(found.table(name), expected.table(name))
    assert found.alignment_residual_cycles == expected.alignment_residual_cycles


def test_a_track_longer_than_many_wraps_keeps_its_times() -> None:
    capture = ring_capture(num_ctas=1, iterations=4)
    period = (1 << 32) - 5  # nearly a wrap between neighbouring events
    words, tracks, ctas = capture.words.copy(), capture.tracks.copy(), capture.ctas.copy()
    times = []
    for track, rows in enumerate(np.split(np.arange(len(words)), capture.offsets[1:-1])):
        time = int(tracks["clock_begin"][track]) + period * np.arange(len(rows), dtype=np.int64)
        words[rows, 1] = (time & (WRAP - 1)).astype(np.uint32)
        tracks["clock_end"][track] = time[-1]
        times.append(time)
    ctas["end"] = max(time[-1] for time in times)
    empty = {"arrivals": capture.arrivals[:0], "unit_spans": capture.unit_spans[:0]}
    trace = build_trace(dataclasses.replace(capture, words=words, tracks=tracks, ctas=ctas, **empty))
    assert trace.defects.is_empty()
    assert trace.tracks["last"].to_list() == [int(time[-1]) - trace.origin_cycles for time in times]


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_file_with_missing_or_flipped_bytes_is_an_error_or_the_same_capture(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("captures") / "capture.npz"
    CLEAN.save(path)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        found = Capture.load(path)
    except CaptureError:
        return
    # The archive checks its contents; what it does not check, such as a date, changes nothing.
    assert found.header == CLEAN.header
    np.testing.assert_array_equal(found.words, CLEAN.words)
