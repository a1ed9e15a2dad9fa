"""SMEM that several scopes use, one after another: what is in flight when a scope ends is in flight in the next one.

Every entry of a `run_scoped` gives its buffers arrays of their own, but on the device scopes side by side lie in the
same bytes. So the states of a buffer whose scope has ended, as far as somebody may still have to respect them, move
into the shadows of the buffers that lie there next.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from mgpu.sim.races.clocks import Clock
from mgpu.sim.races.shadow import Box, Shadow

ShadowOf = Callable[[np.ndarray], Shadow]


class LateArray(Protocol):
    """A buffer whose array may not have been made yet."""

    @property
    def made(self) -> np.ndarray | None:
        """The array, or None."""
        ...

    def get(self) -> np.ndarray:
        """Returns the array, after making it if nobody has."""
        ...


@dataclasses.dataclass(frozen=True)
class Extent:
    """Where a buffer lies in SMEM.

    Bytes are told apart by rows: of single elements, or of tiles that follow each other.

    Attributes:
      begin: its first byte.
      row_bytes: bytes of a row.
      rows: how many rows there are, along the buffer's leading dimensions.
      row_sides: sides of a row, in elements along each dimension.
    """

    begin: int
    row_bytes: int
    rows: tuple[int, ...]
    row_sides: tuple[int, ...]

    @property
    def end(self) -> int:
        """The byte after its last one."""
        return self.begin + self.row_bytes * math.prod(self.rows)

    def spans(self, shadow: Shadow, number: int) -> Iterator[tuple[int, int]]:
        """Yields the (first, end) bytes of what is in a state, in runs of rows."""
        mask = shadow.where(number)
        shape = self.rows + (1,) * (len(self.row_sides) - len(self.rows))
        if mask.ndim != len(shape):  # the shadow has become a row of bytes, whose order tiles change
            shape = (math.prod(self.rows) if max(self.row_sides) == 1 else 1,)
        mask = _resized(mask, shape).reshape(-1)
        bytes_each = (self.end - self.begin) // mask.size
        borders = np.flatnonzero(np.diff(mask, prepend=False, append=False)).tolist()
        for first, end in zip(borders[::2], borders[1::2], strict=True):
            yield self.begin + first * bytes_each, self.begin + end * bytes_each

    def boxes(self, first_byte: int, end_byte: int) -> Iterator[Box]:
        """Yields boxes of elements that cover the part of a span of bytes that lies in the buffer, in whole rows."""
        first = max(0, first_byte - self.begin) // self.row_bytes
        last = -(-(min(end_byte, self.end) - self.begin) // self.row_bytes)
        if first < last:
            for ranges in _split(self.rows, first, last):
                full = ((0, 1),) * (len(self.row_sides) - len(self.rows))
                pairs = zip((*ranges, *full), self.row_sides, strict=True)
                yield [(start * side, (stop - start) * side) for (start, stop), side in pairs]


def _resized(mask: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Returns a mask of another shape over the same array: an element is set if anything is that it shares."""
    common = [math.lcm(side, wanted) for side, wanted in zip(mask.shape, shape, strict=True)]
    for axis, (side, fine) in enumerate(zip(mask.shape, common, strict=True)):
        mask = np.repeat(mask, fine // side, axis)
    parts = [n for fine, wanted in zip(common, shape, strict=True) for n in (wanted, fine // wanted)]
    return np.asarray(mask.reshape(parts).any(tuple(range(1, 2 * len(shape), 2))))


def _split(shape: Sequence[int], first: int, end: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yields boxes, as (start, stop) along each dimension, that make up elements `first` to `end` - 1 of an array."""
    if not shape:
        yield ()
        return
    inner = math.prod(shape[1:])
    (low, offset), (high, rest) = divmod(first, inner), divmod(end, inner)
    if low == high:
        yield from (((low, low + 1), *box) for box in _split(shape[1:], offset, rest))
        return
    if offset:
        yield from (((low, low + 1), *box) for box in _split(shape[1:], offset, inner))
        low += 1
    if low < high:
        yield ((low, high), *((0, side) for side in shape[1:]))
    if rest:
        yield from (((high, high + 1), *box) for box in _split(shape[1:], 0, rest))


@dataclasses.dataclass(frozen=True, eq=False)
class ScopeExtents:
    """The SMEM buffers of a scope.

    Attributes:
      path: names the `run_scoped`; the paths of scopes around it are beginnings of it.
      extents: where each buffer lies.
    """

    path: tuple[int, ...]
    extents: tuple[Extent, ...]


class _Entered(NamedTuple):
    scope: ScopeExtents
    buffers: tuple[LateArray, ...]


class SmemReuse:
    """Follows the scopes of a CTA."""

    def __init__(self) -> None:
        self._entered: list[_Entered] = []

    def enter(self, scope: ScopeExtents, buffers: tuple[LateArray, ...], known: Clock, shadow_of: ShadowOf) -> None:
        """All warpgroups have come to a scope: moves to its buffers what is in flight in the bytes that they take.

        Args:
          scope: which one.
          buffers: its buffers, in the order of its extents.
          known: what all warpgroups know together.
          shadow_of: returns the shadow of an array.
        """
        if any(entered.buffers and entered.buffers[0] is buffers[0] for entered in self._entered):
            return  # another warpgroup was here first
        kept = []
        for entered in self._entered:
            path = entered.scope.path
            if scope.path[: len(path)] == path and path != scope.path:
                kept.append(entered)  # around this one, so still there
            elif self._move(entered, scope, buffers, known, shadow_of):
                kept.append(entered)
        self._entered = [*kept, _Entered(scope, buffers)]

    def end(self) -> None:
        """The CTA has exited. Buffers refer to it, so they are let go of, or both would stay in a cycle."""
        self._entered = []

    def _move(
        self,
        ended: _Entered,
        scope: ScopeExtents,
        buffers: tuple[LateArray, ...],
        known: Clock,
        shadow_of: ShadowOf,
    ) -> bool:
        """Returns whether something of an ended scope may still matter to another one."""
        matters = False
        for old_extent, late in zip(ended.scope.extents, ended.buffers, strict=True):
            if late.made is None:
                continue
            shadow = shadow_of(late.made)
            for number, state in shadow.numbered_states():
                rest = state.in_flight(known)
                if rest is None:
                    continue
                for first, end in old_extent.spans(shadow, number):
                    covered = 0
                    for extent, buffer in zip(scope.extents, buffers, strict=True):
                        covered += max(0, min(end, extent.end) - max(first, extent.begin))
                        for box in extent.boxes(first, end):
                            shadow_of(buffer.get()).add(box, rest)
                    matters = matters or covered < end - first
        return matters
