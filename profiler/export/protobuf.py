"""Protocol-buffer encoding of many messages at once, with NumPy.

All rows of a table become messages of the same shape. Each field is a matrix of bytes, one row per message and as many
columns as the longest value needs, with a mask of the bytes that a row really has. Fields are put side by side, lengths
are row sums of the mask, and taking the masked bytes in row order gives the encoded messages, equal byte for byte to
what the protobuf library writes. Encoding: protobuf.dev/programming-guides/encoding.

Millions of messages are small copies of a few bytes each, so a message inside a message is not put together before the
outer one is: `message_parts` keeps its fields apart, and `join` copies every byte once.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

import numpy as np

VARINT, FIXED64, LENGTH_DELIMITED = 0, 1, 2  # wire types


@dataclasses.dataclass(frozen=True)
class Rows:
    """Encoded bytes of n messages (or parts of them).

    Attributes:
      data: uint8[n, width].
      used: bool[n, width], which bytes of `data` belong to the row's encoding.
    """

    data: np.ndarray
    used: np.ndarray

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """Bytes of each row: int64[n]."""
        return self.used.sum(axis=1, dtype=np.int64)

    def take(self, rows: np.ndarray) -> Rows:
        """Returns some of the rows, in any order and number."""
        taken = Rows(self.data[rows], self.used[rows])
        vars(taken)["lengths"] = self.lengths[rows]
        return taken

    def to_bytes(self) -> bytes:
        """Returns all rows, one after another."""
        return self.data[self.used].tobytes()


def join(parts: Sequence[Rows]) -> Rows:
    """Puts the bytes of several parts behind each other, row by row."""
    return Rows(np.hstack([part.data for part in parts]), np.hstack([part.used for part in parts]))


def varints(values: np.ndarray) -> Rows:
    """Encodes non-negative integers, 7 bits a byte, lowest first, with bit 7 set on all but a number's last byte."""
    values = values.astype(np.uint64)
    width = max(1, -(-int(values.max(initial=0)).bit_length() // 7))
    # Byte by byte: what is done to all values at once should lie together in memory.
    data, used = np.empty((width, len(values)), np.uint8), np.empty((width, len(values)), bool)
    for column in range(width):
        used[column] = values > 0 if column else True
        data[column] = values & np.uint64(0x7F)
        values = values >> np.uint64(7)
    data[:-1] |= used[1:].view(np.uint8) << 7
    return Rows(data.T, used.T)


def varint_field(number: int, values: np.ndarray, present: np.ndarray | None = None) -> Rows:
    """Encodes a field of integers; rows outside `present` (bool[n]) do not have it."""
    return _field(number, VARINT, varints(values), present)


def fixed64_field(number: int, values: np.ndarray, present: np.ndarray | None = None) -> Rows:
    """Encodes a field of fixed 64-bit integers."""
    data = np.ascontiguousarray(values, dtype="<u8").view(np.uint8).reshape(len(values), 8)
    return _field(number, FIXED64, Rows(data, np.ones(data.shape, bool)), present)


def message_field(number: int, body: Rows, present: np.ndarray | None = None) -> Rows:
    """Encodes a field that holds a message."""
    return _field(number, LENGTH_DELIMITED, join([varints(body.lengths), body]), present)


def message_parts(number: int, body: Sequence[Rows]) -> list[Rows]:
    """Encodes a field that holds a message whose fields are `body`: to be joined with what stands around it."""
    total = functools.reduce(np.add, (part.lengths for part in body))
    return [_field(number, LENGTH_DELIMITED, varints(total), None), *body]


def constant(number: int, value: int, num_rows: int) -> Rows:
    """Encodes a field of integers that is the same in all rows."""
    one = varint_field(number, np.array([value]))
    return _repeated(one, num_rows)


def _field(number: int, wire_type: int, payload: Rows, present: np.ndarray | None) -> Rows:
    tag = varints(np.array([number << 3 | wire_type]))
    rows = join([_repeated(tag, len(payload.data)), payload])
    return rows if present is None else Rows(rows.data, rows.used & present[:, None])


def _repeated(one: Rows, num_rows: int) -> Rows:
    width = one.data.shape[1]
    return Rows(np.broadcast_to(one.data, (num_rows, width)), np.broadcast_to(one.used, (num_rows, width)))
