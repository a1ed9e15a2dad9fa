"""The vectorised encoder against the protobuf library, message by message."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from profiler.export.interning import Interner
from profiler.export.protobuf import varints
from profiler.export.track_events import EventBatch, encode_batch

numbers = st.integers(0, (1 << 63) - 1)


def one_varint(value: int) -> bytes:
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


@given(st.lists(st.one_of(numbers, st.sampled_from([0, 127, 128, 16383, 16384])), min_size=1, max_size=30))
def test_varints(values) -> None:
    assert varints(np.array(values, np.int64)).to_bytes() == b"".join(map(one_varint, values))


rows = st.tuples(
    numbers,  # time
    st.integers(1, 4),  # type
    st.integers(1, 1 << 40),  # track
    st.integers(0, 300),  # name
    st.integers(0, 3),  # category
    st.integers(0, 200),  # location
    st.integers(-1, 20),  # correlation
    st.lists(st.integers(1, (1 << 64) - 1), max_size=3),  # flows
    st.integers(0, (1 << 64) - 1),  # flow that ends
    st.integers(-1, 1 << 50),  # an integer argument
    st.integers(0, 500),  # a string argument
    st.integers(0, 1 << 40),  # counter value
)


def built_by_the_library(row) -> TracePacket:
    time, kind, track, name, category, location, correlation, flows, ended, integer, string, value = row
    event = TrackEvent(type=kind, track_uuid=track, counter_value=value)
    if name:
        event.name_iid = name
    if category:
        event.category_iids.append(category)
    if location:
        event.source_location_iid = location
    if correlation >= 0:
        event.correlation_id = correlation
    event.flow_ids.extend(flows)
    if ended:
        event.terminating_flow_ids.append(ended)
    if integer >= 0:
        event.debug_annotations.add(name_iid=1, int_value=integer)
    if string:
        event.debug_annotations.add(name_iid=2, string_value_iid=string)
    return TracePacket(timestamp=time, trusted_packet_sequence_id=1, sequence_flags=2, track_event=event)


@given(st.lists(rows, min_size=1, max_size=20))
def test_track_events_are_what_the_library_writes(table) -> None:
    columns = [list(column) for column in zip(*table)]
    time, kind, track, name, category, location, correlation, flows, ended, integer, string, value = columns
    batch = EventBatch(
        time=np.array(time),
        type=np.array(kind),
        track=np.array(track),
        name=np.array(name),
        category=np.array(category),
        location=np.array(location),
        correlation=np.array(correlation),
        flows=np.array([row + [0] * (3 - len(row)) for row in flows], np.uint64),
        ended_flow=np.array(ended, np.uint64),
        value=np.array(value),
        int_args={"slot": np.array(integer)},
        string_args={"barrier": np.array(string)},
    )
    encoded = b"".join(encode_batch(batch, Interner(())))
    expected = TraceMessage(packet=[built_by_the_library(row) for row in table])
    assert TraceMessage.FromString(encoded) == expected
    assert encoded == expected.SerializeToString()


def test_long_batches_are_encoded_in_chunks() -> None:
    num = (1 << 14) + 3
    batch = EventBatch(np.arange(num), np.full(num, 3), np.ones(num, np.int64))
    chunks = list(encode_batch(batch, Interner(())))
    assert len(chunks) == 2
    packets = TraceMessage.FromString(b"".join(chunks)).packet
    assert [packet.timestamp for packet in packets] == list(range(num))
