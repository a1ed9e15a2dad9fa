"""Which chain of events took as long as the launch did, and how much slack does everything else have?"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import SiteKind
from profiler.analysis.event_graph import CODE, STEPS, EventGraph, Step
from profiler.analysis.graph_edges import LaunchGraph, build_graph
from profiler.analysis.wait_causes import fastest_of_size
from profiler.analysis.window import Window, known_window
from profiler.event_tables import SiteColumns
from profiler.grouping import distinct_rows
from profiler.trace import Trace

UNRECORDED = "unrecorded code"
RECORDING = "recording"
LATENCY, QUEUEING = "TMA load", "TMA load, queued"
# Kinds of steps are handled as numbers, for there may be millions: of sites, then of edges, then the others.
_KINDS = [*map(str, SiteKind), *map(str, STEPS), UNRECORDED, RECORDING, QUEUEING]
_FIRST_STEP = len(SiteKind)
_UNIT_STEPS = (
    Step.TMA_LOAD, Step.TMA_STORE, Step.LANDING_ORDER, Step.MEMORY, Step.MMA_START, Step.MMA_QUEUE, Step.MMA,
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class CriticalPathReport:
    """The critical path of a launch: consecutive steps from its first moment to its last, so that they sum to it.

    Attributes:
      window: the analysed stretch; after its end the path goes through code that nobody recorded.
      steps: a row per step, in time order: `begin, dur` (cycles), `kind` (what was going on), `barrier`, `role`,
        `track` (-1: no track's doing), `sm`, `cta`, `site`, `source` (file:line; for unrecorded code, of the recorded
        place before it).
      parts: the path by `kind, barrier, role, source`: `count, cycles, share` (0 to 1), largest first.
      slack: what is not on the path, by `kind, barrier, role, source`: `count`, `min_slack_cycles` and
        `p50_slack_cycles`: by how much one occurrence could grow without moving the launch's end; smallest first.
      end: length of the launch in cycles.
    """

    window: Window
    steps: pl.DataFrame
    parts: pl.DataFrame
    slack: pl.DataFrame
    end: int

    def __post_init__(self) -> None:
        total = int(self.steps["dur"].sum())
        assert total == self.end, f"the critical path covers {total} of {self.end} cycles"

    def share(self, kind: str) -> float:
        """Returns what part of the launch the path spends in steps of a kind, 0 to 1."""
        return float(self.parts.filter(pl.col("kind") == kind)["share"].sum())

    def share_of_site(self, source: str) -> float:
        """Returns what part of the launch the path spends at a source line (`file.py:41`), 0 to 1."""
        return float(self.parts.filter(pl.col("source") == source)["share"].sum())


def find_critical_path(trace: Trace, launch: LaunchGraph | None = None) -> CriticalPathReport:
    """Finds the critical path and everything else's slack.

    Args:
      trace: the launch.
      launch: its event graph, if there is one already.
    """
    launch = launch or build_graph(trace)
    graph = launch.graph
    edges = _walk_back(graph)
    labels = _Labels(launch)
    steps = labels.describe(edges)
    key = ["kind", "barrier", "role", "source"]
    parts = steps.group_by(key).agg(count=pl.len().cast(pl.Int64), cycles=pl.col("dur").sum())
    parts = parts.with_columns(share=pl.col("cycles") / max(trace.end, 1))
    parts = parts.sort("cycles", *key, descending=[True] + [False] * len(key))
    return CriticalPathReport(known_window(trace), steps, parts, _slack(graph, labels, key), trace.end)


def _walk_back(graph: EventGraph) -> np.ndarray:
    """Returns binding edges from the launch's end back to its begin, in time order.

    Where several edges into a node bind, the one from outside the track is taken: what was waited for says more than
    that the waiter was there.
    """
    edges = graph.edges
    binding = np.flatnonzero(graph.spare == 0)
    outside = edges.step[binding] != CODE[Step.RUN]
    into = np.full(len(graph.time), -1, np.int64)
    for group in (binding[~outside][::-1], binding[outside][::-1]):
        into[edges.dst[group]] = group  # the last write wins: the first edge from outside
    path, node = [], EventGraph.SINK
    while node != EventGraph.SOURCE:
        edge = int(into[node])
        if edge < 0:  # only the begin of the launch has no edge into it
            break
        path.append(edge)
        node = int(edges.src[edge])
    return np.array(path[::-1], np.int64)


class _Labels:
    """Names what edges stand for."""

    def __init__(self, launch: LaunchGraph) -> None:
        trace, leaves = launch.trace, launch.leaves
        self.trace, self.leaves, self.graph = trace, leaves, launch.graph
        self.site_kind = np.append(SiteColumns.of(trace.header).kind_code, _KINDS.index(UNRECORDED))
        self.span_site = np.append(trace.spans["site"].to_numpy().astype(np.int64), -1)
        self.async_site = np.append(trace.async_spans["site"].to_numpy().astype(np.int64), -1)
        self.wait_site = np.append(trace.waits["site"].to_numpy().astype(np.int64), -1)
        sites = {site.id: site for site in trace.header.sites}
        size = 1 + max(sites, default=-1)
        self.barrier = pl.Series([*(sites[i].barrier if i in sites else "" for i in range(size)), ""], dtype=pl.String)
        self.source = pl.Series([*(sites[i].location if i in sites else "" for i in range(size)), ""], dtype=pl.String)

    def sites(self, edges: np.ndarray) -> np.ndarray:
        """Returns the site of each edge, -1 if it has none; of unrecorded code, the site before it on its track."""
        step, row = (getattr(self.graph.edges, name)[edges] for name in ("step", "row"))
        is_run, is_hop = step == CODE[Step.RUN], step == CODE[Step.HOP]
        of_unit = np.isin(step, [CODE[one] for one in _UNIT_STEPS])
        leaf = np.where(is_run, row, 0)
        choices = [
            self.span_site[np.where(self.leaves.span[leaf] >= 0, self.leaves.span[leaf], self._span_before(leaf))],
            self.wait_site[np.where(is_hop, row, -1)],
            self.async_site[np.where(of_unit, row, -1)],
        ]
        return np.select([is_run, is_hop, of_unit], choices, -1)

    def _span_before(self, leaf: np.ndarray) -> np.ndarray:
        """Returns the last span on the leaf's track before it, -1 if there is none."""
        rows = np.arange(len(self.leaves.span))
        last = np.maximum.accumulate(np.where(self.leaves.span >= 0, rows, 0))[leaf]
        is_same = self.leaves.track[last] == self.leaves.track[leaf]
        return np.where(is_same, np.maximum(self.leaves.span[last], -1), -1)

    def kinds(self, edges: np.ndarray) -> np.ndarray:
        """Returns the kind of each edge, as a number in `_KINDS`: of the span for program order, else of the step."""
        step, row = (getattr(self.graph.edges, name)[edges] for name in ("step", "row"))
        is_run = step == CODE[Step.RUN]
        span = np.maximum(self.leaves.span[np.where(is_run, row, 0)], -1)
        return np.where(is_run, self.site_kind[self.span_site[span]], step + _FIRST_STEP)

    def table(self, edges: np.ndarray, begin: np.ndarray, dur: np.ndarray, kind: np.ndarray) -> pl.DataFrame:
        """Returns stretches of edges as the rows of `CriticalPathReport.steps`; `kind`: numbers in `_KINDS`."""
        track = self.graph.edges.track[edges]
        site = self.sites(edges)
        place = {
            name: np.append(self.trace.tracks[name].to_numpy().astype(np.int64), -1)[track] for name in ("sm", "cta")
        }
        located = np.where(site >= 0, site, len(self.source) - 1)
        role = pl.concat([self.trace.tracks["role"].rechunk(), pl.Series([""], dtype=pl.String)])
        return pl.DataFrame(
            {
                "begin": begin,
                "dur": dur,
                "kind": pl.Series(_KINDS, dtype=pl.String).gather(kind),
                "barrier": self.barrier.gather(located),
                "role": role.gather(np.where(track >= 0, track, len(role) - 1)),
                "track": track,
                **place,
                "site": site,
                "source": self.source.gather(located),
            }
        )

    def describe(self, edges: np.ndarray) -> pl.DataFrame:
        """Returns a row per edge, or two: recording is split off, and what a load took longer than the fastest."""
        graph = self.graph
        begin = graph.time[graph.edges.src[edges]]
        dur = graph.time[graph.edges.dst[edges]] - begin
        head, head_kind = self._heads(edges, dur)
        kind = self.kinds(edges)
        is_load = graph.edges.step[edges] == CODE[Step.TMA_LOAD]
        tail_kind = np.where(is_load & (head > 0), _KINDS.index(QUEUEING), kind)
        first = self.table(edges, begin, head, head_kind).with_columns(
            pl.when(pl.col("kind") == RECORDING).then(pl.lit("")).otherwise(name).alias(name)
            for name in ("barrier", "source")
        )
        rest = self.table(edges, begin + head, dur - head, tail_kind)
        return pl.concat([first, rest]).filter(pl.col("dur") > 0).sort("begin", maintain_order=True)

    def _heads(self, edges: np.ndarray, dur: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns how many cycles at the start of each edge are recording, or the latency of a load; and its name."""
        step, row = (getattr(self.graph.edges, name)[edges] for name in ("step", "row"))
        is_run, is_load = step == CODE[Step.RUN], step == CODE[Step.TMA_LOAD]
        recording = np.minimum(self.leaves.recording[np.where(is_run, row, 0)], dur)
        loads = self.trace.async_spans.filter(pl.col("unit") == "tma_load")
        size = np.append(self.trace.async_spans["bytes"].to_numpy(), 0)[np.where(is_load, row, -1)]
        fastest = fastest_of_size(loads["bytes"].to_numpy(), loads["dur"].to_numpy(), size)
        latency = np.where(fastest > 0, np.minimum(fastest, dur), dur)
        head = np.select([is_run, is_load], [recording, latency], 0)
        return head, np.where(is_load, _KINDS.index(LATENCY), _KINDS.index(RECORDING))


def _slack(graph: EventGraph, labels: _Labels, key: list[str]) -> pl.DataFrame:
    """Summarises the slack of everything that takes time, is not on the critical path and is not a wait itself."""
    edges = graph.edges
    slack = graph.slack()
    length = edges.weight
    steps = [CODE[step] for step in (Step.RUN, Step.TMA_LOAD, Step.TMA_STORE, Step.MMA)]
    rows = np.flatnonzero(np.isin(edges.step, steps) & (length > 0) & (slack > 0))
    # Nearly everything is not critical, so only one edge of each kind, role and site is given names.
    kind, slack = labels.kinds(rows), slack[rows]
    role = np.append(labels.trace.tracks["role"].rank("dense").to_numpy(), 0)[edges.track[rows]]
    first, number = distinct_rows([kind, role, labels.sites(rows)])
    names = labels.table(rows[first], slack[first], length[rows[first]], kind[first]).select(key)
    names = names.with_row_index("group").with_columns(pl.col("group").first().over(key))  # sites may share a line
    sums = pl.DataFrame({"group": names["group"].gather(number), "slack": slack}).group_by("group")
    sums = sums.agg(
        count=pl.len().cast(pl.Int64),
        min_slack_cycles=pl.col("slack").min(),
        p50_slack_cycles=pl.col("slack").median(),
    )
    named = names.unique("group").join(sums, on="group").drop("group")
    return named.sort("min_slack_cycles", *key)
