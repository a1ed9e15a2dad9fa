from __future__ import annotations

import polars as pl
import pytest

from dashboard.quantities import Units
from dashboard.store import LoadedLaunch
from dashboard.timeline.search import find_hit, matching_styles
from dashboard.timeline.selection import describe_selection


def all_hits(launch: LoadedLaunch, text: str) -> list[str]:
    first = find_hit(launch.report, launch.timeline, text, 0)
    return [find_hit(launch.report, launch.timeline, text, hit).key for hit in range(first.total)]


def test_barrier_is_found_wherever_it_is_used(ring: LoadedLaunch) -> None:
    trace = ring.trace
    keys = all_hits(ring, "EMPTY")
    waits = trace.waits.filter(pl.col("barrier") == "empty")["span"].to_list()
    arrives = trace.instants.filter(pl.col("name") == "barrier_arrive empty")["instant"].to_list()
    assert sorted(keys) == sorted([*(f"span:{span}" for span in waits), *(f"instant:{one}" for one in arrives)])


def test_source_line_finds_the_site_and_its_asynchronous_work(ring: LoadedLaunch) -> None:
    # Line 12 is the TMA load: one issue and one transfer for each of two CTAs' six tiles.
    keys = all_hits(ring, "ring.py:12")
    assert len(keys) == 2 * 2 * 6
    assert {key.partition(":")[0] for key in keys} == {"span", "async"}


def test_cause_finds_the_bubbles(ring: LoadedLaunch) -> None:
    keys = all_hits(ring, "slot not free")
    expected = ring.report.bubbles.bubbles.filter(pl.col("cause") == "slot not free").height
    assert len(keys) == expected > 0
    assert all(key.startswith("loss:") for key in keys)


def test_hits_follow_the_rows_and_in_a_row_the_time(matmul: LoadedLaunch) -> None:
    units = Units("cycles", 1e9)
    row_number = {row.key: number for number, row in enumerate(matmul.timeline.rows)}
    places = []
    for key in all_hits(matmul, "wait full"):
        found = describe_selection(matmul.report, key, units)
        assert found is not None
        places.append((row_number[found.row], found.begin))
    assert places == sorted(places)
    assert len(set(places)) == len(places) == matmul.trace.waits.filter(pl.col("barrier") == "full").height


def test_first_hit_is_the_one_in_view_and_the_last_leads_to_the_first(ring: LoadedLaunch) -> None:
    row = next(number for number, row in enumerate(ring.timeline.rows) if row.key == "track:0")
    answer = find_hit(ring.report, ring.timeline, "wait full", row=row, t0=505)
    spans = ring.trace.waits.filter((pl.col("track") == 0) & (pl.col("begin") + pl.col("dur") >= 505))
    assert answer.key == f"span:{spans.sort('begin')['span'][0]}"
    assert find_hit(ring.report, ring.timeline, "wait full", answer.total).hit == 0


@pytest.mark.parametrize("text", ["", "   ", "no such thing", "counter"])
def test_nothing_is_found_where_nothing_is(ring: LoadedLaunch, text: str) -> None:
    answer = find_hit(ring.report, ring.timeline, text)
    assert (answer.total, answer.hit, answer.key, answer.styles) == (0, -1, "", [])


def test_every_style_of_a_hit_is_named(ring: LoadedLaunch) -> None:
    styles = matching_styles(ring.report, ring.timeline, "full")
    assert {ring.timeline.styles.styles[number].name for number in styles} == {
        "barrier_wait full",
        "copy_gmem_to_smem a",
    }
