"""Changes to a launch that can be replayed on its event graph: what each does to the weights of the edges.

A scenario is one thing that an author could change, or a bound that no change can beat. `profiler.analysis.what_if`
replays them; what a scenario cannot know is said in its `caveat`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import Category, SiteKind
from profiler.analysis.cluster_skew import even_clusters
from profiler.analysis.event_graph import CODE, Step
from profiler.analysis.graph_edges import LaunchGraph
from profiler.analysis.leaves import BETWEEN
from profiler.analysis.rings import find_rings, one_more_stage, one_more_stage_each, release_at_once
from profiler.analysis.wait_causes import fastest_of_size

EVEN_CLUSTERS = "CTAs of a cluster work alike"
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
        less = where & (new < weight)
        if less.any():
            changed = np.where(less, new, weight)
            scenarios.append(Scenario(name, changed, is_bound=is_bound, caveat=caveat))

    load, landing, memory = (edges.step == CODE[step] for step in (Step.TMA_LOAD, Step.LANDING_ORDER, Step.MEMORY))
    moving = load | landing | memory
    add("TMA loads at once", moving, np.zeros_like(weight), is_bound=True)
    no_latency = "the rates of TMA and HBM stay as they are"
    add("TMA loads without latency", load, np.zeros_like(weight), is_bound=True, caveat=no_latency)
    add("TMA loads take half the time", moving, _scaled(weight, HALF))
    alone = np.select([load, landing], [_fastest_load(launch), _streaming(launch)], 0)
    add("TMA loads never queue", moving, alone, is_bound=True, caveat="fewer bytes come near it")
    mma = np.isin(edges.step, [CODE[Step.MMA], CODE[Step.MMA_QUEUE]]) | _is_kind(launch, SiteKind.MMA_WAIT)
    add("MMAs at once", mma, np.zeros_like(weight), is_bound=True)
    add("MMAs take 10% less time", mma, _scaled(weight, TENTH_FASTER), caveat="a larger tile or another dtype")
    add("barrier hops at once", edges.step == CODE[Step.HOP], np.zeros_like(weight), is_bound=True)
    recording = _recording(launch)
    add("no recording", recording > 0, weight - recording, caveat="the kernel when it is not profiled")
    own = _own_work(launch)
    role = launch.trace.tracks["role"]
    halved = recording + _scaled(weight - recording, HALF)
    for name in role.unique(maintain_order=True).to_list():
        of_role = np.append((role == name).to_numpy(), False)[edges.track]
        add(f"{name} warpgroups work twice as fast", own & of_role, halved)
    even = even_clusters(launch, own)
    if even is not None:
        add(EVEN_CLUSTERS, own, even.weight, caveat=even.caveat)
    cta = np.isin(edges.step, [CODE[Step.CTA_START], CODE[Step.CTA_SWITCH], CODE[Step.LAUNCH]])
    add("CTAs start at once", cta, np.zeros_like(weight), is_bound=True, caveat="persistent CTAs come near it")
    rings = find_rings(launch)
    longer = [change for ring in rings if (change := one_more_stage(launch, ring))]
    if len(longer) > 1:
        longer.append(one_more_stage_each(launch, longer))
    released = [change for ring in rings if (change := release_at_once(launch, ring))]
    scenarios += [
        Scenario(change.name, change.weight, change.src, caveat=change.caveat) for change in longer + released
    ]
    return scenarios


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
    """True for leaves in which a track does its own work: it neither waits nor could anybody else end the leaf.

    Of iterations that were not recorded, nobody knows.
    """
    is_run, leaf = _leaf_rows(launch)
    elsewhere = launch.trace.spans["category"].is_in([str(Category.WAIT), str(Category.IDLE)]).to_numpy()
    return is_run & ~np.append(elsewhere, False)[np.maximum(launch.leaves.span[leaf], BETWEEN)]
