"""The recorder's PTX, run on a small machine: which words it writes, and that it writes no others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu.capture import pack_tag
from mgpu.gpu import ptx
from mgpu.gpu.capture_reader import track_words
from mgpu.gpu.recorder import RecordFormat
from mgpu.params import TraceScope
from mgpu.sites import Edge
from support.ptx_pieces import Memory, Thread

SMEM_BASE, GMEM_BASE = 1024, 1 << 40


class Clock:
    """Special registers of an SM: each reading of a clock is later than the one before."""

    def __init__(self, sm):
        self.sm = sm
        self.cycles = (3 << 32) - 40

    def __call__(self, name):
        self.cycles += 1
        return {
            "%clock": self.cycles & 0xFFFFFFFF,
            "%clock64": self.cycles,
            "%globaltimer": 1000 + self.cycles // 2,
            "%smid": self.sm,
        }[name]


def record(layout, events_of_warp, run_length=1):
    """Runs one CTA whose warp w records `events_of_warp(w)`: (tag, payload or None). Returns its track words.

    A run has `run_length` events; what is left over at the end is settled.
    """
    smem = Memory(SMEM_BASE, 4 * layout.smem_words)
    gmem = Memory(GMEM_BASE, 4 * layout.gmem_words)
    clock = Clock(sm=17)
    options = {"per_warp": layout.per_warp, "in_smem": layout.in_smem}
    addresses = [SMEM_BASE, GMEM_BASE] if layout.in_smem else [GMEM_BASE]
    threads = [Thread(tid, clock, {"shared": smem, "global": gmem}) for tid in range(128 * layout.num_warpgroups)]
    for thread in threads:
        thread.run(ptx.declare(layout.capacity, **options), addresses)
    for number, thread in enumerate(threads):
        events = events_of_warp(number // 32)
        for place, (tag, payload) in enumerate(events):
            within = {"is_first": place % run_length == 0, "is_last": (place + 1) % run_length == 0}
            text = ptx.event(tag, in_smem=layout.in_smem, has_payload=payload is not None, **within)
            thread.run(text, [] if payload is None else [payload])
        if layout.in_smem and len(events) % run_length:
            thread.run(ptx.settle(), [])
    for thread in threads:
        thread.run(ptx.finish(layout.capacity, **options), addresses)
    return gmem.bytes.view(np.uint32).view(track_words(layout.capacity)).reshape(-1)


@pytest.mark.parametrize("in_smem", [True, False])
@pytest.mark.parametrize("scope", list(TraceScope))
def test_each_track_holds_its_own_events(scope, in_smem):
    layout = RecordFormat(4, 2, scope, in_smem)
    tracks = record(layout, lambda warp: [(pack_tag(warp, Edge.BEGIN), None), (pack_tag(warp, Edge.END), 7)])
    assert len(tracks) == layout.num_tracks
    warps = range(8) if scope is TraceScope.WARP else (0, 4)
    for warp, track in zip(warps, tracks, strict=True):
        assert track["count"] == 2
        assert track["sm"] == 17
        assert track["events"][:2, 0].tolist() == [pack_tag(warp, Edge.BEGIN), pack_tag(warp, Edge.END, 7)]
        assert not track["events"][2:].any()
        begin, end = int(track["clock_begin"]), int(track["clock_end"])
        since_begin = [(int(clock) - begin) % 2**32 for clock in track["events"][:2, 1]]
        assert 0 < since_begin[0] < since_begin[1] < end - begin
        assert track["ns_begin"] <= track["ns_end"]


@settings(deadline=None, max_examples=40)
@given(
    count=st.integers(0, 40),
    capacity=st.integers(1, 5),
    in_smem=st.booleans(),
    scope=st.sampled_from(list(TraceScope)),
    run_length=st.integers(1, ptx.RUN_EVENTS),
)
def test_first_events_are_kept_and_all_are_counted(count, capacity, in_smem, scope, run_length):
    layout = RecordFormat(capacity, 1, scope, in_smem)
    tracks = record(layout, lambda warp: [(pack_tag(site, Edge.INSTANT), None) for site in range(count)], run_length)
    kept = min(count, capacity)
    for track in tracks:
        assert track["count"] == count
        assert track["events"][:kept, 0].tolist() == [pack_tag(site, Edge.INSTANT) for site in range(kept)]
        assert not track["events"][kept:].any()


def test_widest_tag_and_payload_fit():
    site, payload = 2**14 - 1, 2**16 - 1
    layout = RecordFormat(1, 1, TraceScope.WARPGROUP, in_smem=True)
    (track,) = record(layout, lambda warp: [(pack_tag(site, Edge.INSTANT), payload)])
    assert track["events"][0, 0] == pack_tag(site, Edge.INSTANT, payload)


def test_sizes_agree_with_the_reader():
    for in_smem in (True, False):
        for scope, tracks in ((TraceScope.WARPGROUP, 3), (TraceScope.WARP, 12)):
            layout = RecordFormat(10, 3, scope, in_smem)
            assert layout.num_tracks == tracks
            assert 4 * layout.gmem_words == tracks * track_words(10).itemsize
            assert layout.smem_words == (tracks * 2 * (10 + ptx.RUN_EVENTS) if in_smem else 0)
