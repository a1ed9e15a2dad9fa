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

    def new_tiles(self, dtype: Any) -> list[np.ndarray]:
        """Returns what the slots of a buffer hold that nobody has written."""
        return [np.broadcast_to(uninitialised((), dtype), self.tile)] * math.prod(self.counts)
