"""The ring of `support.captures` with its defaults: see there for the times. Time 0 of the trace is SM clock 1000."""

from __future__ import annotations

import pytest

from dashboard.quantities import Units
from dashboard.store import LoadedLaunch
from dashboard.timeline.selection import Selection, describe_selection

CYCLES = Units("cycles", 1.755e9)


def select(launch: LoadedLaunch, key: str) -> Selection:
    found = describe_selection(launch.report, key, CYCLES)
    assert found is not None
    return found


def first_wait(launch: LoadedLaunch, barrier: str) -> int:
    waits = launch.trace.waits
    return int(waits.filter((waits["barrier"] == barrier) & waits["blocked"] & (waits["cta"] == 0))["span"][0])


def test_a_wait_for_data_points_at_the_load_that_ended_it(ring: LoadedLaunch) -> None:
    found = select(ring, f"span:{first_wait(ring, 'full')}")
    facts = dict(found.facts)
    assert (found.begin, found.end) == (0, 504)
    assert facts["blocked"].startswith("504 cycles")
    assert facts["released by"] == "TMA load"
    assert facts["source"] == "ring.py:21"
    [arrow] = found.arrows
    assert (arrow.from_row, arrow.from_time) == ("unit:tma_load:0", 500)
    assert (arrow.to_row, arrow.to_time) == ("track:0", 504)


def test_a_wait_for_a_slot_points_at_the_warpgroup_that_released_it(ring: LoadedLaunch) -> None:
    # The memory warpgroup is blocked from 40 until WG1, the later consumer, arrives at 728.
    found = select(ring, f"span:{first_wait(ring, 'empty')}")
    assert (found.begin, found.end) == (40, 732)
    [arrow] = found.arrows
    assert (arrow.from_row, arrow.from_time, arrow.to_row) == ("track:1", 728, "track:2")
    assert dict(found.facts)["released by"] == "WG1 (compute)"
    arrival = select(ring, found.related[0][1])
    assert (arrival.begin, arrival.row) == (728, "track:1")
    assert arrival.arrows[0].to_row == "track:2"


def test_a_load_points_at_both_consumers_that_waited_for_it(ring: LoadedLaunch) -> None:
    loads = ring.trace.async_spans
    first = loads.filter((loads["unit"] == "tma_load") & (loads["cta"] == 0))["async_span"][0]
    found = select(ring, f"async:{first}")
    assert dict(found.facts)["moves"].startswith("16,384 bytes")
    assert {arrow.to_row for arrow in found.arrows} == {"track:0", "track:1"}


def test_a_bubble_is_found_by_place_and_by_number(ring: LoadedLaunch) -> None:
    bubble = ring.report.bubbles.bubbles.row(0, named=True)
    by_place = select(ring, f"bubble:{bubble['sm']}:{bubble['begin']}")
    assert by_place == select(ring, "loss:0")
    assert by_place.end - by_place.begin == bubble["dur"]
    assert "try" in dict(by_place.facts)


@pytest.mark.parametrize(
    "key",
    ["", "span", "span:", "span:99999999", "span:-1", "span:1e9", "file:1", "bubble:1", "loss:" + "9" * 60, "cta:77"],
)
def test_what_is_not_there_is_none(ring: LoadedLaunch, key: str) -> None:
    assert describe_selection(ring.report, key, CYCLES) is None
