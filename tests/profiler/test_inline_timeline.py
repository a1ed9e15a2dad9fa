"""The drawing for notebooks, parsed back: its rectangles against the times that support.captures computes by hand."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from mgpu.errors import ParamsError
from profiler.build import build_trace
from profiler.inline_timeline import draw_timeline
from profiler.report import build_report
from support.captures import ring_capture
from support.traces import TraceBuilder

SVG = "{http://www.w3.org/2000/svg}"
COLUMN_CYCLES = 2392 / 720
Rectangle = tuple[str, int, int]


def parse(svg: str) -> dict[str, list[Rectangle]]:
    """Returns (activity, begin, end) of the rectangles in each labelled row, and checks that places match times."""
    root = ElementTree.fromstring(svg)
    labels = {int(text.get("y", "")) - 12: text.text or "" for text in root.iter(f"{SVG}text") if text.get("x") == "0"}
    rows: dict[str, list[Rectangle]] = {label: [] for top, label in labels.items() if top}
    ends = [
        int((text.text or "").split()[0].replace(",", ""))
        for text in root.iter(f"{SVG}text")
        if text.get("text-anchor")
    ]
    scale = 720 / (ends[-1] - ends[0])
    for rect in root.iter(f"{SVG}rect"):
        found = re.fullmatch(r"(.+), cycles ([\d,]+) to ([\d,]+)", rect.findtext(f"{SVG}title") or "")
        assert found
        begin, end = (int(found[group].replace(",", "")) for group in (2, 3))
        assert float(rect.get("x", "")) == pytest.approx(150 + (begin - ends[0]) * scale, abs=0.06)
        assert float(rect.get("width", "")) == pytest.approx((end - begin) * scale, abs=0.06)
        rows[labels[int(rect.get("y", ""))]].append((found[1], begin, end))
    return rows


def test_rows_and_times_of_a_ring() -> None:
    rows = parse(draw_timeline(build_trace(ring_capture(num_ctas=1))).svg)
    assert list(rows) == ["tensor core", "TMA loads", "WG0 compute", "WG1 compute", "WG2 memory"]
    # The first four MMAs run back to back: two tiles of two consumers, 100 cycles each.
    assert rows["tensor core"][0] == ("MMA", *(pytest.approx(time, abs=COLUMN_CYCLES) for time in (524, 924)))
    # Loads 0 and 1 are in flight from 0 to 520, the third from 732.
    assert rows["TMA loads"][0][1:] == pytest.approx((0, 520), abs=COLUMN_CYCLES)
    assert rows["TMA loads"][1][1] == pytest.approx(732, abs=COLUMN_CYCLES)
    assert rows["WG0 compute"][0] == ("wait", 0, pytest.approx(504, abs=COLUMN_CYCLES))
    # The memory warpgroup issues until 40, waits until 732, and is gone after 1684.
    assert [name for name, *_ in rows["WG2 memory"][:3]] == ["overhead", "wait", "overhead"]
    assert rows["WG2 memory"][1][1:] == pytest.approx((40, 732), abs=COLUMN_CYCLES)
    assert rows["WG2 memory"][-1][2] == pytest.approx(1684, abs=COLUMN_CYCLES)


def test_zoom_is_exact_where_a_column_is_a_cycle() -> None:
    rows = parse(draw_timeline(build_trace(ring_capture(num_ctas=1)), begin=500, end=1220).svg)
    assert rows["tensor core"] == [("MMA", 524, 924)]
    assert rows["WG2 memory"][:2] == [("wait", 500, 732), ("overhead", 732, 752)]


def test_ctas_of_one_sm_share_rows_and_other_sms_are_left_out() -> None:
    trace = build_trace(ring_capture(num_ctas=4, num_sms=2))
    rows = parse(draw_timeline(trace, sm=1).svg)
    assert len(rows) == 5
    waits = [row for row in rows["WG0 compute"] if row[0] == "wait"]
    assert any(begin == pytest.approx(2392, abs=2 * COLUMN_CYCLES + 2) for _, begin, _ in waits)


def test_size_does_not_grow_with_the_launch() -> None:
    svg = draw_timeline(build_trace(ring_capture(num_ctas=1, iterations=2000, capacity=1 << 16))).svg
    assert len(svg) < 5 * 720 * 150
    assert parse(svg)["WG0 compute"][-1][2] > 300_000


def test_names_are_escaped_and_the_report_carries_the_drawing() -> None:
    report = build_report(build_trace(ring_capture(num_ctas=1, kernel="<lambda>&")))
    drawing = report.timeline()
    assert ElementTree.fromstring(drawing._repr_svg_()).findtext(f"{SVG}title") == "<lambda>&, SM 0"
    assert report._repr_html_().startswith(drawing.svg)


def test_a_launch_that_recorded_nothing_is_drawn() -> None:
    trace = build_trace(ring_capture(num_ctas=1, capacity=0, activity=False))
    assert list(parse(draw_timeline(trace).svg)) == ["WG0 other", "WG1 other", "WG2 other"]
    assert parse(draw_timeline(TraceBuilder().build()).svg) == {}


@pytest.mark.parametrize("arguments", [{"sm": 7}, {"begin": 10, "end": 10}, {"begin": -1}])
def test_what_cannot_be_drawn_is_an_error(arguments: dict[str, int]) -> None:
    with pytest.raises(ParamsError, match="draw_timeline"):
        draw_timeline(build_trace(ring_capture(num_ctas=1)), **arguments)
