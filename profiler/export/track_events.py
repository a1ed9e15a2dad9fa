"""Track events: a table of slices' ends, instants or counter values becomes Perfetto packets.

Field numbers are those of trace_packet.proto, track_event.proto and debug_annotation.proto in
github.com/google/perfetto (protos/perfetto/trace).
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor

import numpy as np

from profiler.export.interning import Interner
from profiler.export.protobuf import (
    Rows,
    constant,
    fixed64_field,
    join,
    message_field,
    message_parts,
    varint_field,
)

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
class Look:
    """What an event is, apart from when and where. Every column has n rows; interned number 0 means "none".

    Attributes:
      type: `EventType`.
      name, category, location: interned numbers.
      correlation: small number that sets the colour, -1 for none.
      int_args: name -> int64[n], left out where negative.
      string_args: name -> interned numbers.
    """

    type: np.ndarray
    name: np.ndarray | None = None
    category: np.ndarray | None = None
    location: np.ndarray | None = None
    correlation: np.ndarray | None = None
    int_args: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    string_args: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class EventBatch:
    """Events in file order. Every column has n rows.

    Millions of events look like one of a few hundred: those looks are encoded once, and each event names its own.

    Attributes:
      time: int64, in the file's ns.
      track: uuid of a track.
      looks: the different looks.
      look: row of `looks` of each event.
      flows: uint64[n, k], ids of the arrows that start here, 0 for none.
      ended_flow: id of the arrow that ends here, 0 for none.
      value: counter value.
      int_args: arguments that differ from event to event: name -> int64[n], left out where negative.
    """

    time: np.ndarray
    track: np.ndarray
    looks: Look
    look: np.ndarray
    flows: np.ndarray | None = None
    ended_flow: np.ndarray | None = None
    value: np.ndarray | None = None
    int_args: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.time)

    def rows(self, selection: slice) -> EventBatch:
        """Returns some of the rows."""
        changes: dict[str, object] = {"int_args": {name: values[selection] for name, values in self.int_args.items()}}
        for name in ("time", "track", "look", "flows", "ended_flow", "value"):
            column = getattr(self, name)
            changes[name] = None if column is None else column[selection]
        return dataclasses.replace(self, **changes)


def encode_batch(batch: EventBatch, interner: Interner, pool: Executor | None = None) -> Iterator[bytes]:
    """Returns the packets of a batch, chunk by chunk, as they stand in a trace file.

    Args:
      batch: the events.
      interner: tables of strings; what the batch adds to them is added at once.
      pool: encodes chunks side by side, if given.
    """
    looks = _encode_looks(batch.looks, interner)
    arg_numbers = {name: interner.arg_names.number(name) for name in batch.int_args}

    def encode(start: int) -> bytes:
        return _encode_chunk(batch.rows(slice(start, start + CHUNK_ROWS)), looks, arg_numbers)

    starts = range(0, len(batch), CHUNK_ROWS)
    return pool.map(encode, starts) if pool else map(encode, starts)


def _encode_looks(looks: Look, interner: Interner) -> Rows:
    """Encodes fields of TrackEvent messages, each look once."""
    parts = _optional(3, looks.category)
    for name, values in looks.int_args.items():
        parts += _argument(interner.arg_names.number(name), 4, values, values >= 0)
    for name, values in looks.string_args.items():
        parts += _argument(interner.arg_names.number(name), 17, values, values > 0)
    parts.append(varint_field(9, looks.type))
    parts += _optional(10, looks.name)
    parts += _optional(34, looks.location)
    if looks.correlation is not None:
        parts.append(varint_field(52, np.maximum(looks.correlation, 0), looks.correlation >= 0))
    return join(parts)


def _encode_chunk(batch: EventBatch, looks: Rows, arg_numbers: Mapping[str, int]) -> bytes:
    event = [looks.take(batch.look), varint_field(11, batch.track)]
    for name, values in batch.int_args.items():
        event += _argument(arg_numbers[name], 4, values, values >= 0)
    if batch.value is not None:
        event.append(varint_field(30, batch.value))
    if batch.flows is not None:
        event += [fixed64_field(47, flow, flow > 0) for flow in batch.flows.T if flow.any()]
    if batch.ended_flow is not None:
        event.append(fixed64_field(48, batch.ended_flow, batch.ended_flow > 0))
    packet = [
        varint_field(8, batch.time),
        constant(10, SEQUENCE_ID, len(batch)),
        constant(13, int(SequenceFlags.NEEDS), len(batch)),
        *message_parts(11, event),
    ]
    return join(message_parts(1, packet)).to_bytes()


def _optional(number: int, interned: np.ndarray | None) -> list[Rows]:
    return [] if interned is None else [varint_field(number, interned, interned > 0)]


def _argument(name: int, value_field: int, values: np.ndarray, present: np.ndarray) -> list[Rows]:
    """Encodes a debug annotation: its interned name, then its value."""
    if not present.any():
        return []
    body = join([constant(1, name, len(values)), varint_field(value_field, np.where(present, values, 0))])
    return [message_field(4, body, present)]
