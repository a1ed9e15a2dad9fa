"""Bulk copies of the PTX machine: what a tensor map describes, and the boxes that move between memories.

The tensor map is not the hardware's 128 bytes, which are undocumented, but what the stand-in driver
(`support.ptx.host`) writes there: the arguments of `cuTensorMapEncodeTiled`.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Sequence

import numpy as np

from support.ptx.parse import PtxError

MAP_BYTES = 128
MAP_MAGIC = 0x70614D54
_FORMAT = "<IBBBBQ5Q4Q5H"  # magic, element bytes, rank, swizzle, fill, address, sizes, strides (bytes), box
_SWIZZLE_BYTES = {0: 16, 1: 32, 2: 64, 3: 128}  # CUtensorMapSwizzle of the CUDA driver API


@dataclasses.dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and the box that a copy moves; the fastest axis first.

    Attributes:
      element_bytes: size of an element.
      swizzle: CUtensorMapSwizzle: 0 none, 1 32 bytes, 2 64 bytes, 3 128 bytes.
      address: of the tensor.
      sizes: elements along each axis.
      strides: bytes between neighbours along each axis.
      box: elements that one copy moves along each axis.
    """

    element_bytes: int
    swizzle: int
    address: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]

    @property
    def box_bytes(self) -> int:
        """Bytes that one copy moves."""
        return int(np.prod(self.box)) * self.element_bytes

    def to_bytes(self) -> bytes:
        """Returns the map as the stand-in driver writes it."""
        rank = len(self.sizes)
        missing = (0,) * (5 - rank)
        fields = (*self.sizes, *missing, *self.strides[1:], *missing, *self.box, *missing)
        header = (MAP_MAGIC, self.element_bytes, rank, self.swizzle, 0, self.address)
        return struct.pack(_FORMAT, *header, *fields).ljust(MAP_BYTES, b"\0")

    @classmethod
    def from_bytes(cls, data: bytes) -> TensorMap:
        """Reads what the stand-in driver wrote."""
        size = struct.calcsize(_FORMAT)
        magic, element, rank, swizzle, _, address, *rest = struct.unpack(_FORMAT, data[:size])
        if magic != MAP_MAGIC:
            raise PtxError("a copy uses 128 bytes that are no tensor map")
        sizes, strides, box = rest[:rank], rest[5 : 5 + rank - 1], rest[9 : 9 + rank]
        return cls(element, swizzle, address, tuple(sizes), (element, *strides), tuple(box))

    def places(self, coordinates: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Returns the global address of each element of the box at `coordinates`, in the box's order, and which exist.

        Coordinates name the first element along each axis; elements outside the tensor do not exist.
        """
        address, exists = np.int64(self.address), np.bool_(True)
        for axis, (first, count) in enumerate(zip(coordinates, self.box, strict=True)):
            index = np.arange(first, first + count)
            shape = [1] * len(self.box)
            shape[len(self.box) - 1 - axis] = count
            address = address + (index * self.strides[axis]).reshape(shape)
            exists = exists & ((index >= 0) & (index < self.sizes[axis])).reshape(shape)
        shape = self.box[::-1]
        return np.broadcast_to(address, shape).reshape(-1), np.broadcast_to(exists, shape).reshape(-1)

    def shared_places(self, begin: int) -> np.ndarray:
        """Returns the address in shared memory of each element of a box that begins at `begin`."""
        linear = begin + np.arange(int(np.prod(self.box))) * self.element_bytes
        return swizzled(linear, _SWIZZLE_BYTES[self.swizzle])


def swizzled(addresses: np.ndarray, row_bytes: int) -> np.ndarray:
    """Exchanges 16-byte pieces of addresses: their number in a row of `row_bytes` is combined with bits 7 and up."""
    pieces = row_bytes // 16
    return addresses ^ ((addresses >> 7) % pieces << 4)
