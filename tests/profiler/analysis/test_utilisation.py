"""Use of the tensor cores against sums by hand."""

from __future__ import annotations

import pytest

from profiler.analysis.utilisation import tensor_core_utilisation
from support.traces import TraceBuilder


def test_busy_share_and_rate() -> None:
    trace = TraceBuilder(num_sms=4, peak=4096.0)
    for sm in range(2):
        track = trace.track("compute", 0, 1000, sm=sm, cta=sm)
        trace.mma(track, 100, 300, flops=1_000_000)
        trace.mma(track, 250, 500, flops=1_000_000)
    use = tensor_core_utilisation(trace.build())
    assert (use.busy_cycles, use.sms_used, use.sms) == (800, 2, 4)
    assert use.busy_share == pytest.approx(0.2)
    assert use.busy_share_of_used_sms == pytest.approx(0.4)
    assert use.flops_per_cycle == pytest.approx(1000.0)
    assert use.peak_share == pytest.approx(1000 / 4096)


def test_without_a_peak_there_is_no_share_of_it() -> None:
    trace = TraceBuilder()
    trace.mma(trace.track("compute", 0, 100), 0, 50, flops=10)
    assert tensor_core_utilisation(trace.build()).peak_share == 0.0


def test_work_that_ends_after_the_window_does_not_count() -> None:
    trace = TraceBuilder()
    track = trace.track("compute", 0, 1000, known_until=400)
    trace.mma(track, 100, 200, flops=7)
    trace.mma(track, 350, 600, flops=7)
    use = tensor_core_utilisation(trace.build())
    assert (use.flops, use.busy_cycles, use.busy_share) == (7, 150, pytest.approx(150 / 400))
