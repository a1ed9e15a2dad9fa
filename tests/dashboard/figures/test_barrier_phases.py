from __future__ import annotations

import dataclasses
import json

import polars as pl

from dashboard import figures
from dashboard.figures.barrier_phases import MAX_PHASES, barrier_phases
from dashboard.quantities import Units
from dashboard.store import LoadedLaunch

CYCLES = Units("cycles", 1.755e9)


def test_phases_of_the_ring_are_those_worked_out_by_hand(ring: LoadedLaunch) -> None:
    # Loads 0 and 1 land 500 and 520 after the start; empty[0] completes when WG1 sees the result of its first MMA, 728.
    full = barrier_phases(ring.trace, "full", 0)
    assert full.total == full.phases.height == 6
    assert full.phases.filter(pl.col("phase") == 0).rows() == [(0, 0, 0, 500), (1, 0, 0, 520)]
    empty = barrier_phases(ring.trace, "empty", 0)
    assert empty.phases.row(0) == (0, 0, 0, 728)
    assert empty.arrivals.filter((pl.col("slot") == 0) & (pl.col("phase") == 0))["time"].to_list() == [628, 728]
    assert empty.waiters == ["WG2 memory"]


def test_a_slots_phases_follow_each_other_without_a_gap(matmul: LoadedLaunch) -> None:
    found = barrier_phases(matmul.trace, "full", 0)
    for slot in found.phases.partition_by("slot"):
        assert slot["begin"].to_list() == [0, *slot["end"].to_list()[:-1]]
        assert slot["phase"].to_list() == list(range(slot.height))


def test_window_and_limit_leave_phases_out_and_say_how_many(ring: LoadedLaunch) -> None:
    found = barrier_phases(ring.trace, "full", 0, 510, 600)
    assert found.phases.select("slot", "phase").rows() == [(0, 1), (1, 0), (1, 1)]
    assert found.total == 6
    many = ring.trace.arrivals.filter((pl.col("cta") == 0) & (pl.col("barrier") == "full")).head(1)
    rows = many.select(pl.all().repeat_by(MAX_PHASES + 5).explode()).with_columns(
        phase=pl.int_range(MAX_PHASES + 5), time=pl.int_range(MAX_PHASES + 5) * 10
    )
    found = barrier_phases(dataclasses.replace(ring.trace, arrivals=rows), "full", 0)
    assert (found.phases.height, found.total) == (MAX_PHASES, MAX_PHASES + 5)


def test_strip_draws_every_phase_wait_and_arrival(matmul: LoadedLaunch) -> None:
    found = barrier_phases(matmul.trace, "full", 0)
    figure = figures.phase_strip(found, CYCLES)
    drawn = {trace["name"]: len(trace["x"]) for trace in json.loads(figure.to_json() or "")["data"]}
    assert drawn["even phase"] + drawn["odd phase"] == found.phases.height
    assert drawn["arrival"] + drawn["completes the phase"] == found.arrivals.height
    assert drawn["completes the phase"] == found.phases.height
    assert sum(count for name, count in drawn.items() if name.endswith("waits")) == found.waits.height
