"""Watching only what the clusters of a launch do to each other in GMEM: no event of a barrier is followed.

The CTAs of a cluster are one agent, so that whatever orders them among themselves need not be known, and asynchronous
accesses count as their issuer's own. What remains are semaphores, which order clusters. So nothing legal is reported,
and two clusters that touch the same bytes without an order are found.
"""

from __future__ import annotations

import numpy as np

from mgpu.sim.races.clocks import Clock, ClusterParty
from mgpu.sim.races.detector import LaunchRaces
from mgpu.sim.races.report import TMA_REDUCTION, Access, Place
from mgpu.sim.races.shadow import Index
from mgpu.sim.semaphore import Semaphore


class ClusterRaces:
    """Watches one CTA.

    Args:
      launch: what all CTAs share.
      parties: the agents of clusters that have done something; is added to.
      cta, cluster: numbers of the CTA and of its cluster.
    """

    __slots__ = ("_cluster", "_cta", "_launch", "_parties")

    def __init__(self, launch: LaunchRaces, parties: dict[int, ClusterParty], cta: int, cluster: int) -> None:
        self._launch = launch
        self._parties = parties
        self._cta = cta
        self._cluster = cluster

    @property
    def _party(self) -> ClusterParty:
        """The cluster's agent."""
        party = self._parties.get(self._cluster)
        if party is None:
            party = self._parties[self._cluster] = ClusterParty(self._launch.agents)
        return party

    def _own(self, place: Place) -> tuple[Clock, Access]:
        """Returns what the cluster knows, and an access that it makes now."""
        party = self._party
        agent, clock = party.agent, party.clock
        return clock, Access(agent, clock[agent], place, self._cta, self._cluster)

    def read_global(self, _thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """See `GlobalRaces`."""
        self._launch.read(self._launch.gmem, array, index, *self._own(place))

    def write_global(self, _thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """See `GlobalRaces`."""
        self._launch.write(self._launch.gmem, array, index, *self._own(place))

    def update_global(self, _thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """See `GlobalRaces`."""
        self._launch.update(self._launch.gmem, array, index, *self._own(place))

    def load_global(self, thread: int, place: Place, array: np.ndarray, index: Index, _barrier: object) -> None:
        """See `GlobalRaces`."""
        self.read_global(thread, place, array, index)

    def store_global(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """See `GlobalRaces`."""
        if place.what == TMA_REDUCTION:
            self.update_global(thread, place, array, index)
        else:
            self.write_global(thread, place, array, index)

    def signal(self, _thread: int, semaphore: Semaphore) -> None:
        """See `GlobalRaces`."""
        self._launch.signals_of(semaphore).signal(self._party, semaphore.signalled)

    def acquire(self, _thread: int, semaphore: Semaphore, needed: int | None = None) -> None:
        """See `GlobalRaces`."""
        self._launch.signals_of(semaphore).teach(self._party, needed)
