"""Slotted buffers: SMEM that only TMA loads write, slot by slot.

What a slot holds is an array of its own: a view of the GMEM box that was loaded, which the kernel does not write. The
next load into the slot replaces the array. So a load copies nothing, and a wgmma that takes the array when it is issued
can be multiplied when the slot has long been filled again.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from mgpu.lang.transforms import bits_of
from mgpu.sim.l2_blocks import Box
from mgpu.sim.values import carrier_dtype, uninitialised


@dataclasses.dataclass(frozen=True)
class Slots:
    """How a slotted buffer is divided.

    Attributes:
      counts: sizes of its leading dimensions, whose indices name a slot.
      tile: shape of what a slot holds.
    """

    counts: tuple[int, ...]
    tile: tuple[int, ...]

    @property
    def pitches(self) -> list[int]:
        """For each of the leading dimensions, how many slots lie between neighbours."""
        return [math.prod(self.counts[axis + 1 :]) for axis in range(len(self.counts))]

    def new_memory(self, dtype: Any) -> np.ndarray:
        """Returns an array that says where a buffer lies, to those who watch accesses; its values mean nothing."""
        return np.empty((*self.counts, *self.tile), carrier_dtype(dtype))

    def new_tiles(self, dtype: Any) -> Tiles:
        """Returns what the slots of a buffer hold that nobody has written."""
        unwritten = np.broadcast_to(uninitialised((), dtype), self.tile)
        scale = carrier_dtype(dtype).itemsize * 8 // bits_of(dtype)
        return Tiles(unwritten, math.prod(self.counts), scale)


class Tiles(list[np.ndarray]):
    """What the slots of a buffer hold.

    Args:
      unwritten: what a slot holds at first.
      count: of slots.
      scale: bytes of an element's carrier for each byte of the element.

    Attributes:
      places: for each slot, where its array lies in the one that it is a view of: bytes from its begin.
    """

    __slots__ = ("_scale", "places")

    def __init__(self, unwritten: np.ndarray, count: int, scale: int) -> None:
        super().__init__([unwritten] * count)
        self.places = [0] * count
        self._scale = scale

    def fill(self, slot: int, values: np.ndarray, box: Box | None) -> None:
        """Replaces what a slot holds.

        Args:
          slot: its number.
          values: a view of a GMEM array, or an array of its own if the box crosses the border.
          box: what of GMEM was loaded; None if it lies outside.
        """
        self[slot] = values
        self.places[slot] = 0 if box is None else box.offset_bytes * self._scale
