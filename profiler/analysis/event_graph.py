"""The launch as a graph: moments are nodes, what had to pass between two moments is an edge.

    time[dst] >= time[src] + weight

holds for every edge, with equality for at least one edge into each node: a launch runs as fast as its constraints let
it. So solving the graph with its own weights gives the trace back, to the cycle; solving it with other weights is the
replay behind the what-if; and what an edge could grow without moving the end is its slack.

`profiler.analysis.graph_edges` finds the edges. Nodes are solved level by level, so that the work per level is a few
NumPy calls over all SMs at once.
"""

from __future__ import annotations

import dataclasses
import enum

import numpy as np


class Step(enum.StrEnum):
    """What an edge stands for. The value is the name that reports use."""

    RUN = "run"  # program order of a track: one leaf of its timeline
    HOP = "barrier hop"  # an arrival, to the end of the wait that it releases
    TMA_LOAD = "TMA load"  # issue to landing
    TMA_STORE = "TMA store"
    LANDING_ORDER = "TMA bandwidth"  # landing to the next landing on the SM
    MMA_START = "MMA start"  # issue to the first instruction in the pipe
    MMA_QUEUE = "MMA throughput"  # begin of a group to the begin of the one behind it in the pipe
    MMA = "MMA"  # begin to the last result
    RESULT = "completion"  # of an MMA or store, to the end of the wait for it
    MEETING = "sync"  # the last one to arrive, to everybody's leaving
    CTA_START = "CTA start"
    CTA_EXIT = "CTA exit"
    CTA_SWITCH = "CTA switch"  # exit of a CTA to the next one on its SM
    LAUNCH = "launch ramp"
    END = "end"


STEPS = list(Step)
CODE = {step: number for number, step in enumerate(STEPS)}


@dataclasses.dataclass(frozen=True)
class Edges:
    """Edges as columns; int64 arrays of equal length.

    Attributes:
      src, dst: nodes.
      weight: cycles that must pass at least.
      step: index into `STEPS`.
      row: what the edge is about: leaf (RUN), async span (TMA and MMA steps), wait (HOP), else -1.
      track: whose doing it is, -1 if no track's.
    """

    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray
    step: np.ndarray
    row: np.ndarray
    track: np.ndarray

    def __len__(self) -> int:
        return len(self.src)

    @classmethod
    def of(
        cls, step: Step, src: np.ndarray, dst: np.ndarray, weight: np.ndarray, row: np.ndarray | int, track: np.ndarray
    ) -> Edges:
        """Returns edges of one step; `row` may be one number for all."""
        size = len(src)
        columns = (src, dst, weight, np.full(size, CODE[step]), np.broadcast_to(row, size), track)
        return cls(*(np.asarray(column, np.int64) for column in columns))

    def take(self, keep: np.ndarray) -> Edges:
        """Returns the rows that `keep` (mask or row numbers) chooses."""
        return Edges(*(getattr(self, field.name)[keep] for field in dataclasses.fields(self)))

    @classmethod
    def concatenate(cls, parts: list[Edges]) -> Edges:
        """Joins edges, in order."""
        names = [field.name for field in dataclasses.fields(cls)]
        return cls(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))


@dataclasses.dataclass(frozen=True)
class EventGraph:
    """Nodes and edges of a launch, ready to be solved.

    Attributes:
      time: int64[nodes], cycles since the launch began; node 0 is that moment, node 1 the launch's end.
      edges: sorted so that `solve` meets every node after all nodes before it.
      groups: int64[nodes with an edge into them + 1], where the edges into one node begin.
      levels: int64[levels + 1], rows of `groups` at which a new level begins; nodes of a level do not wait for each
        other.
    """

    time: np.ndarray
    edges: Edges
    groups: np.ndarray
    levels: np.ndarray

    SOURCE = 0
    SINK = 1

    @property
    def spare(self) -> np.ndarray:
        """Cycles that each edge had to spare in the launch as it was; 0 where it was binding. int64[edges]."""
        return self.time[self.edges.dst] - self.time[self.edges.src] - self.edges.weight

    def solve(self, weight: np.ndarray | None = None, src: np.ndarray | None = None) -> np.ndarray:
        """Returns the earliest time of every node.

        Args:
          weight: int64[edges], cycles; by default the launch's own, which gives its own times.
          src: int64[edges], where edges begin, for edges that are moved to an earlier node; -1: the edge is gone.
        """
        weight = self.edges.weight if weight is None else weight
        src = self.edges.src if src is None else src
        gone = np.iinfo(np.int64).min // 2
        weight = np.where(src < 0, gone, weight)
        src = np.maximum(src, 0)
        dst = self.edges.dst
        time = np.zeros(len(self.time), np.int64)
        groups, bounds = self.groups, self.groups[self.levels]
        for level in range(len(self.levels) - 1):
            first, last = bounds[level], bounds[level + 1]
            starts = groups[self.levels[level] : self.levels[level + 1]]
            arrives = time[src[first:last]] + weight[first:last]
            time[dst[starts]] = np.maximum(np.maximum.reduceat(arrives, starts - first), 0)
        return time

    def latest(self) -> np.ndarray:
        """Returns the latest time at which each node could have been without moving the launch's end: int64[nodes]."""
        edges = self.edges
        latest = np.full(len(self.time), self.time[self.SINK], np.int64)
        bounds = self.groups[self.levels]
        for level in range(len(self.levels) - 2, -1, -1):
            rows = slice(bounds[level], bounds[level + 1])
            np.minimum.at(latest, edges.src[rows], latest[edges.dst[rows]] - edges.weight[rows])
        return latest

    def slack(self) -> np.ndarray:
        """Returns by how many cycles each edge could grow, alone, without moving the launch's end: int64[edges]."""
        edges = self.edges
        return self.latest()[edges.dst] - self.time[edges.src] - edges.weight


def order_graph(time: np.ndarray, edges: Edges) -> EventGraph:
    """Sorts edges into levels.

    Args:
      time: int64[nodes]; nodes 0 and 1 are the begin and the end of the launch.
      edges: an acyclic graph.
    """
    level = _levels(len(time), edges)
    order = np.lexsort((edges.dst, level[edges.dst]))
    edges = edges.take(order)
    is_first = np.diff(edges.dst, prepend=-1) != 0
    starts = np.flatnonzero(is_first)
    level_of_group = level[edges.dst[starts]]
    changes = np.flatnonzero(np.diff(level_of_group, prepend=-1))
    return EventGraph(time, edges, np.append(starts, len(edges)), np.append(changes, len(starts)))


def _levels(num_nodes: int, edges: Edges) -> np.ndarray:
    """Returns the length of the longest chain of edges that ends in each node."""
    order = np.argsort(edges.src, kind="stable")
    targets = edges.dst[order]
    begin = np.searchsorted(edges.src[order], np.arange(num_nodes + 1))
    missing = np.bincount(edges.dst, minlength=num_nodes)
    level = np.full(num_nodes, -1, np.int64)
    front, depth = np.flatnonzero(missing == 0), 0
    while len(front):
        level[front] = depth
        counts = begin[front + 1] - begin[front]
        offsets = np.cumsum(counts) - counts
        rows = np.arange(int(counts.sum())) + np.repeat(begin[front] - offsets, counts)
        reached, times = np.unique(targets[rows], return_counts=True)
        missing[reached] -= times
        front, depth = reached[missing[reached] == 0], depth + 1
    assert (level >= 0).all(), "the event graph has a cycle"
    return level
