"""The report: what it says, that it fits the terminal, and that JSON holds the same numbers."""

from __future__ import annotations

import json

import pytest

from mgpu.sites import SiteKind
from profiler.analysis.causes import Cause, Detail, recommended_reading
from profiler.build import build_trace
from profiler.report import Report, build_report
from profiler.report_render import render_html, render_markdown
from profiler.report_sections import Section, report_sections
from support.captures import ring_capture
from support.traces import TraceBuilder


@pytest.fixture(scope="module")
def ring() -> Report:
    return build_report(build_trace(ring_capture(num_ctas=4, num_sms=2)))


@pytest.fixture(scope="module")
def cut() -> Report:
    """A ring whose buffers held 30 events a track."""
    return build_report(build_trace(ring_capture(num_ctas=2, capacity=30)))


def test_verdict_names_the_largest_loss(ring: Report) -> None:
    # By hand: 2400 of 4784 cycles busy; 4 bubbles of 312 cycles per CTA on full, held up by empty: 2496 of 9568.
    # How right the predicted gain is, tests/profiler/analysis/test_what_if.py says.
    assert ring.verdict == (
        "tensor core 50% busy on the 2 of 132 SMs in use; largest loss: slot not free on full (26% of kernel), "
        "released by TMA, held up by waits on empty, back-pressure; try first: give every SM work: smaller tiles, or "
        "split K over CTAs (split-K, stream-K), gaining 98% (4,711 cycles) at most; then: one more stage in the ring "
        "full (2 to 3, +16.0 KiB SMEM, fits), gaining 22% (1,064 cycles) by replay"
    )


def test_verdict_of_a_kernel_without_mma() -> None:
    trace = TraceBuilder()
    compute, memory = trace.track("other", 0, 900), trace.track("memory", 0, 900)
    trace.load(memory, 0, 500, "full")
    trace.span(compute, SiteKind.BARRIER_WAIT, 0, 504, "full", 0)
    report = build_report(trace.build())
    assert report.verdict.startswith(
        "no MMA was recorded; longest wait: other on full, 504 cycles, released by tma_load"
    )


@pytest.mark.parametrize("width", [100, 120])
def test_text_fits_and_shows_every_part(ring: Report, width: int) -> None:
    text = ring.to_text(width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "\x1b" not in text
    for part in (
        "Verdict:",
        "Largest tensor-core bubbles",
        "Barrier waits",
        "Steady state",
        "What to try",
        "Critical path",
        "What if",
        "Balance and roofline",
        "2,496",
        "26.1%",
        "ring.py:21",
    ):
        assert part in text


def test_a_kernel_that_only_copies_is_measured_in_bytes() -> None:
    """One load of 4096 bytes in a launch of 900 cycles on one SM."""
    trace = TraceBuilder()
    memory = trace.track("memory", 0, 900)
    trace.load(memory, 0, 500, "full")
    text = build_report(trace.build()).to_text(200)
    assert "no MMA; TMA moved 4.0 KiB, 4.6 bytes/cycle" in text
    assert "bubbles are estimates" not in text


def test_markdown_and_html_hold_every_table(ring: Report) -> None:
    markdown, page = ring.to_markdown(), ring._repr_html_()
    sections = [section for section in report_sections(ring) if section.columns]
    assert markdown.count("\n| ---") == page.count("<table>") == len(sections)
    rows = sum(len(section.rows) for section in sections)
    assert markdown.count("\n| ") == rows + 2 * len(sections)
    assert page.count("<tr>") == rows + len(sections)
    assert "2,496" in markdown
    assert "2,496" in page


def test_markup_in_names_is_harmless() -> None:
    section = Section("a|b <i>", ("x < y",), ("name", "*n"), (("a|b", "1"),))
    assert render_markdown([section]).splitlines()[-1] == r"| a\|b | 1 |"
    assert "&lt;i&gt;" in render_html([section])
    assert "<i>" not in render_html([section])


def test_colour_only_when_asked(ring: Report) -> None:
    assert "\x1b[" in ring.to_text(color=True)


def test_dropped_events_are_always_shown(cut: Report) -> None:
    assert cut.trace.events_dropped > 0
    space = cut.trace.sufficient_profile_space
    text = cut.to_text(200)
    assert f"{cut.trace.events_dropped:,} dropped" in text
    assert f"profile_space={space}" in text
    assert any(f"profile_space={space}" in note for note in cut.to_json()["notes"])
    assert cut.to_json()["analysed_cycles"] < cut.to_json()["kernel_cycles"]


def test_verdict_says_what_it_covers(cut: Report) -> None:
    assert cut.verdict.startswith(f"in the first {cut.window.end:,} of {cut.trace.end:,} cycles: tensor core ")
    assert "in the first" not in cut.verdict.removeprefix("in the first")


def test_nothing_kept_means_nothing_known() -> None:
    report = build_report(build_trace(ring_capture(num_ctas=1, capacity=0)))
    assert report.verdict.startswith("nothing is known")
    assert f"profile_space={report.trace.sufficient_profile_space}" in report.verdict


def test_defects_are_always_shown() -> None:
    trace = TraceBuilder()
    trace.mma(trace.track("compute", 0, 100), 10, 90)
    trace.defect("orphan_end", "3 ends without a begin were left out", 3)
    text = build_report(trace.build()).to_text()
    assert "! orphan_end: 3 ends without a begin were left out" in text


def test_inferred_activity_is_declared() -> None:
    report = build_report(build_trace(ring_capture(activity=False)))
    assert any("inferred" in note for note in report.notes)
    assert "inferred" in report.to_text()


def test_json_is_serialisable_and_agrees(ring: Report) -> None:
    value = json.loads(json.dumps(ring.to_json()))
    assert value["kernel_cycles"] == ring.trace.end
    assert value["kernel_us"] == pytest.approx(ring.trace.end / 1.755e9 * 1e6)
    assert value["bubbles"][0]["total_cycles"] == 2496
    assert value["bubbles"][0]["remedy"] == recommended_reading(Cause.SLOT_NOT_FREE, Detail.BACK_PRESSURE).remedy
    assert len(value["bubbles"]) <= 5
    waits = {row["barrier"]: row for row in value["barrier_waits"]}
    assert waits["full"]["released_by"] == "tma_load"
    assert waits["empty"]["role"] == "memory"
    assert value["tensor_core"]["busy_share_of_used_sms"] == pytest.approx(2400 / 4784)


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_has_a_reading(cause: Cause) -> None:
    for detail in Detail:
        reading = recommended_reading(cause, detail)
        assert reading.meaning
        assert reading.remedy
        assert "https://" in reading.source
