"""Memory as inlined code sees it: refs and pointers, which are addresses in one space of 64-bit numbers.

Each ref is a buffer of its own, contiguous in the order of its logical shape. A pointer says which one in its high bits
and how many bytes into it in its low ones, so that arithmetic on pointers is arithmetic on integers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np

from mgpu.errors import OutOfBoundsError
from mgpu.sim.values import carrier_dtype

Access = Literal["read", "write"]
Bounds = tuple[tuple[int, int], ...]
"""(begin, end) along each dimension."""

_BUFFER_SHIFT = 48
_OFFSET_MASK = np.int64((1 << _BUFFER_SHIFT) - 1)


@dataclasses.dataclass(frozen=True)
class Memref:
    """A ref, or a part of one.

    Attributes:
      address: of its first element, for each lane.
      dtype: its element type.
      shape, strides: in elements.
    """

    address: np.ndarray
    dtype: np.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def element(self, indices: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the address of an element, for each lane."""
        terms = [index.astype(np.int64) * stride for index, stride in zip(indices, self.strides, strict=True)]
        return self.address + self.dtype.itemsize * sum(terms, np.int64(0))


def contiguous(address: np.ndarray, dtype: np.dtype, shape: tuple[int, ...]) -> Memref:
    """Returns a ref whose elements lie next to each other in the order of its shape."""
    strides = tuple(math.prod(shape[axis + 1 :]) for axis in range(len(shape)))
    return Memref(address, dtype, shape, strides)


class Memory:
    """The buffers behind the refs of one call.

    Args:
      arrays: for each ref a view of its values, in their carrier or in their own dtype.
      dtypes: the refs' element types.
    """

    def __init__(self, arrays: Sequence[np.ndarray], dtypes: Sequence[np.dtype]) -> None:
        self._arrays = arrays
        self._dtypes = dtypes
        self._touched: dict[tuple[int, Access], list[tuple[np.ndarray, ...]]] = {}  # indices of elements

    def ref(self, number: int) -> Memref:
        """Returns the ref to a whole buffer."""
        address = np.array([(number + 1) << _BUFFER_SHIFT], np.int64)
        return contiguous(address, self._dtypes[number], self._arrays[number].shape)

    def take_touched(self, number: int, access: Access) -> Iterator[Bounds]:
        """Yields boxes of the elements of buffer `number` that have been accessed since it was asked last."""
        found = self._touched.pop((number, access), None)
        if found is None:
            return
        touched = np.zeros(self._arrays[number].shape, bool)
        for index in found:
            touched[index] = True
        yield from _boxes(touched)

    def load(self, address: np.ndarray, dtype: np.dtype, shape: tuple[int, ...], mask: np.ndarray) -> np.ndarray:
        """Returns a scalar or vector from each lane's address; lanes that `mask` leaves out get zeros."""
        lanes = max(len(address), len(mask))
        result = np.zeros((lanes, math.prod(shape)), dtype)
        for number, active, index, elements in self._places(address, dtype, math.prod(shape), mask):
            self._touched.setdefault((number, "read"), []).append(index)
            found = self._arrays[number][index].astype(self._dtypes[number])
            result[active] = np.ascontiguousarray(found).view(dtype).reshape(-1, elements)
        return result.reshape(lanes, *shape)

    def store(self, address: np.ndarray, value: np.ndarray, mask: np.ndarray) -> None:
        """Writes each active lane's scalar or vector; where lanes write the same element, the last one stays."""
        count = math.prod(value.shape[1:])
        for number, active, index, _ in self._places(address, value.dtype, count, mask):
            self._touched.setdefault((number, "write"), []).append(index)
            taken = np.broadcast_to(value, (len(active), *value.shape[1:]))[active]
            array, dtype = self._arrays[number], self._dtypes[number]
            elements = np.ascontiguousarray(taken.reshape(len(taken), count)).view(dtype)
            array[index] = elements.astype(carrier_dtype(dtype) if array.dtype != dtype else dtype)

    def _places(
        self, address: np.ndarray, dtype: np.dtype, count: int, mask: np.ndarray
    ) -> list[tuple[int, np.ndarray, tuple[np.ndarray, ...], int]]:
        """Returns for each buffer its number, the lanes that access it, the indices that they touch, and `count`."""
        lanes = max(len(address), len(mask))
        address, mask = np.broadcast_to(address, lanes), np.broadcast_to(mask, lanes)
        buffers = address >> _BUFFER_SHIFT
        places = []
        for buffer in np.unique(buffers[mask]).tolist():
            number = buffer - 1
            active = mask & (buffers == buffer)
            if not 0 <= number < len(self._arrays):
                raise OutOfBoundsError("inline_mgpu: a pointer that belongs to no argument is used. Pass the ref in.")
            size, shape = self._dtypes[number].itemsize, self._arrays[number].shape
            nbytes = count * dtype.itemsize
            offset = address[active] & _OFFSET_MASK
            if (offset % size).any() or nbytes % size:
                raise OutOfBoundsError(
                    f"inline_mgpu: {nbytes} bytes are accessed that are no whole elements of a "
                    f"{self._dtypes[number].name} ref."
                )
            first = offset // size
            flat = first[:, None] + np.arange(nbytes // size)
            if flat.size and (flat.min() < 0 or flat.max() >= math.prod(shape)):
                raise OutOfBoundsError(
                    f"inline_mgpu: element {flat.min() if flat.min() < 0 else flat.max()} of a ref of "
                    f"{math.prod(shape)} elements is accessed. Check the index arithmetic."
                )
            places.append((number, active, np.unravel_index(flat, shape), count))
        return places


def _boxes(touched: np.ndarray) -> Iterator[Bounds]:
    """Yields boxes that make up what is set in a mask: one if it is a box, else the runs of its rows."""
    places = np.nonzero(touched)
    if not places[0].size:
        return
    box = tuple((int(place.min()), int(place.max()) + 1) for place in places)
    if touched[tuple(slice(begin, end) for begin, end in box)].all():
        yield box
        return
    for row in np.argwhere(touched.any(-1)).tolist():
        borders = np.flatnonzero(np.diff(touched[tuple(row)], prepend=False, append=False)).tolist()
        for begin, end in zip(borders[::2], borders[1::2], strict=True):
            yield (*((at, at + 1) for at in row), (begin, end))
