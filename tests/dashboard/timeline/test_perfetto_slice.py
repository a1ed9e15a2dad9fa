from __future__ import annotations

import sqlite3

import pytest

from dashboard.state import ViewState
from dashboard.store import LoadedLaunch
from dashboard.timeline.perfetto_slice import perfetto_target

# Tracks as the trace file nests them: SM > CTA > warpgroup, and SM > unit; and the first slices of each.
TRACKS = [(1, "SM 000", None), (2, "CTA 0 (m=0)", 1), (3, "WG0 compute", 2), (4, "TMA loads", 1)]
TRACKS += [(11, "SM 001", None), (12, "CTA 1 (m=1)", 11), (13, "WG0 compute", 12), (14, "TMA loads", 11)]
SLICES = [
    (100 + sm, 3 + 10 * sm, begin, dur, name)
    for sm in (0, 1)
    for begin, dur, name in ((0, 624, "compute"), (0, 504, "barrier_wait full"), (624, 104, "other"))
]
SLICES = [(number, *row[1:]) for number, row in enumerate(SLICES)]


@pytest.fixture
def tables() -> sqlite3.Connection:
    """The two tables of Perfetto's trace processor that a query reads, for both CTAs of the hand-made ring."""
    connection = sqlite3.connect(":memory:")
    connection.execute("create table track (id, name, parent_id)")
    connection.execute("create table slice (id, track_id, ts, dur, name)")
    connection.executemany("insert into track values (?, ?, ?)", TRACKS)
    connection.executemany("insert into slice values (?, ?, ?, ?, ?)", SLICES)
    return connection


def test_wait_is_found_on_its_own_sm(ring: LoadedLaunch, tables: sqlite3.Connection) -> None:
    waits = ring.trace.waits.filter((ring.trace.waits["begin"] == 0) & (ring.trace.waits["warpgroup"] == 0))
    assert waits["sm"].to_list() == [0, 1]
    found = []
    for span in waits["span"].to_list():
        target = perfetto_target(ring.report, ViewState(sel=f"span:{span}"))
        assert target is not None
        found += tables.execute(target.query).fetchall()
    assert [SLICES[number][1:] for (number,) in found] == [
        (3, 0, 504, "barrier_wait full"),
        (13, 0, 504, "barrier_wait full"),
    ]


def test_bubble_is_the_innermost_slice_of_the_warpgroup_that_explains_it(ring: LoadedLaunch) -> None:
    bubble = ring.report.bubbles.bubbles.row(0, named=True)
    target = perfetto_target(ring.report, ViewState(sel=f"bubble:{bubble['sm']}:{bubble['begin']}"))
    assert target is not None
    assert target.begin <= bubble["begin"] < bubble["begin"] + bubble["dur"] <= target.end
    covering = ring.trace.spans.filter(
        (ring.trace.spans["track"] == bubble["track"])
        & (ring.trace.spans["begin"] <= bubble["begin"])
        & (ring.trace.spans["begin"] + ring.trace.spans["dur"] > bubble["begin"])
    ).sort("depth")
    innermost = covering.row(-1, named=True)
    assert f"slice.ts = {innermost['begin']} and slice.dur = {innermost['dur']}" in target.query
    assert f"slice.name = '{innermost['name']}'" in target.query


def test_window_alone_is_only_zoomed_to(ring: LoadedLaunch) -> None:
    target = perfetto_target(ring.report, ViewState(t0=10, t1=90))
    assert target is not None
    assert (target.begin, target.end, target.query) == (10, 90, "")
    assert perfetto_target(ring.report, ViewState()) is None
    assert perfetto_target(ring.report, ViewState(sel="span:999999999")) is None
