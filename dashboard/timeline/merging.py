"""Level of detail: boxes too narrow to be seen are drawn as one, which says how many it stands for."""

from __future__ import annotations

import dataclasses

import numpy as np

_KEEP = ("begin", "end", "id", "style", "slot", "phase", "count")


@dataclasses.dataclass(frozen=True)
class Boxes:
    """Boxes of one lane, or of several one after another, as columns.

    Attributes:
      begin, end: int64, cycles.
      id: int64, row in the table that they come from; of a counter, its value.
      style: int32.
      slot, phase: int32 and int64, -1 if none.
      count: int64, how many boxes each stands for.
    """

    begin: np.ndarray
    end: np.ndarray
    id: np.ndarray
    style: np.ndarray
    slot: np.ndarray
    phase: np.ndarray
    count: np.ndarray

    @classmethod
    def single(cls, **columns: np.ndarray) -> Boxes:
        """Makes boxes that stand for themselves only."""
        return cls(**columns, count=np.ones(len(columns["begin"]), np.int64))

    @classmethod
    def none(cls) -> Boxes:
        """Makes no boxes."""
        types = {"style": np.int32, "slot": np.int32}
        return cls(**{name: np.zeros(0, types.get(name, np.int64)) for name in _KEEP})

    def __len__(self) -> int:
        return len(self.begin)

    def slice(self, first: int, last: int) -> Boxes:
        """Returns the boxes [first, last) as views."""
        return Boxes(**{name: getattr(self, name)[first:last] for name in _KEEP})

    def take(self, rows: np.ndarray) -> Boxes:
        """Returns some of the boxes."""
        return Boxes(**{name: getattr(self, name)[rows] for name in _KEEP})

    def window(self, t0: float, t1: float) -> Boxes:
        """Returns the boxes of one lane that are visible in [t0, t1]."""
        first = int(np.searchsorted(self.end, t0, side="left"))
        return self.slice(first, max(int(np.searchsorted(self.begin, t1, side="right")), first))


def merge_narrow(boxes: Boxes, t0: float, pixel_cycles: float) -> Boxes:
    """Merges neighbours of one lane that are narrower than a pixel and begin in the same one.

    A merged box reaches from the first's begin to the last's end, looks like the longest of them and carries its id.
    Of a counter, that is the value which held longest.

    Args:
      boxes: boxes of one lane, by time.
      t0: time of pixel 0, in cycles.
      pixel_cycles: cycles per pixel.
    """
    if not len(boxes):
        return boxes
    length = boxes.end - boxes.begin
    wide = length >= pixel_cycles
    pixel = np.floor((boxes.begin - t0) / pixel_cycles).astype(np.int64)
    is_first = np.ones(len(boxes), bool)
    is_first[1:] = (pixel[1:] != pixel[:-1]) | wide[1:] | wide[:-1]
    first = np.flatnonzero(is_first)
    if len(first) == len(boxes):
        return boxes
    last = np.append(first[1:], len(boxes)) - 1
    # The longest of each group: lengths below a pixel fit beside the position within one integer.
    position = np.arange(len(boxes))
    longest = np.maximum.reduceat(np.minimum(length, (1 << 31) - 1) * len(boxes) + position, first) % len(boxes)
    chosen = boxes.take(longest)
    count = np.add.reduceat(boxes.count, first)
    return dataclasses.replace(chosen, begin=boxes.begin[first], end=boxes.end[last], count=count)
