"""The asynchronous units' part of the event graph: when loads land, when MMAs enter the pipe and finish."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from mgpu.sites import SiteKind
from profiler.analysis.event_graph import Edges, Step
from profiler.analysis.graph_memory import memory_edges
from profiler.analysis.mma_activity import issuing_tracks
from profiler.event_tables import SiteColumns, rows_of_kind
from profiler.grouping import combined_key, count_before, first_match, stable_order
from profiler.trace import Trace

ISSUE_KINDS = {
    "tma_load": SiteKind.TMA_LOAD,
    "tma_store": SiteKind.TMA_STORE,
    "tensor_core": SiteKind.MMA_ISSUE,
}
_STEPS = {"tma_load": Step.TMA_LOAD, "tma_store": Step.TMA_STORE, "tensor_core": Step.MMA}
_AddNodes = Callable[[np.ndarray], np.ndarray]
_FindNodes = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class UnitNodes:
    """Where the units' work stands in the graph.

    Attributes:
      edges: between issue, begin and end of the work.
      first_node, last_node: the range of node numbers, the last one excluded.
      end_node: int64[async spans], node of each one's end; -1 if it takes no part.
      track: int64[async spans], who issued it, -1 if unknown.
      unit: name of the unit, per async span.
      end: int64[async spans], cycles.
    """

    edges: list[Edges]
    first_node: int
    last_node: int
    end_node: np.ndarray
    track: np.ndarray
    unit: np.ndarray
    end: np.ndarray

    def end_of(self, async_span: np.ndarray) -> np.ndarray:
        """Returns the node at which each async span ends; -1 where the number is -1."""
        return np.append(self.end_node, -1)[async_span]

    def last_finished(self, unit: str, track: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns, per query, the work of `unit` that `track` issued and that ended last, not after `time`; and when.

        -1 and -1 if there is none.
        """
        rows = np.flatnonzero((self.unit == unit) & (self.track >= 0) & (self.end_node >= 0))
        if not len(rows) or not len(track):
            return np.full(len(track), -1, np.int64), np.full(len(track), -1, np.int64)
        stride = int(max(self.end.max(), time.max())) + 2
        key = self.track[rows] * stride + self.end[rows]
        order = stable_order(key)
        position = np.searchsorted(key[order], track * stride + time, side="right") - 1
        found = rows[order[np.maximum(position, 0)]]
        is_own = (position >= 0) & (self.track[found] == track)
        return np.where(is_own, found, -1), np.where(is_own, self.end[found], -1)


def add_units(trace: Trace, add: _AddNodes, before: _FindNodes) -> UnitNodes:
    """Adds the nodes of all asynchronous work whose issuer is known.

    Args:
      trace: the launch.
      add: takes times, returns the numbers of new nodes.
      before: takes tracks and times, returns the last node of each track not after that time and its distance.
    """
    spans = trace.async_spans
    unit = spans["unit"].to_numpy()
    begin, dur, cta, warpgroup = (
        spans[name].to_numpy().astype(np.int64) for name in ("begin", "dur", "cta", "warpgroup")
    )
    end = begin + dur
    track = np.full(len(end), -1, np.int64)
    issue = begin.copy()  # moment on the issuing track at which the work was handed over
    for name, kind in ISSUE_KINDS.items():
        rows = np.flatnonzero(unit == name)
        track[rows] = issuing_tracks(trace, cta[rows], warpgroup[rows], kind)
        issue[rows] = _issue_times(trace, rows, track[rows], kind)
    node, offset = before(track, np.minimum(issue, begin))
    takes_part = (track >= 0) & (node >= 0) & (dur > 0)
    end_node = np.full(len(end), -1, np.int64)
    added = add(end[takes_part])
    end_node[takes_part] = added
    edges = []
    for name in ("tma_load", "tma_store"):
        rows = np.flatnonzero(takes_part & (unit == name))
        weight = end[rows] - issue[rows] + offset[rows]
        edges.append(Edges.of(_STEPS[name], node[rows], end_node[rows], weight, rows, track[rows]))
    loads = np.flatnonzero(takes_part & (unit == "tma_load"))
    edges.append(_landing_order(trace, loads, end, end_node, track))
    edges.append(memory_edges(trace, loads, end, end_node))
    mmas = np.flatnonzero(takes_part & (unit == "tensor_core"))
    begin_node = add(begin[mmas])
    queue = _queue(trace, mmas, begin, issue, dur, begin_node)
    alone = ~np.isin(begin_node, queue.dst)
    weight = offset[mmas] + np.where(alone, begin[mmas] - issue[mmas], 0)
    edges.append(Edges.of(Step.MMA_START, node[mmas], begin_node, weight, mmas, track[mmas]))
    edges.append(queue)
    edges.append(Edges.of(Step.MMA, begin_node, end_node[mmas], dur[mmas], mmas, track[mmas]))
    first = int(added[0]) if len(added) else 0
    return UnitNodes(edges, first, first + len(added) + len(mmas), end_node, track, unit, end)


