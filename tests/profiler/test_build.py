"""The ring pipeline's Trace against times computed by hand (support.captures says how)."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from mgpu.capture import HBM_DTYPE, Capture
from profiler.blocks import cut_into_blocks
from profiler.build import build_trace
from profiler.check import check_trace
from profiler.trace import SCHEMAS
from support.captures import ring_capture


def rows(frame: pl.DataFrame, *columns: str) -> list[tuple]:
    return frame.select(columns).rows()


def test_tracks_have_roles_by_what_they_issue() -> None:
    tracks = build_trace(ring_capture(num_ctas=2)).tracks
    assert tracks["name"].to_list() == ["WG0 compute", "WG1 compute", "WG2 memory"] * 2
    assert tracks["role"].to_list() == ["compute", "compute", "memory"] * 2
    assert rows(tracks, "begin", "end", "kept", "dropped", "last")[:3] == [
        (0, 2292, 54, 0, 2292),
        (0, 2392, 54, 0, 2392),
        (0, 1684, 32, 0, 1684),
    ]


def test_roles_are_known_from_unit_activity_when_nothing_was_recorded() -> None:
    tracks = build_trace(ring_capture(num_ctas=1, capacity=0)).tracks
    assert tracks["role"].to_list() == ["compute", "compute", "memory"]


def test_warp_tracks() -> None:
    trace = build_trace(ring_capture(num_ctas=1, trace_scope="warp"))
    assert trace.tracks["name"].to_list()[-4:] == [f"WG2 warp {warp} memory" for warp in range(4)]
    assert trace.spans.height == 4 * 64
    assert check_trace(trace) == []


def test_spans_nest_and_own_their_time() -> None:
    spans = build_trace(ring_capture(num_ctas=1)).spans
    third_load = spans.filter(pl.col("track") == 2)[4:7]
    assert rows(third_load, "name", "parent", "depth", "begin", "dur", "self_dur", "slot", "phase") == [
        ("load", -1, 0, 40, 712, 0, -1, -1),
        ("barrier_wait empty", 52, 1, 40, 692, 692, 0, 0),
        ("copy_gmem_to_smem a", 52, 1, 732, 20, 20, 0, 1),
    ]
    assert spans["category"].unique().sort().to_list() == ["busy", "overhead", "wait"]


def test_waits_meet_the_arrival_of_their_phase() -> None:
    waits = build_trace(ring_capture(num_ctas=1)).waits
    memory = waits.filter(pl.col("role") == "memory")
    assert rows(memory, "barrier", "slot", "phase", "begin", "dur", "blocked", "released_at", "released_by") == [
        ("empty", 0, 0, 40, 692, True, 728, "WG1"),
        ("empty", 1, 0, 752, 180, True, 928, "WG1"),
        ("empty", 0, 1, 952, 512, True, 1460, "WG1"),
        ("empty", 1, 1, 1484, 180, True, 1660, "WG1"),
    ]
    first = waits.filter(pl.col("track") == 0)
    assert rows(first, "slot", "phase", "begin", "dur", "blocked", "released_at", "released_by_role")[:3] == [
        (0, 0, 0, 504, True, 500, "tma_load"),
        (1, 0, 628, 4, False, 520, "tma_load"),
        (0, 1, 828, 408, True, 1232, "tma_load"),
    ]
    assert memory["released_by_role"].unique().to_list() == ["compute"]


def test_arrivals_know_who_is_behind_them() -> None:
    trace = build_trace(ring_capture(num_ctas=2))
    arrivals = trace.arrivals.filter(pl.col("cta") == 1)
    assert rows(arrivals, "barrier", "slot", "phase", "time", "source", "source_track", "completes")[:4] == [
        ("full", 0, 0, 500, "tma_load", 5, True),
        ("full", 1, 0, 520, "tma_load", 5, True),
        ("empty", 0, 0, 628, "WG0", 3, False),
        ("empty", 0, 0, 728, "WG1", 4, True),
    ]
    instants = trace.instants[arrivals.filter(pl.col("source") != "tma_load")["source_event"].to_list()]
    assert instants["time"].to_list() == arrivals.filter(pl.col("source") != "tma_load")["time"].to_list()
    loads = trace.async_spans[arrivals.filter(pl.col("source") == "tma_load")["source_event"].to_list()]
    assert (loads["begin"] + loads["dur"]).to_list() == arrivals.filter(pl.col("source") == "tma_load")[
        "time"
    ].to_list()
    assert loads["cta"].unique().to_list() == [1]


def test_tensor_core_counter_by_hand() -> None:
    busy = build_trace(ring_capture(num_ctas=1, iterations=3)).counters.filter(pl.col("counter") == "tensor core busy")
    # Both consumers' MMAs of two tiles back to back; the third tile lands at 1232, 500 after its slot was free.
    assert rows(busy, "sm", "time", "value") == [(0, 524, 1), (0, 924, 0), (0, 1256, 1), (0, 1456, 0)]


def test_hbm_counters_are_rates_over_stretches() -> None:
    hbm = np.zeros(4, HBM_DTYPE)
    hbm["begin"] = [1024, 1280, 2048, 4096]
    hbm["read_bytes"] = [2560, 5120, 0, 256]
    hbm["write_bytes"] = [0, 0, 512, 0]
    capture = dataclasses.replace(ring_capture(num_ctas=1, clock_hz=1e9), hbm=hbm)
    counters = build_trace(capture).counters.filter(pl.col("sm") < 0)
    assert counters["unit"].unique().to_list() == ["GB/s"]
    # 2560 bytes in 256 cycles of 1 ns are 10 GB/s; the launch begins at cycle 1000.
    read, written = (counters.filter(pl.col("counter") == name) for name in ("HBM read", "HBM write"))
    assert rows(read, "time", "value") == [(24, 10), (280, 20), (536, 0), (3096, 1), (3352, 0)]
    assert rows(written, "time", "value") == [(1048, 2), (1304, 0)]


def test_counters_by_hand() -> None:
    counters = build_trace(ring_capture(num_ctas=1, iterations=3)).counters
    assert rows(counters.filter(pl.col("counter") == "full slots full"), "time", "value") == [
        *((500, 1), (520, 2), (728, 1), (928, 0)),  # filled twice, released by the second consumer's arrivals
        *((1232, 1), (1460, 0)),
    ]
    assert rows(counters.filter(pl.col("counter") == "tma bytes in flight"), "time", "value") == [
        *((0, 16384), (20, 32768), (500, 16384), (520, 0)),
        *((732, 16384), (1232, 0)),
    ]


def test_a_slot_without_an_empty_barrier_is_full_until_its_next_load() -> None:
    capture = ring_capture(num_ctas=1, iterations=3)
    # With more slots than iterations the memory warpgroup never waits; with fewer, its waits are left out here.
    sites = tuple(site for site in capture.header.sites if site.name != "barrier_wait empty")
    trace = build_trace(dataclasses.replace(capture, header=dataclasses.replace(capture.header, sites=sites)))
    full = trace.counters.filter(pl.col("counter") == "full slots full")
    assert rows(full, "time", "value") == [(500, 1), (520, 2), (732, 1), (1232, 2)]


def test_a_later_start_changes_only_the_origin() -> None:
    early, late = build_trace(ring_capture()), build_trace(ring_capture(start_cycles=(3 << 32) - 500))
    assert late.origin_cycles - early.origin_cycles == (3 << 32) - 1500
    for name in ("tracks", "spans", "arrivals", "waits", "counters", "async_spans"):
        assert late.table(name).equals(early.table(name)), name


def test_ctas_follow_each_other_on_an_sm() -> None:
    trace = build_trace(ring_capture(num_ctas=4, num_sms=2))
    assert rows(trace.ctas, "cta", "sm", "begin", "end") == [
        (0, 0, 0, 2392),
        (1, 1, 0, 2392),
        (2, 0, 2392, 4784),
        (3, 1, 2392, 4784),
    ]
    assert trace.end == 4784
    assert check_trace(trace) == []


def test_a_full_buffer_keeps_what_is_known() -> None:
    trace = build_trace(ring_capture(num_ctas=1, capacity=20))
    assert trace.events_dropped == 34 + 34 + 12
    assert trace.sufficient_profile_space == 54
    assert check_trace(trace) == []
    unclosed = trace.spans.filter(~pl.col("closed"))
    assert unclosed.height == trace.defects.filter(pl.col("kind") == "unclosed")["count"].sum()
    lasts = trace.tracks["last"].to_list()
    assert all(row["begin"] + row["dur"] == lasts[row["track"]] for row in unclosed.iter_rows(named=True))
    # Arrivals are activity, not events: none is lost, and none is tied to an instant that was not kept.
    tied = trace.arrivals.filter(pl.col("source").str.starts_with("WG"), pl.col("source_event") >= 0)
    assert sorted(tied["source_event"].to_list()) == list(range(trace.instants.height))
    assert tied["time"].to_list() == trace.instants[tied["source_event"].to_list()]["time"].to_list()


def test_a_capture_file_gives_the_same_trace(tmp_path) -> None:
    capture = ring_capture()
    capture.save(tmp_path / "capture.npz")
    again = build_trace(Capture.load(tmp_path / "capture.npz"))
    assert again.spans.equals(build_trace(capture).spans)


def test_nothing_recorded_at_all() -> None:
    capture = ring_capture(num_ctas=1, capacity=0, activity=False)
    trace = build_trace(capture)
    assert trace.spans.is_empty()
    assert trace.waits.is_empty()
    assert trace.end == 2392
    assert check_trace(trace) == []


@pytest.mark.parametrize("size", [1, 37, 1000])
def test_the_size_of_blocks_does_not_show(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    captures = [ring_capture(num_ctas=3, iterations=20), ring_capture(num_ctas=3, capacity=21, activity=False)]
    for capture in captures:
        whole = build_trace(capture)
        monkeypatch.setattr("profiler.build.BLOCK_EVENTS", size)
        in_blocks = build_trace(capture)
        monkeypatch.undo()
        for name in SCHEMAS:
            assert in_blocks.table(name).equals(whole.table(name)), name


def test_blocks_end_where_tracks_end() -> None:
    offsets = ring_capture(num_ctas=2).offsets  # tracks of 54, 54, 32, 54, 54, 32 events
    assert cut_into_blocks(offsets, 60) == [(0, 2), (2, 3), (3, 4), (4, 5), (5, 6)]
    assert cut_into_blocks(offsets, 1000) == [(0, 6)]
    assert cut_into_blocks(offsets[:1], 60) == []
