import pytest

from profiler.analysis.balance import find_balance
from profiler.build import build_trace
from support.captures import ring_capture
from support.traces import TraceBuilder


def test_tail_wave_by_hand() -> None:
    """Three CTAs of 100 cycles on two SMs: SM 1 is idle while SM 0 runs the third."""
    trace = TraceBuilder(num_sms=2)
    for cta, (sm, begin) in enumerate([(0, 0), (1, 0), (0, 100)]):
        trace.track("other", begin, begin + 100, sm=sm, cta=cta)
        trace.cta(cta, begin, begin + 100, sm=sm)
    report = find_balance(trace.build())
    assert report.ctas["wave"].to_list() == [0, 0, 1]
    assert report.sms.select("sm", "ctas", "busy_cycles", "idle_cycles").rows() == [(0, 2, 200, 0), (1, 1, 100, 100)]
    assert (report.waves, report.wave_efficiency) == (1.5, 0.75)
    assert (report.tail_cycles, report.unused_sms, report.even_cycles) == (100, 0, 150)
    assert report.imbalance == pytest.approx(200 / 150)
    assert report.occupied_share == pytest.approx(300 / 400)


def test_ctas_that_share_an_sm_count_its_time_once() -> None:
    trace = TraceBuilder(num_sms=1)
    for cta, (begin, end) in enumerate([(0, 100), (50, 150), (200, 250)]):
        trace.track("other", begin, end, cta=cta)
        trace.cta(cta, begin, end)
    report = find_balance(trace.build())
    assert report.sms["busy_cycles"].to_list() == [200]
    assert report.ctas["wave"].to_list() == [0, 0, 1]


def test_sms_without_work_are_counted() -> None:
    report = find_balance(build_trace(ring_capture(num_ctas=4, num_sms=2)))
    assert report.unused_sms == 130
    assert report.sms["ctas"].to_list() == [2, 2]
    assert report.sms["busy_cycles"].to_list() == [report.cycles, report.cycles]
