"""Sets of half-open intervals [begin, end), one set per group, as sorted NumPy arrays: union, gaps, overlap.

A group is an SM or a track. Groups are laid end to end on one axis (`group * stride + time`), so that each question is
one sorted search whatever the number of groups.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from profiler.grouping import stable_order


@dataclasses.dataclass(frozen=True)
class IntervalSets:
    """Disjoint, non-touching intervals, sorted by (group, begin).

    Attributes:
      group, begin, end: int64 arrays of equal length; 0 <= begin < end < stride.
      stride: length of one group's share of the common axis, in cycles.
    """

    group: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    stride: int

    @property
    def cycles(self) -> np.ndarray:
        """Length of each interval: int64."""
        return self.end - self.begin

    def covered(self, group: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Returns how many cycles of each query [begin, end) of `group` lie inside the group's set: int64."""
        return self._covered_before(group, end) - self._covered_before(group, begin)

    def _covered_before(self, group: np.ndarray, time: np.ndarray) -> np.ndarray:
        if not self.begin.size:
            return np.zeros(len(time), np.int64)
        begins = self.group * self.stride + self.begin
        lengths_before = np.concatenate([[0], np.cumsum(self.cycles)])
        position = group * self.stride + np.clip(time, 0, self.stride - 1)
        row = np.searchsorted(begins, position, side="right") - 1
        inside = np.minimum(position - begins[row], self.cycles[row])
        return np.where(row < 0, 0, lengths_before[row] + inside)


def merge_intervals(group: np.ndarray, begin: np.ndarray, end: np.ndarray) -> IntervalSets:
    """Returns the union of intervals, per group. Intervals may overlap, touch or be empty; times are not negative."""
    stride = int(end.max(initial=0)) + 2
    keep = end > begin
    starts = (group * stride + begin)[keep].astype(np.int64)
    order = stable_order(starts)
    starts = starts[order]
    reach = np.maximum.accumulate((group * stride + end)[keep].astype(np.int64)[order])
    first = np.ones(len(starts), bool)
    first[1:] = starts[1:] > reach[:-1]
    rows = np.flatnonzero(first)
    last = np.append(rows[1:], len(starts)) - 1 if rows.size else rows
    return IntervalSets(starts[rows] // stride, starts[rows] % stride, reach[last] % stride, stride)


def find_gaps(sets: IntervalSets) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (group, begin, end) of the stretches between neighbouring intervals of a group."""
    inner = np.flatnonzero(sets.group[1:] == sets.group[:-1])
    return sets.group[inner], sets.end[inner], sets.begin[inner + 1]
