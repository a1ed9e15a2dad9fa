from __future__ import annotations

import struct

import numpy as np
import pytest

from dashboard.store import LoadedLaunch
from dashboard.timeline.index import TimelineIndex
from dashboard.timeline.window import encode_window, visible_boxes


def row_number(launch: LoadedLaunch, key: str) -> int:
    return next(number for number, row in enumerate(launch.timeline.rows) if row.key == key)


def test_rows_are_a_tree_of_sms_units_ctas_and_warpgroups(ring: LoadedLaunch) -> None:
    keys = [row.key for row in ring.timeline.rows if row.sm == 0 and row.kind != "counter"]
    assert keys == [
        "sm:0", "unit:tensor_core:0", "unit:tma_load:0", "cta:0", "track:0", "track:1", "track:2",
    ]  # fmt: skip
    assert [row.level for row in ring.timeline.rows if row.key in ("sm:0", "cta:0", "track:0")] == [0, 1, 2]


def test_a_window_shows_the_spans_of_the_trace(ring: LoadedLaunch) -> None:
    spans = ring.trace.spans.filter(ring.trace.spans["track"] == 0)
    boxes, _, depth, stands_for = visible_boxes(
        ring.timeline, [row_number(ring, "track:0")], 0, ring.trace.end, 100_000
    )
    drawn = depth != 255
    assert sorted(boxes.id[drawn].tolist()) == spans["span"].to_list()
    assert stands_for == spans.height + ring.trace.instants.filter(ring.trace.instants["track"] == 0).height


def test_use_and_bubbles_of_a_tensor_core_fill_the_launch(ring: LoadedLaunch) -> None:
    boxes, _, _, _ = visible_boxes(ring.timeline, [row_number(ring, "sm:0")], 0, ring.trace.end, 1 << 20)
    assert boxes.begin[0] == 0
    assert boxes.end[-1] == ring.trace.end
    assert boxes.begin[1:].tolist() == boxes.end[:-1].tolist()


def test_a_counter_holds_its_value_until_the_next_one(ring: LoadedLaunch) -> None:
    counters = ring.trace.counters.filter(ring.trace.counters["cta"] == 0)
    key = f"counter:{counters['counter'][0]}:0:0"
    boxes, _, _, _ = visible_boxes(ring.timeline, [row_number(ring, key)], 0, ring.trace.end, 1 << 20)
    values = dict(zip(counters["time"].to_list(), counters["value"].to_list(), strict=True))
    assert [values[time] for time in boxes.begin.tolist()] == boxes.id.tolist()
    assert boxes.begin[1:].tolist() == boxes.end[:-1].tolist()


@pytest.mark.parametrize(("t0", "t1"), [(0, 4000), (900, 1700)])
def test_wire_format_is_what_its_description_says(ring: LoadedLaunch, t0: int, t1: int) -> None:
    rows = [row_number(ring, "track:0"), row_number(ring, "unit:tma_load:0")]
    boxes, row, depth, stands_for = visible_boxes(ring.timeline, rows, t0, t1, 50)
    data = encode_window(ring.timeline, rows, t0, t1, 50)
    magic, n, counted, first, last = struct.unpack_from("<4sIQdd", data)
    assert (magic, n, counted, first, last) == (b"MGT1", len(boxes), stands_for, t0, t1)
    kinds = ["<f4", "<f4", "<u4", "<u4", "<u2", "<u2", "<i2", "<i1", "<u1"]
    assert len(data) == 32 + 24 * n
    columns, at = [], 32
    for kind in kinds:
        columns.append(np.frombuffer(data, kind, n, at))
        at += n * np.dtype(kind).itemsize
    begin, length, number, count, in_row, style, phase, slot, lane = (column.tolist() for column in columns)
    assert begin == (boxes.begin - t0).tolist()
    assert length == (boxes.end - boxes.begin).tolist()
    assert (number, count, lane) == (boxes.id.tolist(), boxes.count.tolist(), depth.tolist())
    assert [rows[place] for place in in_row] == row.tolist()
    assert (style, phase, slot) == (boxes.style.tolist(), boxes.phase.tolist(), boxes.slot.tolist())


def test_a_coarse_copy_serves_lanes_that_are_too_long(ring: LoadedLaunch, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row_number(ring, "track:0")]
    exact = visible_boxes(ring.timeline, rows, 0, ring.trace.end, 64)
    monkeypatch.setattr("dashboard.timeline.window._DENSE", 3)
    monkeypatch.setattr("dashboard.timeline.lanes._COARSE_FROM", 3)
    monkeypatch.setattr("dashboard.timeline.lanes._COARSE_BOXES", 1 << 12)
    index = TimelineIndex.of(ring.report)
    coarse = visible_boxes(index, rows, 0, ring.trace.end, 64)
    assert index.lanes_with(rows[0]).coarse
    assert coarse[3] == exact[3]
    assert coarse[0].begin[0] == exact[0].begin[0]
    assert coarse[0].end[-1] == exact[0].end[-1]
