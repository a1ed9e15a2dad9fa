"""Who watches which CTA of a launch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from mgpu.sim.engine import Engine
from mgpu.sim.races.clocks import ClusterParty
from mgpu.sim.races.cluster import ClusterRaces
from mgpu.sim.races.cta import ClusterMemory, CtaRaces
from mgpu.sim.races.detector import LaunchRaces
from mgpu.sim.races.report import Place, Race, UnwrittenRead
from mgpu.sim.races.shadow import Boxes, Index
from mgpu.sim.semaphore import Semaphore

WATCHED_CTAS = 4
"""CTAs of a launch that are watched in full unless all are asked for: they run the same code as the others."""


def sampled_clusters(num_clusters: int, cluster_size: int) -> frozenset[int]:
    """Returns the clusters that are watched in full unless all are asked for: so many as have `WATCHED_CTAS` CTAs.

    The first two, the last and the middle one differ most in loop counts, borders of arrays, and neighbours.
    """
    most = max(1, WATCHED_CTAS // cluster_size)
    last = num_clusters - 1
    return frozenset([*dict.fromkeys((0, min(1, last), last, num_clusters // 2))][:most])


class GlobalRaces(Protocol):
    """Watches what a CTA does to GMEM. `thread` is the number of a warpgroup or warp (`race_hooks.thread_number`)."""

    def read_global(self, thread: int, place: Place, array: np.ndarray, index: Index, /) -> None:
        """A warpgroup itself reads a region."""
        ...

    def write_global(self, thread: int, place: Place, array: np.ndarray, index: Index, /) -> None:
        """A warpgroup itself writes a region."""
        ...

    def update_global(self, thread: int, place: Place, array: np.ndarray, index: Index, /) -> None:
        """A warpgroup itself changes a region by atomics."""
        ...

    def load_global(self, thread: int, place: Place, array: np.ndarray, index: Index, barrier: object, /) -> None:
        """A TMA load that completes with the current phase of `barrier` reads a region."""
        ...

    def store_global(self, thread: int, place: Place, array: np.ndarray, index: Index, /) -> None:
        """The TMA store that was begun last writes a region, or changes it by a reduction."""
        ...

    def signal(self, thread: int, semaphore: Semaphore, /) -> None:
        """A warpgroup is about to add to a semaphore."""
        ...

    def acquire(self, thread: int, semaphore: Semaphore, needed: int | None = None, /) -> None:
        """A warpgroup has waited on a semaphore until its signals added up to `needed`, or has read it."""
        ...


class Watchers:
    """Gives each CTA of a launch what watches it.

    Args:
      kernel: name of the kernel.
      engine: tells the cycle.
      num_clusters: clusters of the launch.
      cluster_size: CTAs of a cluster.
      num_warpgroups: warpgroups of a CTA.
      has_warps: whether warps leave their warpgroup.
      boxes: which boxes the kernel's places access, as far as earlier launches have found out; is added to.
      fresh: arrays in GMEM that nobody has written before the launch.
      watch_all: watch all CTAs in full; else only those of `sampled_clusters`.
    """

    def __init__(
        self,
        kernel: str,
        engine: Engine,
        num_clusters: int,
        cluster_size: int,
        num_warpgroups: int,
        *,
        has_warps: bool,
        boxes: Boxes,
        fresh: Sequence[np.ndarray],
        watch_all: bool,
    ) -> None:
        self._launch = LaunchRaces(kernel, engine, boxes, fresh)
        self._cluster_size = cluster_size
        self._num_warpgroups = num_warpgroups
        self._has_warps = has_warps
        self._watched = frozenset(range(num_clusters)) if watch_all else sampled_clusters(num_clusters, cluster_size)
        self._memories: dict[int, ClusterMemory] = {}
        self._parties: dict[int, ClusterParty] = {}  # of clusters that run, and are not watched in full
        self._running: dict[int, int] = {}  # CTAs that have not exited, of clusters of which others have

    def of_cta(self, cta: int, cluster: int) -> tuple[CtaRaces | None, GlobalRaces]:
        """Returns what watches a CTA's own memory, None if nothing does, and what watches its accesses to GMEM."""
        if cluster in self._watched:
            memory = self._memories.setdefault(cluster, ClusterMemory(self._cluster_size))
            races = CtaRaces(self._launch, memory, cta, cluster, self._num_warpgroups, self._has_warps)
            return races, races
        return None, ClusterRaces(self._launch, self._parties, cta, cluster)

    def exited(self, cluster: int) -> None:
        """Notes that a CTA of a cluster has exited. What the cluster did stays; what it knew goes with its last CTA."""
        running = self._running.pop(cluster, self._cluster_size) - 1
        if running:
            self._running[cluster] = running
        else:
            self._parties.pop(cluster, None)

    def races(self) -> tuple[Race, ...]:
        """Returns what has been found, in the order in which it was."""
        return self._launch.races()

    def unwritten(self) -> tuple[UnwrittenRead, ...]:
        """Returns the reads of what nobody has written, in the order in which they were found."""
        return self._launch.unwritten()

    def written(self, array: np.ndarray) -> np.ndarray:
        """Returns the elements of an output that the kernel has written."""
        return self._launch.written(array)
