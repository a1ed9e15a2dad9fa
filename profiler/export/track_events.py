"""Track events: a table of slices' ends, instants or counter values becomes Perfetto packets.

Field numbers are those of trace_packet.proto, track_event.proto and debug_annotation.proto in
github.com/google/perfetto (protos/perfetto/trace).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping

import numpy as np

from profiler.export.interning import Interner
from profiler.export.protobuf import Rows, fixed64_field, join, message_field, varint_field

SEQUENCE_ID = 1
CHUNK_ROWS = 1 << 14  # bounds the memory of the byte matrices and keeps them in the cache


class EventType(enum.IntEnum):
    """TrackEvent.Type."""

    SLICE_BEGIN = 1
    SLICE_END = 2
    INSTANT = 3
    COUNTER = 4


class SequenceFlags(enum.IntEnum):
    """TracePacket.SequenceFlags: the first packet of a sequence clears its tables, the others need them."""

    CLEARED = 1
    NEEDS = 2


@dataclasses.dataclass(frozen=True)
class EventBatch:
    """Events in file order. Every column has n rows; number 0 in a column of interned strings means "none".

    Attributes:
      time: int64, in the file's ns.
      type: `EventType`.
      track: uuid of a track.
      name, category, location: interned numbers.
      correlation: small number that sets the colour, -1 for none.
      flows: uint64[n, k], ids of the arrows that start here, 0 for none.
      ended_flow: id of the arrow that ends here, 0 for none.
      value: counter value.
      int_args: name -> int64[n], left out where negative.
      string_args: name -> interned numbers.
    """

    time: np.ndarray
    type: np.ndarray
    track: np.ndarray
    name: np.ndarray | None = None
    category: np.ndarray | None = None
    location: np.ndarray | None = None
    correlation: np.ndarray | None = None
    flows: np.ndarray | None = None
    ended_flow: np.ndarray | None = None
    value: np.ndarray | None = None
    int_args: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    string_args: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.time)

    def rows(self, selection: slice | np.ndarray) -> EventBatch:
        """Returns some of the rows."""
        changes: dict[str, object] = {}
        for field in dataclasses.fields(self):
            column = getattr(self, field.name)
            if isinstance(column, np.ndarray):
                changes[field.name] = column[selection]
            elif isinstance(column, Mapping):
                changes[field.name] = {name: values[selection] for name, values in column.items()}
        return dataclasses.replace(self, **changes)


def encode_batch(batch: EventBatch, interner: Interner) -> Iterator[bytes]:
    """Yields the packets of a batch, as they stand in a trace file."""
    arg_numbers = {name: interner.arg_names.number(name) for name in (*batch.int_args, *batch.string_args)}
    for start in range(0, len(batch), CHUNK_ROWS):
        yield _encode_chunk(batch.rows(slice(start, start + CHUNK_ROWS)), arg_numbers)


def _encode_chunk(batch: EventBatch, arg_numbers: Mapping[str, int]) -> bytes:
    constant = np.ones(len(batch), np.uint8)
    packet = join(
        [
            varint_field(8, batch.time),
            varint_field(10, constant * SEQUENCE_ID),
            message_field(11, _track_event(batch, arg_numbers)),
            varint_field(13, constant * int(SequenceFlags.NEEDS)),
        ]
    )
    return message_field(1, packet).to_bytes()


def _track_event(batch: EventBatch, arg_numbers: Mapping[str, int]) -> Rows:
    """Encodes the TrackEvent messages, fields in ascending order as the protobuf library writes them."""
    parts = _optional(3, batch.category)
    for name, values in batch.int_args.items():
        parts += _argument(arg_numbers[name], 4, values, values >= 0)
    for name, values in batch.string_args.items():
        parts += _argument(arg_numbers[name], 17, values, values > 0)
    parts.append(varint_field(9, batch.type))
    parts += _optional(10, batch.name)
    parts.append(varint_field(11, batch.track))
    if batch.value is not None:
        parts.append(varint_field(30, batch.value))
    parts += _optional(34, batch.location)
    if batch.flows is not None:
        parts += [fixed64_field(47, flow, flow > 0) for flow in batch.flows.T if flow.any()]
    if batch.ended_flow is not None:
        parts.append(fixed64_field(48, batch.ended_flow, batch.ended_flow > 0))
    if batch.correlation is not None:
        parts.append(varint_field(52, np.maximum(batch.correlation, 0), batch.correlation >= 0))
    return join(parts)


def _optional(number: int, interned: np.ndarray | None) -> list[Rows]:
    return [] if interned is None else [varint_field(number, interned, interned > 0)]


def _argument(name: int, value_field: int, values: np.ndarray, present: np.ndarray) -> list[Rows]:
    """Encodes a debug annotation: its interned name, then its value."""
    if not present.any():
        return []
    body = join([varint_field(1, np.full(len(values), name)), varint_field(value_field, np.where(present, values, 0))])
    return [message_field(4, body, present)]
