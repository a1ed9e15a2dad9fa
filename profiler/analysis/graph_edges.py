"""Finds the edges of the event graph in a Trace: what every moment of the launch had to wait for.

- Program order: a track goes through its leaves. A wait whose release is known constrains nothing by itself.
- Barriers: every arrival of a phase precedes the end of every wait for it, by at least the shortest hop of the trace.
- TMA: a load lands its duration after its issue, and not before the load ahead of it has streamed in.
- Tensor core: a group begins after its issue and after the group ahead of it has left the pipe's entry.
- CTAs: a CTA begins after the one whose exit made room on its SM.

A moment for which no release is known keeps its measured distance from the one before it on its track.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import SiteKind
from profiler.analysis.event_graph import CODE, Edges, EventGraph, Step, order_graph
from profiler.analysis.graph_units import UnitNodes, add_units
from profiler.analysis.leaves import AFTER, BEFORE, BETWEEN, Leaves, cut_into_leaves
from profiler.barriers import PHASE_KEYS
from profiler.event_tables import SiteColumns, rows_of_kind
from profiler.grouping import with_shared_key
from profiler.trace import Trace


@dataclasses.dataclass(frozen=True)
class LaunchGraph:
    """The event graph of a launch, and what its rows refer to.

    Attributes:
      trace, leaves: what the graph was made from.
      graph: see there.
    """

    trace: Trace
    leaves: Leaves
    graph: EventGraph


class _Nodes:
    """Numbers the nodes: 0 and 1 are the launch's ends, then leaf begins, CTA begins and ends, unit moments."""

    def __init__(self, trace: Trace, leaves: Leaves) -> None:
        self.leaves = leaves
        alive = leaves.span != BEFORE
        self.of_leaf = np.where(alive, np.cumsum(alive) + 1, -1)
        self.times = [np.array([0, trace.end]), leaves.begin[alive]]
        self.count = 2 + int(alive.sum())

    def add(self, times: np.ndarray) -> np.ndarray:
        """Adds nodes and returns their numbers."""
        self.times.append(times)
        self.count += len(times)
        return np.arange(self.count - len(times), self.count)

    def before(self, track: np.ndarray, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the last node of each track not after `time`, and how long before it lies; node -1 if none."""
        leaf = self.leaves.find(np.maximum(track, 0), time)
        node = np.where(track >= 0, self.of_leaf[leaf], -1)
        return node, time - self.leaves.begin[leaf]


def build_graph(trace: Trace) -> LaunchGraph:
    """Returns the event graph of a launch."""
    leaves = cut_into_leaves(trace)
    nodes = _Nodes(trace, leaves)
    units = add_units(trace, nodes.add, nodes.before)
    cta_edges = _cta_edges(trace, nodes)
    releases = [_barrier_edges(trace, nodes, units), *_completion_edges(trace, nodes, units), _meetings(trace, nodes)]
    # An edge against time would come from misaligned SMs; one at equal times could close a circle.
    times = np.concatenate(nodes.times)
    released = Edges.concatenate(releases)
    from_unit = (released.src >= units.first_node) & (released.src < units.last_node)
    forward = times[released.src] + released.weight <= times[released.dst]
    forward &= from_unit | (times[released.src] < times[released.dst])
    released = released.take(forward)
    program = _program_order(trace, nodes, released, times)
    edges = Edges.concatenate([program, released, *units.edges, *cta_edges])
    return LaunchGraph(trace, leaves, order_graph(times, edges))


def _program_order(trace: Trace, nodes: _Nodes, released: Edges, times: np.ndarray) -> Edges:
    """Returns an edge per leaf of a living track. A wait that something released may be as short as a wait can be."""
    leaves = nodes.leaves
    rows = np.flatnonzero(leaves.span >= BETWEEN)
    src, dst = nodes.of_leaf[rows], nodes.of_leaf[rows + 1]
    length = times[dst] - times[src]
    weight = length.copy()
    is_released = np.zeros(nodes.count, bool)
    binding = times[released.src] + released.weight == times[released.dst]
    is_released[released.dst[binding]] = True
    waits = np.append(_is_wait_that_ends(trace), [False] * 3)[leaves.span[rows]]
    ends_here = leaves.span[rows + 1] != leaves.span[rows]
    free = waits & ends_here & is_released[dst]
    weight[free] = np.minimum(np.maximum(leaves.recording[rows[free]], _shortest_wait(trace)), length[free])
    return Edges.of(Step.RUN, src, dst, weight, rows, leaves.track[rows])


def _is_wait_that_ends(trace: Trace) -> np.ndarray:
    """True for spans of kinds that somebody else ends."""
    kinds = [SiteKind.BARRIER_WAIT, SiteKind.MMA_WAIT, SiteKind.STORE_WAIT, SiteKind.SYNC, SiteKind.SET_REGISTERS]
    return trace.spans["kind"].is_in([str(kind) for kind in kinds]).to_numpy()


def _shortest_wait(trace: Trace) -> int:
    """What a barrier wait costs when its phase is complete: the shortest one of the trace that was not blocked."""
    shortest = trace.waits.filter(~pl.col("blocked"))["dur"].min()
    return shortest if isinstance(shortest, int) else 0


def shortest_hop(trace: Trace) -> int:
    """Cycles from a phase's completion to the end of a wait for it: the fewest of all blocked waits."""
    blocked = trace.waits.filter(pl.col("blocked") & (pl.col("released_at") >= 0))
    hop = blocked.select((pl.col("begin") + pl.col("dur") - pl.col("released_at")).min()).item()
    return max(hop, 0) if isinstance(hop, int) else 0


def _barrier_edges(trace: Trace, nodes: _Nodes, units: UnitNodes) -> Edges:
    """Returns an edge from each arrival of a phase to the end of each wait for that phase."""
    ends = trace.waits.select(
        *PHASE_KEYS, "track", "blocked", wait=pl.int_range(pl.len()), end=pl.col("begin") + pl.col("dur")
    )
    arrivals = trace.arrivals.select(*PHASE_KEYS, "arrival", "time", "completes", "source_track")
    is_unit = trace.arrivals["source"].str.starts_with("WG").not_()
    arrivals = arrivals.with_columns(source_event=_source_events(trace, is_unit), is_unit=is_unit)
    arrivals, ends = with_shared_key([arrivals, ends], PHASE_KEYS)
    pairs = arrivals.join(ends.drop(PHASE_KEYS), on="key").filter(pl.col("time") <= pl.col("end"))
    time, end, wait = (pairs[name].to_numpy().astype(np.int64) for name in ("time", "end", "wait"))
    event = pairs["source_event"].to_numpy()
    of_unit = pairs["is_unit"].to_numpy()
    src, offset = nodes.before(pairs["source_track"].to_numpy().astype(np.int64), time)
    unit_node = units.end_of(np.where(of_unit, event, -1))
    src = np.where(of_unit, unit_node, src)
    offset = np.where(of_unit, 0, offset)
    dst, _ = nodes.before(pairs["track"].to_numpy().astype(np.int64), end)
    binding = (pairs["completes"] & pairs["blocked"]).to_numpy()
    hop = np.where(binding, end - time, np.minimum(shortest_hop(trace), end - time))
    edges = Edges.of(Step.HOP, src, dst, offset + hop, wait, pairs["track"].to_numpy())
    return edges.take((src >= 0) & (dst >= 0))


def _source_events(trace: Trace, is_unit: pl.Series) -> pl.Series:
    """Returns the async span behind each arrival of a unit: as recorded, else the load that landed at that moment."""
    recorded = trace.arrivals["source_event"].fill_null(-1)
    if not (is_unit & (recorded < 0)).any():
        return recorded
    place = trace.tracks.select(pl.col("track").alias("source_track"), pl.col("cta").alias("source_cta"))
    landed = trace.async_spans.filter(pl.col("unit") == "tma_load").select(
        pl.col("cta").alias("source_cta"), "slot", time=pl.col("begin") + pl.col("dur"), landed="async_span"
    )
    landed = landed.unique(["source_cta", "slot", "time"], keep="last", maintain_order=True)
    known = trace.arrivals.join(place, on="source_track", how="left", maintain_order="left")
    known = known.join(landed, on=["source_cta", "slot", "time"], how="left", maintain_order="left")
    event = pl.when(pl.col("source_event") >= 0).then("source_event")
    return known.select(pl.coalesce(event, "landed").fill_null(-1).cast(pl.Int64)).to_series()


def _completion_edges(trace: Trace, nodes: _Nodes, units: UnitNodes) -> list[Edges]:
    """Returns edges from MMAs and stores to the ends of their issuer's waits for them."""
    found = []
    for kind, unit in ((SiteKind.MMA_WAIT, "tensor_core"), (SiteKind.STORE_WAIT, "tma_store")):
        spans = rows_of_kind(trace.spans, SiteColumns.of(trace.header), kind)
        track, begin, dur = (spans[name].to_numpy().astype(np.int64) for name in ("track", "begin", "dur"))
        end = begin + dur
        work, finished = units.last_finished(unit, track, end)
        known = work >= 0
        if kind is SiteKind.STORE_WAIT:  # most store waits end when SMEM has been read, which the trace does not tell
            known &= finished > begin
        dst, _ = nodes.before(track, end)
        lag = np.where(finished > begin, end - finished, 0)
        found.append(Edges.of(Step.RESULT, units.end_of(work), dst, lag, work, track).take(known))
    return found


def _meetings(trace: Trace, nodes: _Nodes) -> Edges:
    """Returns edges from the last one to reach a sync (of a CTA or cluster) to the end of everybody's wait there."""
    place = trace.tracks.select("track", "cluster")
    spans = rows_of_kind(trace.spans, SiteColumns.of(trace.header), SiteKind.SYNC).join(
        place, on="track", maintain_order="left"
    )
    spans = spans.with_columns(round=pl.int_range(pl.len()).over("track", "site"), end=pl.col("begin") + pl.col("dur"))
    group = ["cluster", "site", "round"]
    spans = spans.with_columns(
        last=pl.col("begin").max().over(group),
        first_end=pl.col("end").min().over(group),
        last_track=pl.col("track").sort_by("begin", "track").last().over(group),
    ).filter((pl.col("last") <= pl.col("first_end")) & (pl.col("last_track") != pl.col("track")))
    track, last, end = (spans[name].to_numpy().astype(np.int64) for name in ("track", "last", "end"))
    src, offset = nodes.before(spans["last_track"].to_numpy().astype(np.int64), last)
    dst, _ = nodes.before(track, end)
    edges = Edges.of(Step.MEETING, src, dst, end - last + offset, -1, track)
    return edges.take((src >= 0) & (dst >= 0))


def _cta_edges(trace: Trace, nodes: _Nodes) -> list[Edges]:
    """Returns edges between the launch's ends, its CTAs' and their tracks'."""
    ctas = _cta_times(trace)
    begin, end, sm = (ctas[name].to_numpy().astype(np.int64) for name in ("begin", "end", "sm"))
    begin_node, end_node = nodes.add(begin), nodes.add(end)
    row = np.full(1 + int(ctas["cta"].to_numpy().max(initial=-1)), -1, np.int64)
    row[ctas["cta"].to_numpy()] = np.arange(ctas.height)
    leaves = nodes.leaves
    starts = np.flatnonzero((leaves.span != BEFORE) & (np.append(BEFORE, leaves.span[:-1]) == BEFORE))
    starts = starts[np.unique(leaves.track[starts], return_index=True)[1]]
    stops = np.flatnonzero(leaves.span == AFTER)
    cta_of_track = trace.tracks["cta"].to_numpy().astype(np.int64)
    start_row, stop_row = (row[cta_of_track[leaves.track[rows]]] for rows in (starts, stops))
    before = _row_before(sm, begin, end)
    follows = before >= 0
    none = np.full(ctas.height, -1)
    source, sink = np.zeros_like(begin_node), np.full_like(begin_node, EventGraph.SINK)
    late = int(end.max(initial=0))
    ending = np.where(end == late, trace.end - late, 0)
    return [
        Edges.of(Step.LAUNCH, source, begin_node, begin, -1, none).take(~follows),
        Edges.of(Step.CTA_SWITCH, end_node[before], begin_node, begin - end[before], -1, none).take(follows),
        Edges.of(
            Step.CTA_START, begin_node[start_row], nodes.of_leaf[starts], leaves.begin[starts] - begin[start_row], -1,
            leaves.track[starts],
        ),
        _exits(nodes.of_leaf[stops], end_node[stop_row], end[stop_row] - leaves.begin[stops], leaves.track[stops]),
        Edges.of(Step.END, end_node, sink, ending, -1, none),
    ]  # fmt: skip


def _exits(track_end: np.ndarray, cta_end: np.ndarray, rest: np.ndarray, track: np.ndarray) -> Edges:
    """Returns edges from tracks' ends to their CTA's; only the last track's distance is known to be needed."""
    shortest = np.full(int(cta_end.max(initial=0)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, cta_end, rest)
    return Edges.of(Step.CTA_EXIT, track_end, cta_end, np.minimum(rest, shortest[cta_end]), -1, track)


def _cta_times(trace: Trace) -> pl.DataFrame:
    """Returns `cta, sm, begin, end` of every CTA that has a track: no narrower than its tracks."""
    tracks = trace.tracks.group_by("cta").agg(pl.col("sm").first(), pl.col("begin").min(), pl.col("end").max())
    known = trace.ctas.select("cta", pl.col("begin").alias("from"), pl.col("end").alias("to"))
    return tracks.join(known, on="cta", how="left").select(
        "cta", "sm", begin=pl.min_horizontal("begin", "from"), end=pl.max_horizontal("end", "to")
    ).sort("cta")  # fmt: skip


def _row_before(sm: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Returns for each CTA the one of its SM that ended last before it began, -1 if it was there from the start."""
    stride = int(end.max(initial=0)) + 2
    order = np.lexsort((np.arange(len(end)), end, sm))
    keys = (sm * stride + end)[order]
    position = np.searchsorted(keys, sm * stride + begin, side="right") - 1
    found = order[np.maximum(position, 0)]
    earlier = (position >= 0) & (sm[found] == sm) & (begin[found] < begin)
    return np.where(earlier, found, -1)


def step_code(step: Step) -> int:
    """Returns the number that stands for a step in `Edges.step`."""
    return CODE[step]
