"""A capture without activity, as a GPU makes it: what is recorded, what is inferred, and how far off that may be."""

from typing import Any

import polars as pl
import pytest

from profiler.build import build_trace
from profiler.check import check_trace
from support.captures import ring_capture

RING: dict[str, Any] = {"num_ctas": 4, "num_sms": 2, "iterations": 8, "stages": 3}


@pytest.fixture(scope="module", params=["warpgroup", "warp"])
def measured(request):
    offsets = (0, 123_456_789_000)
    return build_trace(
        ring_capture(**RING, activity=False, trace_scope=request.param, sm_clock_offsets=offsets, clock_hz=1e9)
    )


@pytest.fixture(scope="module")
def simulated():
    return build_trace(ring_capture(**RING, clock_hz=1e9))


def test_recorded_arrivals_are_those_of_the_simulation(measured, simulated) -> None:
    keys = ["cta", "barrier", "slot", "phase"]
    recorded = measured.arrivals.filter(pl.col("provenance") == "recorded")
    true = simulated.arrivals.filter(pl.col("barrier") == "empty")
    columns = [*keys, "time", "source", "completes"]
    assert recorded.select(columns).sort(columns).equals(true.select(columns).sort(columns))


def test_landings_are_inferred_never_too_early(measured, simulated) -> None:
    keys = ["cta", "barrier", "slot", "phase"]
    inferred = measured.arrivals.filter(pl.col("provenance") == "inferred")
    true = simulated.arrivals.filter(pl.col("barrier") == "full")
    both = true.join(inferred, on=keys, suffix="_inferred", validate="1:1")
    assert both.height == true.height == inferred.height
    late = both["time_inferred"] - both["time"]
    assert late.min() >= 0
    # Where a consumer was blocked, the landing is known to within its wake-up (4 cycles).
    blocked = simulated.waits.filter(pl.col("blocked"), pl.col("barrier") == "full").select(keys).unique()
    assert blocked.height > 0
    assert both.with_columns(late=late).join(blocked, on=keys, how="semi")["late"].max() == 4


def test_sms_are_aligned_and_waits_matched(measured, simulated) -> None:
    assert measured.alignment_residual_cycles <= 1
    assert measured.tracks["begin"].unique().sort().to_list() == simulated.tracks["begin"].unique().sort().to_list()
    one_warp = measured.tracks.filter(pl.col("warp") <= 0).select("track")
    memory = measured.waits.join(one_warp, on="track").filter(pl.col("barrier") == "empty")
    columns = ["cta", "slot", "phase", "begin", "dur", "blocked", "released_at", "released_by"]
    expected = simulated.waits.filter(pl.col("barrier") == "empty").select(columns)
    assert memory.select(columns).sort(columns).equals(expected.sort(columns))
    assert check_trace(measured) == []


def test_loads_are_inferred_from_issue_to_landing(measured) -> None:
    loads = measured.async_spans.filter(pl.col("unit") == "tma_load")
    assert loads["provenance"].unique().to_list() == ["inferred"]
    assert loads.height == 4 * 8
    assert loads["dur"].min() == 504
    assert loads["bytes"].unique().to_list() == [16384]


def test_phases_are_counted_only_while_no_event_is_lost() -> None:
    cut = build_trace(ring_capture(**RING, activity=False, capacity=30, clock_hz=1e9))
    whole = build_trace(ring_capture(**RING, activity=False, clock_hz=1e9))
    keys = ["cta", "barrier", "slot", "phase", "source"]
    joined = cut.arrivals.filter(pl.col("provenance") == "recorded").join(whole.arrivals, on=keys, suffix="_whole")
    assert 0 < joined.height < whole.arrivals.height
    assert joined["time"].to_list() == joined["time_whole"].to_list()
