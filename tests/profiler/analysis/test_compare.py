import dataclasses

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu.errors import ParamsError
from profiler.analysis.compare import compare_reports
from profiler.analysis.conditions import measure, parse_condition
from profiler.build import build_trace
from profiler.report import Report, build_report
from support.captures import ring_capture


def report_of(device: str = "h100", **shape) -> Report:
    capture = ring_capture(**{"num_ctas": 2, "num_sms": 1, **shape})
    header = dataclasses.replace(capture.header, device=device)
    return build_report(build_trace(dataclasses.replace(capture, header=header)))


@pytest.fixture(scope="module")
def two() -> Report:
    return report_of(stages=2)


@pytest.fixture(scope="module")
def three() -> Report:
    return report_of(stages=3)


def test_every_waterfall_sums_to_the_difference(two, three) -> None:
    found = compare_reports(two, three)
    assert found.delta_cycles == three.trace.end - two.trace.end < 0
    assert found.change == pytest.approx(three.trace.end / two.trace.end - 1)
    assert float(found.causes["delta_cycles"].sum()) == pytest.approx(found.delta_cycles)
    for role in ("compute", "memory"):
        rows = found.categories.filter(pl.col("role") == role)
        assert float(rows["delta_cycles"].sum()) == pytest.approx(found.delta_cycles)


def test_what_changed_most_comes_first(two, three) -> None:
    found = compare_reports(two, three)
    assert found.causes.row(0, named=True)["cause"] == "slot not free"
    assert found.waits.row(0, named=True)["barrier"] in ("full", "empty")
    iterations = found.iterations.filter(pl.col("name") == "WG0 compute")
    assert iterations["iteration"].to_list() == list(range(5))
    # Iteration 2 is the first to wait for a slot with two stages, and does not with three: 728 - 204 cycles by hand.
    assert iterations["delta_cycles"].to_list()[0] == 0
    assert found.notes == ("SMEM of a CTA in bytes: 32,768, then 49,152",)


def test_a_launch_against_itself_changes_nothing(two) -> None:
    found = compare_reports(two, two)
    assert found.delta_cycles == 0
    assert found.largest().is_empty()
    assert found.notes == ()


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 4), st.integers(1, 4), st.integers(60, 700), st.integers(60, 700))
def test_any_two_rings_are_explained_to_the_cycle(stages, others, tma, other_tma) -> None:
    compare_reports(report_of(stages=stages, tma_cycles=tma), report_of(stages=others, tma_cycles=other_tma))


def test_other_devices_are_refused_or_converted(two) -> None:
    other = report_of("h200", clock_hz=1.755e9 * 2)
    with pytest.raises(ParamsError, match=r"h100.*h200.*--across-devices"):
        compare_reports(two, other)
    found = compare_reports(two, other, across_devices=True)
    assert found.b_cycles == pytest.approx(two.trace.end / 2)
    assert found.change == pytest.approx(-0.5)
    assert any("converted" in note for note in found.notes)


def test_other_clocks_of_one_device_compare_cycles(two) -> None:
    found = compare_reports(two, report_of(clock_hz=1.0e9))
    assert found.delta_cycles == 0
    assert any("clocks differ" in note for note in found.notes)


def test_conditions(two, three) -> None:
    assert parse_condition("time < -10%").holds(three, two)
    assert not parse_condition("time > +2%").holds(three, two)
    assert parse_condition("cycles > +2%").holds(two, three)
    assert parse_condition(f"cycles <= {two.trace.end}").holds(two)
    assert parse_condition("cycles < -1").holds(three, two)
    share = measure(two, "wait:full")
    assert parse_condition(f"wait:full >= {100 * share - 1}%").holds(two)
    assert not parse_condition("dropped > 0").holds(two)


def test_share_of_waiting_by_hand() -> None:
    """One stage, one iteration: each consumer waits 504 cycles; they live for 628 and 728, the launch's length."""
    report = report_of(num_ctas=1, stages=1, iterations=1)
    assert report.trace.end == 728
    assert measure(report, "wait:full") == pytest.approx(2 * 504 / (628 + 728))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("time", "expected METRIC > VALUE"),
        ("speed > 3", "no metric is called 'speed'"),
        ("time > fast", "expected METRIC"),
    ],
)
def test_malformed_conditions(text, message) -> None:
    with pytest.raises(ParamsError, match=message):
        parse_condition(text)


def test_conditions_that_cannot_be_decided(two) -> None:
    with pytest.raises(ParamsError, match="nothing to compare with"):
        parse_condition("time > +2%").holds(two)
    with pytest.raises(ParamsError, match="only on empty, full"):
        parse_condition("wait:ful > 2%").holds(two)
