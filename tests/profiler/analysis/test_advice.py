"""Planted causes: does the advice name them first, with the right evidence and gain?"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from profiler.analysis.advice import MAX_ITEMS, MIN_GAIN, Advice
from profiler.build import build_trace
from profiler.report import Report, build_report
from support.captures import TILE_BYTES, ring_capture


def report_of(sms: int = 1, smem_bytes: int | None = None, **shape: Any) -> Report:
    """A ring on a device with as many SMs as it uses, so that unused ones are no issue."""
    capture = ring_capture(**{"num_ctas": 1, "iterations": 12, "num_sms": sms, **shape})
    smem = capture.header.smem_bytes if smem_bytes is None else smem_bytes
    header = dataclasses.replace(capture.header, num_sms=sms, smem_bytes=smem, peaks={})
    return build_report(build_trace(dataclasses.replace(capture, header=header)))


def find(report: Report, word: str) -> Advice:
    return next(item for item in report.advice.items if word in item.remedy)


def test_too_few_stages() -> None:
    report = report_of(stages=2)
    first = next(item for item in report.advice.items if item.basis == "replay")
    assert first == find(report, "one more stage in the ring full (2 to 3, +16.0 KiB SMEM, fits)")
    really = report_of(stages=3).trace.end
    assert first.gain_cycles == report.trace.end - really
    assert first.gain_share == pytest.approx(1 - really / report.trace.end)
    assert "waits on full are" in first.evidence
    assert "wait for a free slot on empty" in first.evidence
    assert f"try first: {first.remedy}" in report.verdict


def test_a_stage_that_does_not_fit_says_so() -> None:
    full = 232448 - TILE_BYTES + 1  # one byte too many of the 227 KiB of a CTA
    assert "does not fit" in find(report_of(stages=2, smem_bytes=full), "one more stage").remedy
    tight = 232448 - TILE_BYTES
    assert "without the event buffer" in find(report_of(stages=2, smem_bytes=tight), "one more stage").remedy


def test_enough_stages_are_not_advised() -> None:
    report = report_of(stages=6, mma_cycles=300, tma_cycles=200)
    assert not [item for item in report.advice.items if "stage" in item.remedy]
    assert report.advice.limit.split(" of the critical path is ")[1] == "MMA throughput at ring.py:22"
    assert find(report, "wider MMAs").basis == "replay"


@pytest.mark.parametrize(("held_cycles", "stages"), [(0, 2), (300, 2), (300, 1)])
def test_slots_that_are_released_late_are_named(held_cycles: int, stages: int) -> None:
    shape = {"stages": stages, "tma_cycles": 700, "mma_cycles": 60}
    report = report_of(**shape, hold_cycles=held_cycles)
    found = [item for item in report.advice.items if item.remedy.startswith("arrive on empty as soon as the MMA")]
    if not held_cycles:
        assert found == []
        return
    (item,) = found
    # The ring releases at once if consumers do their other work after the arrival: built that way, it takes so long.
    really = report_of(**shape, late_cycles=held_cycles).trace.end
    assert item.gain_cycles == pytest.approx(report.trace.end - really, abs=20)
    assert f"released {held_cycles} cycles (median) after the MMA" in item.evidence


def test_the_tensor_cores_rate_is_blamed_only_where_it_binds() -> None:
    slow = report_of(stages=4, iterations=30, hold_cycles=600)  # the consumers' own code is four fifths of the path
    assert not [item for item in slow.advice.items if "wider MMAs" in item.remedy]
    assert "code of the compute warpgroups" in slow.advice.items[0].evidence
    bound = report_of(stages=6, iterations=30)
    assert "tensor core's own rate" in find(bound, "wider MMAs").evidence


def test_a_tail_wave_is_named() -> None:
    report = report_of(sms=2, num_ctas=3)
    tail = find(report, "last wave")
    assert f"try first: {report.advice.items[0].remedy}" in report.verdict
    assert tail.basis == "at most"
    assert tail.gain_cycles == report.trace.end - report.trace.end * 3 // 4
    assert "1.50 waves" in tail.evidence


def test_unused_sms_are_named() -> None:
    capture = ring_capture(num_ctas=2)
    report = build_report(build_trace(capture))
    assert "2 CTAs use 2 of 132 SMs" in find(report, "every SM").evidence


def test_advice_is_short_ranked_and_worth_it() -> None:
    items = report_of(stages=1).advice.items
    assert 0 < len(items) <= MAX_ITEMS
    gains = [item.gain_cycles if item.basis == "replay" else item.gain_cycles / 2 for item in items]
    assert gains == sorted(gains, reverse=True)
    assert all(item.gain_share >= MIN_GAIN for item in items)
    assert all(("by replay" in item.gain_text) == (item.basis == "replay") for item in items)
