"""The vectorised encoder against the protobuf library, message by message."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace as TraceMessage
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from profiler.export.interning import Interner
from profiler.export.protobuf import varints
from profiler.export.track_events import EventBatch, Look, encode_batch

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
    st.integers(-1, 1 << 50),  # an integer argument of its look
    st.integers(-1, 1 << 50),  # one of its own
    st.integers(0, 500),  # a string argument
    st.integers(0, 1 << 40),  # counter value
)


def built_by_the_library(row) -> TracePacket:
    time, kind, track, name, category, location, correlation, flows, ended, integer, own, string, value = row
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
    if own >= 0:
        event.debug_annotations.add(name_iid=3, int_value=own)
    return TracePacket(timestamp=time, trusted_packet_sequence_id=1, sequence_flags=2, track_event=event)


@given(st.lists(rows, min_size=1, max_size=20), st.data())
def test_track_events_say_what_the_librarys_say(table, data) -> None:
    columns = [list(column) for column in zip(*table)]
    time, kind, track, name, category, location, correlation, flows, ended, integer, own, string, value = columns
    order = np.array(data.draw(st.permutations(range(len(table)))))  # the looks, in another order than the events
    looks = Look(
        type=np.array(kind)[order],
        name=np.array(name)[order],
        category=np.array(category)[order],
        location=np.array(location)[order],
        correlation=np.array(correlation)[order],
        int_args={"slot": np.array(integer)[order]},
        string_args={"barrier": np.array(string)[order]},
    )
    batch = EventBatch(
        time=np.array(time),
        track=np.array(track),
        looks=looks,
        look=np.argsort(order),
        flows=np.array([row + [0] * (3 - len(row)) for row in flows], np.uint64),
        ended_flow=np.array(ended, np.uint64),
        value=np.array(value),
        int_args={"phase": np.array(own)},
    )
    encoded = b"".join(encode_batch(batch, Interner(())))
    expected = TraceMessage(packet=[built_by_the_library(row) for row in table])
    # Fields stand in another order, which means nothing; written again by the library, they are the same bytes.
    found = TraceMessage.FromString(encoded)
    assert found == expected
    assert len(encoded) == len(expected.SerializeToString())


def test_long_batches_are_encoded_in_chunks() -> None:
    num = (1 << 14) + 3
    looks = Look(type=np.array([3]))
    batch = EventBatch(np.arange(num), np.ones(num, np.int64), looks, np.zeros(num, np.int64))
    chunks = list(encode_batch(batch, Interner(())))
    assert len(chunks) == 2
    packets = TraceMessage.FromString(b"".join(chunks)).packet
    assert [packet.timestamp for packet in packets] == list(range(num))
