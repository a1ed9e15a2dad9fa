"""A written file, read back with the perfetto package and replayed as Perfetto's importer does: a stack per track."""

import gzip
from collections import Counter, defaultdict

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackDescriptor, TrackEvent

from mgpu.errors import CaptureError, ParamsError
from profiler.build import build_trace
from profiler.export.batches import nesting_order
from profiler.export.perfetto import ExportCounts, export_perfetto
from support.captures import ring_capture


class Replay:
    """What a Perfetto UI would show of a file."""

    def __init__(self, data: bytes) -> None:
        packets = TraceMessage.FromString(data).packet
        interned = packets[0].interned_data
        self.names = {entry.iid: entry.name for entry in interned.event_names}
        self.arg_names = {entry.iid: entry.name for entry in interned.debug_annotation_names}
        self.strings = {entry.iid: entry.str.decode() for entry in interned.debug_annotation_string_values}
        self.tracks = {p.track_descriptor.uuid: p.track_descriptor for p in packets if p.HasField("track_descriptor")}
        self.slices, self.instants, self.counters = [], [], []
        self.starts, self.ends = Counter(), Counter()
        self.flow_times = defaultdict(list)
        open_slices = defaultdict(list)
        assert packets[0].sequence_flags == 1
        assert all(packet.trusted_packet_sequence_id == 1 for packet in packets)
        events = [packet for packet in packets if packet.HasField("track_event")]
        for packet in sorted(events, key=lambda packet: packet.timestamp):  # stable, as the importer's
            event = packet.track_event
            assert event.track_uuid in self.tracks
            self.starts.update(event.flow_ids)
            self.ends.update(event.terminating_flow_ids)
            for flow in [*event.flow_ids, *event.terminating_flow_ids]:
                self.flow_times[flow].append(packet.timestamp)
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                open_slices[event.track_uuid].append((packet.timestamp, event))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                begin, opened = open_slices[event.track_uuid].pop()
                depth = len(open_slices[event.track_uuid])
                row = (self.path(opened.track_uuid), depth, self.name(opened), begin, packet.timestamp - begin)
                self.slices.append((*row, self.args(opened)))
            elif event.type == TrackEvent.TYPE_INSTANT:
                self.instants.append((self.path(event.track_uuid), self.name(event), packet.timestamp))
            else:
                self.counters.append((self.path(event.track_uuid), packet.timestamp, event.counter_value))
        assert not any(open_slices.values())

    def name(self, event) -> str:
        return event.name or self.names[event.name_iid]

    def args(self, event) -> dict:
        found = {}
        for arg in event.debug_annotations:
            name = arg.name or self.arg_names[arg.name_iid]
            kind = arg.WhichOneof("value")
            found[name] = self.strings[arg.string_value_iid] if kind == "string_value_iid" else getattr(arg, kind)
        return found

    def path(self, uuid: int) -> str:
        track = self.tracks[uuid]
        return f"{self.path(track.parent_uuid)}/{track.name}" if track.parent_uuid else ""


def export(trace, folder, **options):
    counts = export_perfetto(trace, folder / "t.pftrace", **options)
    return counts, Replay((folder / "t.pftrace").read_bytes())


