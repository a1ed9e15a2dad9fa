from __future__ import annotations

import pytest

from dashboard.quantities import Units, share_text, time_text


def test_cycles_become_time_at_the_launch_clock() -> None:
    # 1550 cycles at 1.55 GHz are one microsecond.
    units = Units("ns", 1.55e9)
    assert units.convert(1550) == pytest.approx(1000)
    assert units.text(1550) == "1 µs"
    assert units.number(1550) == "1,000"
    assert Units("cycles", 1.55e9).text(1550) == "1,550 cycles"
    assert Units("cycles", 1.55e9).both(3100) == "3,100 cycles = 2 µs"


@pytest.mark.parametrize(
    ("ns", "text"), [(12.34, "12.34 ns"), (999, "999 ns"), (1500, "1.5 µs"), (2.5e6, "2.5 ms"), (3e9, "3 s")]
)
def test_time_gets_a_fitting_unit(ns: float, text: str) -> None:
    assert time_text(ns) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.0, "0.0%"), (0.0004, "<0.1%"), (0.034, "3.4%"), (0.5, "50%"), (1.0, "100%")]
)
def test_shares_keep_what_can_be_read(share: float, text: str) -> None:
    assert share_text(share) == text