def _issue_times(trace: Trace, rows: np.ndarray, track: np.ndarray, kind: SiteKind) -> np.ndarray:
    """Returns when each piece of work was handed to its unit.

    A load begins when it is issued. An MMA may begin later, if the pipe was taken: the n-th group that a track issues
    at a site belongs to the n-th issue recorded there, which is over when the group has been handed over.
    """
    begin = trace.async_spans["begin"].to_numpy().astype(np.int64)[rows]
    if kind is not SiteKind.MMA_ISSUE or not len(rows):
        return begin
    issues = rows_of_kind(trace.spans, SiteColumns.of(trace.header), kind)
    issued = issues["begin"].to_numpy() + issues["dur"].to_numpy()
    by_begin = stable_order(begin)
    site = trace.async_spans["site"].to_numpy()[rows]
    pairs = ((track[by_begin], issues["track"].to_numpy()), (site[by_begin], issues["site"].to_numpy()))
    place = combined_key([np.concatenate(pair).astype(np.int64) for pair in pairs])
    turn = np.concatenate([count_before(place[: len(rows)]), count_before(place[len(rows) :])])
    key = combined_key([place, turn])
    found = first_match(key[: len(rows)], key[len(rows) :])
    handed_over = begin.copy()
    known = found >= 0
    handed_over[by_begin[known]] = np.minimum(begin[by_begin[known]], issued[found[known]])
    return handed_over


def _landing_order(trace: Trace, loads: np.ndarray, end: np.ndarray, end_node: np.ndarray, track: np.ndarray) -> Edges:
    """Returns edges between loads that landed one after the other on an SM.

    The later one needs at least the cycles that its bytes take at the engine's peak rate.
    """
    sm = trace.async_spans["sm"].to_numpy().astype(np.int64)
    size = trace.async_spans["bytes"].to_numpy()
    order = loads[stable_order(combined_key([sm[loads], end[loads]]))]
    same = sm[order[1:]] == sm[order[:-1]]
    before, after = order[:-1][same], order[1:][same]
    apart = end[after] - end[before]
    rate = float(trace.header.peaks.get("tma_bytes", 0.0))
    streaming = np.ceil(size[after] / rate).astype(np.int64) if rate else np.zeros_like(apart)
    return Edges.of(
        Step.LANDING_ORDER, end_node[before], end_node[after], np.minimum(streaming, apart), after, track[after]
    )


def _queue(
    trace: Trace, mmas: np.ndarray, begin: np.ndarray, issue: np.ndarray, dur: np.ndarray, begin_node: np.ndarray
) -> Edges:
    """Returns edges between MMA groups that entered an SM's pipe one after the other.

    How long a group keeps the next one out is seen where the next one had to queue; groups of one site take the same.
    """
    sm, site = (trace.async_spans[name].to_numpy().astype(np.int64) for name in ("sm", "site"))
    place = stable_order(combined_key([sm[mmas], begin[mmas]]))
    order = mmas[place]
    same = np.flatnonzero(sm[order[1:]] == sm[order[:-1]])
    before, after = order[same], order[same + 1]
    apart = begin[after] - begin[before]
    queued = issue[after] < begin[after]
    sites, number = np.unique(site[before], return_inverse=True)
    occupancy = np.full(len(sites), np.iinfo(np.int64).max)
    np.minimum.at(occupancy, number[queued], apart[queued])
    held = np.minimum(occupancy[number], dur[before])
    weight = np.where(queued, apart, np.minimum(held, apart))
    none = np.full(len(before), -1)
    return Edges.of(Step.MMA_QUEUE, begin_node[place[same]], begin_node[place[same + 1]], weight, before, none)
