"""Rings of slots: what the launch would have taken with one more slot, or with slots that are released sooner.

A ring is where a pipeline's throughput is decided: loads wait on its empty barrier until the consumers have released a
slot. Both changes move the edges of the event graph that stand for those releases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import polars as pl

from mgpu.sites import Site, SiteKind
from profiler.analysis.event_graph import CODE, Step
from profiler.analysis.graph_edges import LaunchGraph, shortest_hop
from profiler.analysis.leaves import BEFORE, BETWEEN
from profiler.analysis.wait_causes import find_wait_causes

ONE_MORE_EACH = "one more stage in every ring"
AS_LONG_AS_NOW = "loads are taken to last as long as now"


@dataclasses.dataclass(frozen=True)
class Ring:
    """A barrier on which producers wait for free slots.

    Attributes:
      empty: its name.
      full: the barrier that the loads into these slots complete, "" if unknown.
      stages: slots.
      stage_bytes: SMEM that one more slot takes, 0 if unknown.
    """

    empty: str
    full: str
    stages: int
    stage_bytes: int

    @property
    def name(self) -> str:
        """What people call it: the barrier of its loads."""
        return self.full or self.empty

    @property
    def one_more(self) -> str:
        """One more slot, in words."""
        return f"{self.stages} to {self.stages + 1}"


@dataclasses.dataclass(frozen=True)
class MovedReleases:
    """A launch whose slots become free at other moments: new weights (int64) and sources of the graph's edges.

    Attributes:
      name: what is changed, for people and as a key.
      caveat: what the change is, and what the estimate does not know.
    """

    name: str
    weight: np.ndarray
    src: np.ndarray
    caveat: str


def find_rings(launch: LaunchGraph) -> list[Ring]:
    """Finds the rings of slots: barriers that a track waits on before it issues loads, and that no load completes."""
    trace = launch.trace
    loads = [site for site in trace.header.sites if site.kind is SiteKind.TMA_LOAD]
    issuers = trace.spans.filter(pl.col("kind") == str(SiteKind.TMA_LOAD))["track"].unique()
    for_data = find_wait_causes(trace).waits_for_data
    waits = trace.waits.filter(pl.Series(~for_data, dtype=pl.Boolean) & pl.col("track").is_in(issuers.implode()))
    waits = waits.filter(pl.col("role").str.contains("memory"))
    filled_by = _loads_after(launch, waits, loads)
    slots = {barrier.name: barrier.num_slots for barrier in trace.header.barriers}
    rings = []
    for empty in waits["barrier"].unique(maintain_order=True).to_list():
        into = [site for site in filled_by.get(empty, loads) if slots.get(site.barrier) == slots.get(empty)]
        fulls = {site.barrier for site in into}
        full = fulls.pop() if len(fulls) == 1 else ""
        buffers = {site.buffer: site.size_bytes for site in into if full}
        rings.append(Ring(empty, full, slots.get(empty, 0), sum(buffers.values())))
    return rings


def _loads_after(launch: LaunchGraph, waits: pl.DataFrame, loads: list[Site]) -> dict[str, list[Site]]:
    """Returns for each barrier the sites of the loads that tracks issue after a wait on it, before they wait again."""
    issues = launch.trace.spans.filter(pl.col("kind") == str(SiteKind.TMA_LOAD)).select("track", "begin", "site")
    last_wait = waits.select("track", "barrier", begin=pl.col("begin") + pl.col("dur")).sort("begin")
    after = issues.sort("begin").join_asof(last_wait, on="begin", by="track", check_sortedness=False)
    sites = {site.id: site for site in loads}
    pairs = after.drop_nulls("barrier").select("barrier", "site").unique(maintain_order=True).iter_rows()
    found: dict[str, list[Site]] = {}
    for barrier, site in pairs:
        found.setdefault(barrier, []).append(sites[site])
    return found


def one_more_stage(launch: LaunchGraph, ring: Ring) -> MovedReleases | None:
    """Moves every release of a slot to the wait after it: with one more slot, a load reuses the one freed earlier.

    The n-th wait of a track on the ring then ends with what released its (n-1)-th, and the first needs none.
    """
    waits = launch.trace.waits
    rows = waits.with_row_index("wait").filter(pl.col("barrier") == ring.empty).sort("track", "begin")
    wait, track = rows["wait"].to_numpy().astype(np.int64), rows["track"].to_numpy()
    if ring.stages < 1 or not len(wait):
        return None
    previous = np.full(waits.height, -1, np.int64)
    same = track[1:] == track[:-1]
    previous[wait[1:][same]] = wait[:-1][same]
    in_ring = np.zeros(waits.height, bool)
    in_ring[wait] = True

    edges = launch.graph.edges
    moved = np.flatnonzero(edges.step == CODE[Step.HOP])
    moved = moved[in_ring[edges.row[moved]]]
    order = moved[np.argsort(edges.row[moved], kind="stable")]
    first, last = (
        np.searchsorted(edges.row[order], previous[edges.row[moved]], side=side) for side in ("left", "right")
    )
    turn = np.empty(len(edges), np.int64)  # which of its wait's releases an edge is
    turn[order] = np.arange(len(order)) - np.searchsorted(edges.row[order], edges.row[order])
    donor = first + turn[moved]
    has_donor = donor < last
    donor = order[np.minimum(donor, max(len(order) - 1, 0))]
    src, weight = edges.src.copy(), edges.weight.copy()
    src[moved] = np.where(has_donor, edges.src[donor], -1)
    weight[moved] = np.where(has_donor, edges.weight[donor], 0)
    caveat = f"{ring.empty}: {ring.one_more} slots; {AS_LONG_AS_NOW}"
    return MovedReleases(f"one more stage in {ring.name} ({ring.one_more})", weight, src, caveat)


def one_more_stage_each(launch: LaunchGraph, changes: Sequence[MovedReleases]) -> MovedReleases:
    """Makes several rings one stage longer at once: no two of them move the same release.

    Args:
      launch: the launch.
      changes: what `one_more_stage` gives for each ring.
    """
    edges = launch.graph.edges
    src, weight = edges.src.copy(), edges.weight.copy()
    for change in changes:
        moved = (change.src != edges.src) | (change.weight != edges.weight)
        src[moved], weight[moved] = change.src[moved], change.weight[moved]
    return MovedReleases(ONE_MORE_EACH, weight, src, f"{len(changes)} rings; {AS_LONG_AS_NOW}")


def release_at_once(launch: LaunchGraph, ring: Ring) -> MovedReleases | None:
    """Moves every release of a slot to the end of the MMA wait before it: the slot's data has been read by then.

    A release without such a wait since the release before it is left where it is.
    """
    edges, leaves = launch.graph.edges, launch.leaves
    in_ring = (launch.trace.waits["barrier"] == ring.empty).to_numpy()
    rows = np.flatnonzero(edges.step == CODE[Step.HOP])
    rows = rows[in_ring[edges.row[rows]]]
    leaf_of_node = np.flatnonzero(leaves.span != BEFORE)  # leaves come first among the nodes, after the launch's ends
    rows = rows[(edges.src[rows] >= 2) & (edges.src[rows] < 2 + len(leaf_of_node))]
    if not len(rows):
        return None
    releasing = leaf_of_node[edges.src[rows] - 2]
    is_wait = np.append((launch.trace.spans["kind"] == str(SiteKind.MMA_WAIT)).to_numpy(), False)
    ends_wait = np.flatnonzero(is_wait[np.maximum(leaves.span, BETWEEN)]) + 1  # the leaf after each MMA wait
    place = np.searchsorted(ends_wait, releasing, side="right") - 1
    sooner = ends_wait[np.maximum(place, 0)] if len(ends_wait) else releasing
    previous = _previous_release(releasing)
    movable = (place >= 0) & (sooner > previous) & (leaves.track[sooner] == leaves.track[releasing])
    rows, releasing, sooner = rows[movable], releasing[movable], sooner[movable]
    if not len(rows):
        return None
    # An edge counts from the begin of the leaf in which the release stands; what is left of it then is the hop.
    hop = np.minimum(edges.weight[rows], shortest_hop(launch.trace))
    held = int(np.median(leaves.begin[releasing] + edges.weight[rows] - hop - leaves.begin[sooner]))
    src, weight = edges.src.copy(), edges.weight.copy()
    src[rows] = np.searchsorted(leaf_of_node, sooner) + 2
    weight[rows] = hop
    return MovedReleases(
        f"slots of {ring.empty} released at once",
        weight,
        src,
        f"{ring.empty}: released {held:,} cycles (median) after the MMA that read the slot was known to be done",
    )


def _previous_release(releasing: np.ndarray) -> np.ndarray:
    """Returns for each release the leaf of the one before it in its track's order, -1 if there is none."""
    distinct, number = np.unique(releasing, return_inverse=True)
    return np.concatenate([[-1], distinct])[number.reshape(-1)]
