"""Changes to a launch that can be replayed on its event graph: what each does to the weights of the edges.

A scenario is one thing that an author could change, or a bound that no change can beat. `profiler.analysis.what_if`
replays them; what a scenario cannot know is said in its `caveat`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import Category, SiteKind
from profiler.analysis.event_graph import CODE, Step
from profiler.analysis.graph_edges import LaunchGraph
from profiler.analysis.leaves import BETWEEN
from profiler.analysis.wait_causes import fastest_of_size, find_wait_causes

HALF = 0.5
TENTH_FASTER = 1 / 1.1


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A changed launch: the edges' new weights (int64), and new sources if edges move (else None).

    Attributes:
      name: what is changed, for people and as a key.
      is_bound: True if nobody can build it: how much there is to gain at most.
      caveat: what the estimate does not know, "" if nothing worth saying.
    """

    name: str
    weight: np.ndarray
    src: np.ndarray | None = None
    is_bound: bool = False
    caveat: str = ""


def build_scenarios(launch: LaunchGraph) -> list[Scenario]:
    """Returns every scenario that makes sense for a launch."""
    edges = launch.graph.edges
    weight = edges.weight
    scenarios: list[Scenario] = []

    def add(name: str, where: np.ndarray, new: np.ndarray, is_bound: bool = False, caveat: str = "") -> None:
        if where.any() and (new < weight)[where].any():
            changed = np.where(where, np.minimum(new, weight), weight)
            scenarios.append(Scenario(name, changed, is_bound=is_bound, caveat=caveat))

    load, landing = edges.step == CODE[Step.TMA_LOAD], edges.step == CODE[Step.LANDING_ORDER]
    add("TMA loads at once", load | landing, np.zeros_like(weight), is_bound=True)
    add("TMA loads take half the time", load | landing, _scaled(weight, HALF))
    add("TMA loads never queue", load | landing, np.where(load, _fastest_load(launch), _streaming(launch)))
    mma = np.isin(edges.step, [CODE[Step.MMA], CODE[Step.MMA_QUEUE]]) | _is_kind(launch, SiteKind.MMA_WAIT)
    add("MMAs at once", mma, np.zeros_like(weight), is_bound=True)
    add("MMAs take 10% less time", mma, _scaled(weight, TENTH_FASTER), caveat="a larger tile or another dtype")
    add("barrier hops at once", edges.step == CODE[Step.HOP], np.zeros_like(weight), is_bound=True)
    recording = _recording(launch)
    add("no recording", recording > 0, weight - recording, caveat="the kernel when it is not profiled")
    own = _own_work(launch)
    role = np.append(launch.trace.tracks["role"].to_numpy(), "")[edges.track]
    for name in launch.trace.tracks["role"].unique(maintain_order=True).to_list():
        add(f"{name} warpgroups work twice as fast", own & (role == name), _scaled(weight, HALF))
    cta = np.isin(edges.step, [CODE[Step.CTA_START], CODE[Step.CTA_SWITCH], CODE[Step.LAUNCH]])
    add("CTAs start at once", cta, np.zeros_like(weight), is_bound=True, caveat="persistent CTAs come near it")
    return scenarios + [one for ring in find_rings(launch) if (one := _one_more_stage(launch, ring))]


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


def find_rings(launch: LaunchGraph) -> list[Ring]:
    """Finds the rings of slots: barriers that a track waits on before it issues loads, and that no load completes."""
    trace = launch.trace
    loads = [site for site in trace.header.sites if site.kind is SiteKind.TMA_LOAD]
    issuers = trace.spans.filter(pl.col("kind") == str(SiteKind.TMA_LOAD))["track"].unique()
    for_data = find_wait_causes(trace).waits_for_data
    waits = trace.waits.filter(pl.Series(~for_data, dtype=pl.Boolean) & pl.col("track").is_in(issuers.implode()))
    waits = waits.filter(pl.col("role").str.contains("memory"))
    slots = {barrier.name: barrier.num_slots for barrier in trace.header.barriers}
    rings = []
    for empty in waits["barrier"].unique(maintain_order=True).to_list():
        fulls = dict.fromkeys(site.barrier for site in loads if slots.get(site.barrier) == slots.get(empty))
        full = next(iter(fulls)) if len(fulls) == 1 else ""
        buffers = {site.buffer: site.size_bytes for site in loads if site.barrier == full}
        rings.append(Ring(empty, full, slots.get(empty, 0), sum(buffers.values()) if full else 0))
    return rings


def _one_more_stage(launch: LaunchGraph, ring: Ring) -> Scenario | None:
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
    caveat = f"{ring.empty}: {ring.stages} to {ring.stages + 1} slots; loads are taken to last as long as now"
    return Scenario(f"one more stage ({ring.stages} to {ring.stages + 1})", weight, src, caveat=caveat)


def _scaled(weight: np.ndarray, factor: float) -> np.ndarray:
    return np.rint(weight * factor).astype(np.int64)


def _async_column(launch: LaunchGraph, name: str) -> np.ndarray:
    """Returns a column of the async spans for the edges that are about one, 0 for others."""
    edges = launch.graph.edges
    about = np.isin(edges.step, [CODE[Step.TMA_LOAD], CODE[Step.LANDING_ORDER]])
    values = np.append(launch.trace.async_spans[name].to_numpy().astype(np.int64), 0)
    return values[np.where(about, edges.row, -1)]


def _fastest_load(launch: LaunchGraph) -> np.ndarray:
    """Returns the weight of each load edge if the load took as long as the fastest of its size."""
    loads = launch.trace.async_spans.filter(pl.col("unit") == "tma_load")
    size, dur = _async_column(launch, "bytes"), _async_column(launch, "dur")
    fastest = fastest_of_size(loads["bytes"].to_numpy(), loads["dur"].to_numpy(), size)
    return launch.graph.edges.weight - np.where(fastest > 0, np.maximum(dur - fastest, 0), 0)


def _streaming(launch: LaunchGraph) -> np.ndarray:
    """Returns how long the bytes of each landing take at the engine's peak rate; 0 if that is not known."""
    rate = float(launch.trace.header.peaks.get("tma_bytes", 0.0))
    size = _async_column(launch, "bytes")
    return np.ceil(size / rate).astype(np.int64) if rate else np.zeros_like(size)


def _leaf_rows(launch: LaunchGraph) -> tuple[np.ndarray, np.ndarray]:
    """Returns which edges are leaves, and each edge's leaf (0 for the others)."""
    edges = launch.graph.edges
    is_run = edges.step == CODE[Step.RUN]
    return is_run, np.where(is_run, edges.row, 0)


def _recording(launch: LaunchGraph) -> np.ndarray:
    is_run, leaf = _leaf_rows(launch)
    return np.where(is_run, np.minimum(launch.leaves.recording[leaf], launch.graph.edges.weight), 0)


def _is_kind(launch: LaunchGraph, kind: SiteKind) -> np.ndarray:
    """True for leaves of that kind that nothing else explains (their weight is their length)."""
    is_run, leaf = _leaf_rows(launch)
    of_kind = np.append((launch.trace.spans["kind"] == str(kind)).to_numpy(), False)
    return is_run & of_kind[np.maximum(launch.leaves.span[leaf], BETWEEN)]


def _own_work(launch: LaunchGraph) -> np.ndarray:
    """True for leaves in which a track does its own work: it neither waits nor could anybody else end the leaf."""
    is_run, leaf = _leaf_rows(launch)
    waits = np.append((launch.trace.spans["category"] == str(Category.WAIT)).to_numpy(), False)
    return is_run & ~waits[np.maximum(launch.leaves.span[leaf], BETWEEN)]