VARIANTS = [
    {},
    {"num_ctas": 4, "num_sms": 2},
    {"activity": False},
    {"trace_scope": "warp", "capacity": 17},
    {"wake_cycles": 0, "issue_cycles": 0, "tma_cycles": 0, "mma_cycles": 0},
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_counts_are_exactly_what_the_file_holds(tmp_path, variant) -> None:
    counts, replay = export(build_trace(ring_capture(**variant)), tmp_path)
    assert counts.slices == len(replay.slices)
    assert counts.instants == len(replay.instants)
    assert counts.counters == len(replay.counters)
    assert counts.tracks == len(replay.tracks)
    assert replay.starts.keys() == replay.ends.keys()
    assert set(replay.starts.values()) | set(replay.ends.values()) <= {1}
    assert counts.flows == len(replay.starts)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_span_is_drawn_as_it_is(tmp_path, variant) -> None:
    trace = build_trace(ring_capture(**variant))
    _, replay = export(trace, tmp_path)
    tracks = trace.tracks.select("track", "sm", "cta", track_name="name")
    spans = trace.spans.join(tracks, on="track")
    path = pl.format("/SM {}/CTA {} (m={})/{}", pl.col("sm").cast(pl.String).str.zfill(3), "cta", "cta", "track_name")
    expected = spans.select(path.alias("path"), "depth", "name", "begin", "dur").rows()
    found = [row[:5] for row in replay.slices if "/WG" in row[0] and row[2] != "not recorded"]
    assert sorted(found) == sorted(expected)
    unit_rows = [row for row in replay.slices if row[0].count("/") == 2]
    assert len(unit_rows) == trace.async_spans.height
    assert sum(row[4] for row in unit_rows) == trace.async_spans["dur"].sum()


def test_arrows_go_forward_from_the_arrival_to_the_end_of_the_wait(tmp_path) -> None:
    trace = build_trace(ring_capture(num_ctas=1))
    counts, replay = export(trace, tmp_path)
    blocked = trace.waits.filter("blocked")
    assert counts.flows == blocked.height == 12
    ends = sorted(max(times) for times in replay.flow_times.values())
    assert ends == sorted((blocked["begin"] + blocked["dur"]).to_list())
    assert [name for _, name, _ in replay.instants].count("released") == 12


def test_waits_say_what_released_them(tmp_path) -> None:
    _, replay = export(build_trace(ring_capture(num_ctas=1)), tmp_path)
    args = [row[5] for row in replay.slices if row[2] == "barrier_wait empty"]
    assert args[0] == {"slot": 0, "phase": 0, "barrier": "empty", "released by": "WG1"}


def test_tracks_are_nested_ordered_and_kept_apart(tmp_path) -> None:
    _, replay = export(build_trace(ring_capture(num_ctas=2)), tmp_path)
    roots = [track for track in replay.tracks.values() if not track.HasField("parent_uuid")]
    assert [root.name for root in roots] == ["GPU 0 · H100 (simulated) · launch 1 · ring"]
    assert "1 ns here is 1 SM cycle" in roots[0].description
    by_parent = defaultdict(list)
    for track in replay.tracks.values():
        by_parent[replay.path(track.parent_uuid) if track.parent_uuid else None].append(track)
    order = [t.name for t in sorted(by_parent["/SM 001"], key=lambda t: t.sibling_order_rank)]
    assert order == ["TMA loads", "TMA loads", "tensor core", "tma bytes in flight", "tensor core busy", "CTA 1 (m=1)"]
    order = [t.name for t in sorted(by_parent["/SM 001/CTA 1 (m=1)"], key=lambda t: t.sibling_order_rank)]
    assert order == ["full slots full", "WG0 compute", "WG1 compute", "WG2 memory"]
    assert all(track.child_ordering == TrackDescriptor.EXPLICIT for track in replay.tracks.values())
    merged = {t.name for t in replay.tracks.values() if t.sibling_merge_behavior != 2}
    assert merged == {"TMA loads", "tensor core"}


def test_lost_events_are_drawn_and_described(tmp_path) -> None:
    trace = build_trace(ring_capture(num_ctas=1, capacity=20))
    _, replay = export(trace, tmp_path)
    lost = [row for row in replay.slices if row[2] == "not recorded"]
    assert sorted(row[5]["events dropped"] for row in lost) == [12, 34, 34]
    assert all(row[5]["sufficient profile_space"] == 54 for row in lost)
    lasts = dict(trace.tracks.select("last", "end").rows())
    assert all(lasts[row[3]] == row[3] + row[4] for row in lost)
    kernel = next(row for row in replay.slices if row[0] == "/kernel")
    assert kernel[5]["events dropped"] == 80
    assert kernel[5]["sufficient profile_space"] == 54
    assert kernel[5]["clock_hz"] == 1_755_000_000
    root = next(track for track in replay.tracks.values() if not track.HasField("parent_uuid"))
    assert "profile_space=54" in root.description


def test_counters_hold_the_tables_values(tmp_path) -> None:
    trace = build_trace(ring_capture(num_ctas=1))
    _, replay = export(trace, tmp_path)
    full = [(time, value) for path, time, value in replay.counters if path.endswith("/full slots full")]
    expected = trace.counters.filter(pl.col("counter") == "full slots full").select("time", "value").rows()
    assert full == expected


def test_large_traces_are_cut_to_the_first_sms_and_say_so(tmp_path) -> None:
    trace = build_trace(ring_capture(num_ctas=4))
    counts, replay = export(trace, tmp_path, max_slices=200)
    assert (counts.sms, counts.sms_total) == (2, 4)
    assert "the first 2 of 4 SMs" in counts.to_text()
    assert "2 of 4 SMs" in next(iter(replay.tracks.values())).description
    one, replay = export(trace, tmp_path, sms=[3])
    assert {path.split("/")[1] for path, *_ in replay.slices} == {"kernel", "SM 003"}
    assert one.slices == len(replay.slices)
    with pytest.raises(ParamsError, match="SM 77 ran nothing"):
        export(trace, tmp_path, sms=[77])


def test_equal_traces_give_equal_files_and_gz_is_the_same_file_packed(tmp_path) -> None:
    for name in ("a.pftrace", "b.pftrace", "a.pftrace.gz", "b.pftrace.gz"):
        export_perfetto(build_trace(ring_capture()), tmp_path / name)
    plain = (tmp_path / "a.pftrace").read_bytes()
    assert (tmp_path / "b.pftrace").read_bytes() == plain
    packed = (tmp_path / "a.pftrace.gz").read_bytes()
    assert (tmp_path / "b.pftrace.gz").read_bytes() == packed
    assert gzip.decompress(packed) == plain


def test_a_file_that_cannot_be_written_is_an_error(tmp_path) -> None:
    trace = build_trace(ring_capture(num_ctas=1))
    with pytest.raises(CaptureError, match="cannot write the Perfetto trace"):
        export_perfetto(trace, tmp_path / "missing" / "t.pftrace")
    assert isinstance(export_perfetto(trace, tmp_path / "t.pftrace"), ExportCounts)


@st.composite
def forests(draw):
    """Returns (parent, depth) of random nested spans in depth-first order."""
    parent, depth, path = [], [], []
    for row in range(draw(st.integers(0, 25))):
        path = path[: draw(st.integers(0, len(path)))]
        parent.append(path[-1] if path else -1)
        depth.append(len(path))
        path.append(row)
    return parent, depth


@given(forests())
def test_nesting_order_is_depth_first(forest) -> None:
    parent, depth = (np.array(column, np.int64) for column in forest)
    begin, end = nesting_order(parent, depth)
    order = sorted([(p, "B", row) for row, p in enumerate(begin)] + [(p, "E", row) for row, p in enumerate(end)])
    assert [p for p, *_ in order] == list(range(2 * len(depth)))
    stack = []
    for _, edge, row in order:
        if edge == "B":
            assert (stack[-1] if stack else -1) == parent[row]
            stack.append(row)
        else:
            assert stack.pop() == row
