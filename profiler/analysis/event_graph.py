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
import functools
from collections.abc import Sequence

import numpy as np

from profiler.grouping import combined_key, stable_order


class Step(enum.StrEnum):
    """What an edge stands for. The value is the name that reports use."""

    RUN = "run"  # program order of a track: one leaf of its timeline
    HOP = "barrier hop"  # an arrival, to the end of the wait that it releases
    TMA_LOAD = "TMA load"  # issue to landing
    TMA_STORE = "TMA store"
    LANDING_ORDER = "TMA bandwidth"  # landing to the next landing on the SM
    MEMORY = "memory bandwidth"  # landing to a later landing on any SM
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


# More edges than that into each node of a level are no longer looked at one after the other.
_MANY_EDGES = 8
_STRETCH = 1 << 12  # rows of a table that fit a core's own cache
# Of times and weights in `EventGraph.solve_ends`.
_BATCH_BYTES = 1 << 27

STEPS = list(Step)
_EDGE_DTYPES = (np.int64, np.int64, np.int64, np.int8, np.int32, np.int32)  # there may be tens of millions
CODE = {step: number for number, step in enumerate(STEPS)}


@dataclasses.dataclass(frozen=True)
class Edges:
    """Edges as columns of equal length.

    Attributes:
      src, dst: nodes: int64.
      weight: cycles that must pass at least: int64.
      step: index into `STEPS`: int8.
      row: what the edge is about: leaf (RUN), async span (TMA and MMA steps), wait (HOP), else -1: int32.
      track: whose doing it is, -1 if no track's: int32.
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
        return cls(*(np.asarray(column, dtype) for column, dtype in zip(columns, _EDGE_DTYPES, strict=True)))

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
        other, and equally many edges lead to each.
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
        if src is None:
            return self._order.solve(self._order.src, weight)[self._order.place]
        weight = np.where(src < 0, np.iinfo(np.int64).min // 2, weight)
        return self._order.solve(self._order.place[np.maximum(src, 0)], weight, earliest=0)[self._order.place]

    def solve_ends(self, weights: Sequence[np.ndarray]) -> list[int]:
        """Returns the launch's end with each of some weights (int64[edges]), as `solve` does, several at a time."""
        order, sink = self._order, self._order.place[self.SINK]
        at_once = max(_BATCH_BYTES // (8 * (len(self.edges) + len(self.time))), 1)
        if at_once == 1:
            return [int(order.solve(order.src, weight)[sink]) for weight in weights]
        ends: list[int] = []
        for first in range(0, len(weights), at_once):
            batch = _side_by_side(weights[first : first + at_once])
            ends += order.solve(order.src, batch)[sink].tolist()
        return ends

    @functools.cached_property
    def _order(self) -> _SolvingOrder:
        return _SolvingOrder.of(self)

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


def _side_by_side(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Returns arrays of equal length as columns of one; stretch by stretch, so that what is written stays cached."""
    table = np.empty((len(columns[0]), len(columns)), columns[0].dtype)
    for first in range(0, len(table), _STRETCH):
        for number, column in enumerate(columns):
            table[first : first + _STRETCH, number] = column[first : first + _STRETCH]
    return table


@dataclasses.dataclass(frozen=True)
class _SolvingOrder:
    """Nodes numbered in the order of solving, so that each level reads its edges and writes its nodes in one stretch.

    Attributes:
      place: int64[nodes], the number of each node; those without an edge into them come first.
      src: int64[edges], places where edges begin.
      levels: of each level, how many edges lead to each node, the first edge and the one behind the last, the first
        place and the one behind the last.
    """

    place: np.ndarray
    src: np.ndarray
    levels: list[tuple[int, int, int, int, int]]

    @classmethod
    def of(cls, graph: EventGraph) -> _SolvingOrder:
        edges, groups, levels = graph.edges, graph.groups, graph.levels
        has_edge = np.zeros(len(graph.time), bool)
        has_edge[edges.dst] = True
        sources = np.flatnonzero(~has_edge)
        place = np.empty(len(graph.time), np.int64)
        place[sources] = np.arange(len(sources))
        place[edges.dst[groups[:-1]]] = len(sources) + np.arange(len(groups) - 1)
        edge, first_place = groups[levels], len(sources) + levels
        degree = np.diff(groups)[levels[:-1]]
        columns = (degree, edge[:-1], edge[1:], first_place[:-1], first_place[1:])
        return cls(place, place[edges.src], list(zip(*(column.tolist() for column in columns), strict=True)))

    def solve(self, src: np.ndarray, weight: np.ndarray, earliest: int | None = None) -> np.ndarray:
        """Returns the earliest time at each place.

        Args:
          src: int64[edges], places where edges begin.
          weight: int64[edges], or int64[edges, n] to solve n graphs at once.
          earliest: no node comes before; None if the weights see to that.
        """
        time = np.zeros((len(self.place), *weight.shape[1:]), np.int64)
        for degree, edge, last_edge, first, last in self.levels:
            arrives = time.take(src[edge:last_edge], axis=0)
            arrives += weight[edge:last_edge]
            if degree > _MANY_EDGES:
                arrives = arrives.reshape(last - first, degree, -1).max(axis=1).reshape(time[first:last].shape)
            elif degree > 1:
                latest = arrives[::degree]
                for nth in range(1, degree):
                    latest = np.maximum(latest, arrives[nth::degree])
                arrives = latest
            if earliest is not None:
                np.maximum(arrives, earliest, out=arrives)
            time[first:last] = arrives
        return time


def order_graph(time: np.ndarray, edges: Edges) -> EventGraph:
    """Sorts edges into levels.

    Args:
      time: int64[nodes]; nodes 0 and 1 are the begin and the end of the launch.
      edges: an acyclic graph.
    """
    level = _levels(len(time), edges)
    degree = np.bincount(edges.dst, minlength=len(time))
    level = level * (1 + int(degree.max(initial=0))) + degree
    order = stable_order(combined_key([level[edges.dst], edges.dst]))
    edges = edges.take(order)
    starts = np.flatnonzero(np.diff(edges.dst, prepend=-1))
    changes = np.flatnonzero(np.diff(level[edges.dst[starts]], prepend=-1))
    return EventGraph(time, edges, np.append(starts, len(edges)), np.append(changes, len(starts)))


def _levels(num_nodes: int, edges: Edges) -> np.ndarray:
    """Returns the length of the longest chain of edges that ends in each node."""
    targets = edges.dst[stable_order(edges.src)]
    begin = np.concatenate([[0], np.cumsum(np.bincount(edges.src, minlength=num_nodes))])
    missing = np.bincount(edges.dst, minlength=num_nodes)
    level = np.full(num_nodes, -1, np.int64)
    mark = np.empty(num_nodes, np.int64)
    front, depth = np.flatnonzero(missing == 0), 0
    while len(front):
        level[front] = depth
        first = begin[front]
        counts = begin[front + 1] - first
        ends = np.cumsum(counts)
        reached = targets[np.arange(ends[-1]) + np.repeat(first - (ends - counts), counts)]
        np.subtract.at(missing, reached, 1)
        ready = reached[missing[reached] == 0]
        mark[ready] = numbers = np.arange(len(ready))
        front, depth = ready[mark[ready] == numbers], depth + 1  # each once: the last write of its mark
    assert (level >= 0).all(), "the event graph has a cycle"
    return level
