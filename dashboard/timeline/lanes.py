"""Boxes arranged so that any window of a row is found by binary search.

A *lane* is a run of boxes of one row that do not overlap: spans of one nesting depth, transfers of one lane of a unit.
Boxes are stored lane after lane and by time within one, so that begins and ends both ascend and a window is a slice.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from dashboard.timeline.merging import Boxes, merge_narrow

TICKS = 255  # the depth of instants, which are drawn as ticks
COLUMNS = ("row", "depth", "begin", "end", "id", "style", "slot", "phase")
_LONGEST = 1 << 38
_COARSE_FROM = 1 << 18  # boxes of a lane from which on a coarse copy pays
_COARSE_BOXES = 1 << 16


@dataclasses.dataclass(frozen=True)
class Lanes:
    """Boxes of some rows.

    Attributes:
      boxes: all of them, by lane, then time.
      row, depth: of each lane, ascending.
      offsets: where each lane's boxes begin, and the total.
      coarse: merged copies of very long lanes by number of lane, for windows that hold too much of one.
    """

    boxes: Boxes
    row: np.ndarray
    depth: np.ndarray
    offsets: np.ndarray
    coarse: dict[int, Boxes]

    @classmethod
    def of(cls, tables: Sequence[pl.DataFrame], end: int) -> Lanes:
        """Arranges boxes.

        Args:
          tables: boxes with `COLUMNS`; an id of -1 means nothing to select, a depth of `TICKS` an instant.
          end: last moment of the launch, in cycles.
        """
        # One integer sorts several times faster than four columns; a launch is shorter than 2**38 cycles (two minutes).
        lane_and_time = (pl.col("row").cast(pl.Int64) * 256 + pl.col("depth")) * _LONGEST + pl.col("begin")
        table = pl.concat(tables).with_columns(order=lane_and_time).sort("order", "end")
        columns = {name: table[name].to_numpy() for name in COLUMNS}
        boxes = Boxes.single(**{name: columns[name] for name in COLUMNS[2:]})
        lane = columns["row"].astype(np.int64) * 256 + columns["depth"]
        starts = np.flatnonzero(np.diff(lane, prepend=-1))
        offsets = np.append(starts, len(lane))
        coarse = {
            int(number): merge_narrow(boxes.slice(*offsets[number : number + 2]), 0, max(end / _COARSE_BOXES, 1.0))
            for number in np.flatnonzero(np.diff(offsets) > _COARSE_FROM)
        }
        return cls(boxes, lane[starts] // 256, lane[starts] % 256, offsets, coarse)

    def lane(self, number: int) -> Boxes:
        """Returns all boxes of a lane."""
        return self.boxes.slice(int(self.offsets[number]), int(self.offsets[number + 1]))

    def of_row(self, row: int) -> range:
        """Returns the numbers of a row's lanes."""
        return range(*np.searchsorted(self.row, [row, row + 1]).tolist())
