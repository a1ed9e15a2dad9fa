"""Protocol-buffer encoding of many messages at once, with NumPy.

All rows of a table become messages of the same shape. Each field is a matrix of bytes, one row per message and as many
columns as the longest value needs, with a mask of the bytes that a row really has. Fields are put side by side, lengths
are row sums of the mask, and taking the masked bytes in row order gives the encoded messages, equal byte for byte to
what the protobuf library writes. Encoding: protobuf.dev/programming-guides/encoding.
"""

from __future__ import annotations

import dataclasses
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

    @property
    def lengths(self) -> np.ndarray:
        """Bytes of each row: int64[n]."""
        return self.used.sum(axis=1, dtype=np.int64)

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
    shifts = np.arange(width, dtype=np.uint64) * np.uint64(7)
    groups = values[:, None] >> shifts
    used = groups > 0
    used[:, 0] = True
    data = (groups & np.uint64(0x7F)).astype(np.uint8)
    data[:, :-1] |= np.where(used[:, 1:], 0x80, 0).astype(np.uint8)
    return Rows(data, used)


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


def _field(number: int, wire_type: int, payload: Rows, present: np.ndarray | None) -> Rows:
    num_rows = len(payload.data)
    tag = varints(np.array([number << 3 | wire_type]))
    width = tag.data.shape[1]
    head = Rows(np.broadcast_to(tag.data, (num_rows, width)), np.ones((num_rows, width), bool))
    rows = join([head, payload])
    return rows if present is None else Rows(rows.data, rows.used & present[:, None])
