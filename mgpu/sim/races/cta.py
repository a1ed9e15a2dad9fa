"""Watching a CTA in full: its SMEM, its barriers, and what it does to GMEM."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgpu.sim.races.clocks import Agents, BarrierClock, Clock, Meeting, Thread, join
from mgpu.sim.races.detector import LaunchRaces, Shadows
from mgpu.sim.races.named import NamedMeetings
from mgpu.sim.races.report import (
    REMOTE_ATOMIC,
    TMA_REDUCTION,
    Access,
    Place,
    missing_farewell,
    missing_order,
    missing_wait,
)
from mgpu.sim.races.reuse import LateArray, ScopeExtents, SmemReuse
from mgpu.sim.races.shadow import Index
from mgpu.sim.semaphore import Semaphore
from mgpu.units import WARPS_PER_WARPGROUP

THREADS_PER_WARPGROUP = 1 + WARPS_PER_WARPGROUP
"""A warpgroup is a thread of its own, and each of its warps is one."""


class ClusterMemory:
    """What the CTAs of a watched cluster share.

    Args:
      size: CTAs of the cluster.

    Attributes:
      size: as given.
      smem: shadows of their shared memory.
      barriers: clocks of their mbarriers.
      running: CTAs that have not exited.
      loads: loads started so far, the time of the agents of loads.
      newest: the newest access to SMEM of each agent of loads or stores.
      arrivals: for each CTA, the newest arrival of each agent of another CTA on each of its barriers.
      ends: the exits of those CTAs that have exited.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.smem: Shadows = {}
        self.barriers: dict[Any, BarrierClock] = {}
        self.running = size
        self.loads = 0
        self.newest: dict[int, tuple[Access, np.ndarray, Index]] = {}
        self.arrivals: dict[int, dict[tuple[Any, int], Access]] = {}
        self.ends: dict[int, Access] = {}


class CtaRaces:
    """Watches one CTA. `thread` is the number of a warpgroup or warp (`race_hooks.thread_number`).

    Args:
      launch: what all CTAs of the launch share.
      memory: what the CTAs of its cluster share.
      cta, cluster: numbers of the CTA and of its cluster.
      num_warpgroups: its warpgroups.
      has_warps: whether warps leave their warpgroup.
    """

    def __init__(
        self,
        launch: LaunchRaces,
        memory: ClusterMemory,
        cta: int,
        cluster: int,
        num_warpgroups: int,
        has_warps: bool,
    ) -> None:
        self._launch = launch
        self._memory = memory
        self._cta = cta
        self._cluster = cluster
        self._has_warps = has_warps
        self._threads = [thread for _ in range(num_warpgroups) for thread in _make_threads(launch.agents, has_warps)]
        self._meeting = Meeting(num_warpgroups)
        self._named = NamedMeetings()
        self._reuse = SmemReuse()
        self._completing: dict[tuple[int, int], tuple[int, int]] = {}  # loader and storer of each mbarrier

    def _access(self, agent: int, time: int, place: Place) -> Access:
        return Access(agent, time, place, self._cta, self._cluster)

    def _own(self, thread: int, place: Place) -> tuple[Clock, Access]:
        """Returns what a thread knows, and an access that it makes itself now."""
        own = self._threads[thread]
        return own.clock, self._access(own.agent, own.clock[own.agent], place)

    def _loaded(self, loader: int, place: Place) -> Access:
        self._memory.loads += 1
        return self._access(loader, self._memory.loads, place)

    def read(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """A warpgroup itself reads a region of SMEM."""
        self._launch.read(self._memory.smem, array, index, *self._own(thread, place))

    def write(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """A warpgroup itself writes a region of SMEM."""
        self._launch.write(self._memory.smem, array, index, *self._own(thread, place))

    def update(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """A warpgroup itself changes a region of SMEM by atomics."""
        self._launch.update(self._memory.smem, array, index, *self._own(thread, place))

    def load(self, thread: int, place: Place, array: np.ndarray, index: Index, barrier: object) -> None:
        """A thread starts a TMA load into a region of SMEM; it arrives on `barrier`, which also takes the bytes."""
        self.load_share(thread, place, array, index, barrier)
        self.arrive(thread, barrier)

    def load_share(self, thread: int, place: Place, array: np.ndarray, index: Index, barrier: object) -> None:
        """A thread starts a TMA load, or its share of one, whose bytes `barrier` takes in its current phase."""
        clock = self._memory.barriers[barrier]
        access = self._loaded(clock.loader, place)
        self._launch.write(self._memory.smem, array, index, self._threads[thread].clock, access)
        clock.load(access.time)
        self._memory.newest[clock.loader] = access, array, index

    def store(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """A thread starts a TMA store from a region of SMEM."""
        own = self._threads[thread]
        own.stores.started += 1
        access = self._access(own.stores.reader, own.stores.started, place)
        self._launch.read(self._memory.smem, array, index, own.clock, access)
        self._memory.newest[own.stores.reader] = access, array, index

    def close_group(self, thread: int) -> None:
        """A thread commits its stores so far as a group."""
        stores = self._threads[thread].stores
        stores.groups.append(stores.started)

    def store_waited(self, thread: int, pending: int, read_only: bool) -> None:
        """A thread has waited until at most `pending` groups of its stores, and of its warps', are in flight."""
        clock = self._threads[thread].clock
        alone = thread % THREADS_PER_WARPGROUP or not self._has_warps
        for waiting in (thread,) if alone else self._family(thread):
            self._threads[waiting].stores.waited(clock, pending, read_only)

    def mma(
        self, thread: int, acc_place: Place, acc: int, operands: tuple[tuple[Place, np.ndarray, Index], ...]
    ) -> None:
        """A warpgroup starts a wgmma that adds to accumulator number `acc` and reads some regions of SMEM."""
        own = self._threads[thread]
        own.multiplications += 1
        own.accumulated[acc] = acc_place, own.multiplications
        for place, array, index in operands:
            access = self._access(own.tensor_core, own.multiplications, place)
            self._launch.read(self._memory.smem, array, index, own.clock, access)

    def read_accumulator(self, thread: int, place: Place, acc: int) -> None:
        """A warpgroup reads accumulator number `acc`: wgmmas that add to it must be over."""
        own = self._threads[thread]
        adding, number = own.accumulated.get(acc, (place, 0))
        if own.clock.get(own.tensor_core, 0) < number:
            first, second = self._access(own.tensor_core, number, adding), self._own(thread, place)[1]
            self._launch.report_region(first, second, lambda: f"{place.buffer}[...]", missing_order)

    def mma_waited(self, thread: int, pending: int) -> None:
        """A warpgroup has waited until at most `pending` of its wgmmas are in flight."""
        own = self._threads[thread]
        done = own.multiplications - pending
        if own.clock.get(own.tensor_core, 0) < done:
            own.clock[own.tensor_core] = done

    def commit(self, thread: int) -> None:
        """A thread makes the writes of SMEM that it knows of visible to asynchronous units."""
        self._threads[thread].commit()

    def store_remote(
        self, thread: int, place: Place, array: np.ndarray, index: Index, barrier: object, source: tuple[int, ...]
    ) -> None:
        """A thread starts storing registers to SMEM of a peer, whose `barrier` takes arrival and bytes; see `send`."""
        own, clock = self._threads[thread], self._memory.barriers[barrier]
        access = self._loaded(clock.storer, place)
        change = self._launch.update if place.what == REMOTE_ATOMIC else self._launch.write
        change(self._memory.smem, array, index, own.clock, access)
        clock.send(source, own, access.time)

    def watch(self, barrier: object, number: int, slot: int) -> None:
        """Follows an mbarrier of this CTA: slot `slot` of allocation `number`, which a scope may allocate again."""
        agents = self._launch.agents
        key = number, slot
        if key not in self._completing:
            self._completing[key] = agents.asynchronous(), agents.own()
        self._memory.barriers[barrier] = BarrierClock(self._cta, *self._completing[key])

    def arrive(self, thread: int, barrier: object) -> None:
        """A thread arrives on a barrier of its own CTA, at once."""
        self._memory.barriers[barrier].arrive(self._threads[thread])

    def send(self, thread: int, barrier: Any, source: tuple[int, ...], place: Place) -> None:
        """A thread's arrival on a barrier of another CTA is on its way; `arrived` is told the same `source`."""
        memory = self._memory
        clock = memory.barriers[barrier]
        access = self._own(thread, place)[1]
        end = memory.ends.get(clock.owner)
        if end is None:
            memory.arrivals.setdefault(clock.owner, {})[barrier, access.agent] = access
        else:
            self._launch.report_region(end, access, lambda: barrier.label, missing_farewell)
        clock.send(source, self._threads[thread])

    def arrive_cluster(
        self, thread: int, barriers: list[tuple[int, object]], source: tuple[int, ...], place: Place
    ) -> None:
        """A thread arrives on (CTA, barrier) pairs that a cluster barrier joins; see `arrive` and `send`."""
        for cta, barrier in barriers:
            if cta == self._cta:
                self.arrive(thread, barrier)
            else:
                self.send(thread, barrier, source, place)

    def arrived(self, barrier: object, source: Any, _phase: int, completes: bool) -> None:
        """An arrival, or a load's bytes, took effect on a barrier; in the form of `mbarrier.ArrivalLog`."""
        if (completes or len(source) > 2) and self._memory.running:  # what comes after the exit has been reported there
            self._memory.barriers[barrier].arrived(source, completes)

    def waited(self, thread: int, barrier: object) -> None:
        """A thread has seen a phase of a barrier complete."""
        self._memory.barriers[barrier].waited(self._threads[thread])

    def waits(self, thread: int) -> dict[str, tuple[int, int]]:
        """Returns, for each mbarrier of this CTA, how many phases have completed and how often a thread has waited.

        A warp has waited where its warpgroup has. A warpgroup is in that phase in which its first warp is.
        """
        warpgroup, warp = divmod(thread, THREADS_PER_WARPGROUP)
        family = warpgroup * THREADS_PER_WARPGROUP
        agents = dict.fromkeys(self._threads[one].agent for one in (family, family + max(1, warp)))
        return {
            barrier.label: (barrier.phase, sum(clock.waits.get(agent, 0) for agent in agents))
            for barrier, clock in self._memory.barriers.items()
            if clock.owner == self._cta  # the newest, where a scope has been entered again
        }

    def meet(self, thread: int) -> None:
        """A warpgroup comes to a barrier of the whole CTA."""
        self._meeting.arrive(self._threads[thread])

    def met(self, thread: int) -> None:
        """A warpgroup goes on after a barrier of the whole CTA."""
        join(self._threads[thread].clock, self._meeting.together)

    def arrive_named(self, thread: int, number: int, threads: int, expected: int) -> None:
        """A warpgroup or warp comes to named barrier `number` with so many of the `expected` threads."""
        self._named.arrive(self._threads[thread], number, threads, expected)

    def waited_named(self, thread: int, number: int) -> None:
        """A warpgroup or warp goes on after a named barrier."""
        self._named.waited(self._threads[thread], number)

    def enter_scope(self, thread: int, scope: ScopeExtents, buffers: tuple[LateArray, ...]) -> None:
        """A warpgroup has met the others in a scope, whose buffers may take the bytes of scopes that have ended."""
        together = (
            self._threads[thread].clock if len(self._threads) == THREADS_PER_WARPGROUP else self._meeting.together
        )
        shadow_of = functools.partial(self._launch.shadow, self._memory.smem)
        self._reuse.enter(scope, buffers, together, shadow_of)

    def fork_warps(self, thread: int) -> None:
        """A warpgroup's warps begin to run on their own."""
        _, *warps = self._family(thread)
        for warp in warps:
            join(self._threads[warp].clock, self._threads[thread].clock)
        own = self._threads[thread]
        own.clock[own.agent] += 1

    def join_warps(self, thread: int) -> None:
        """A warpgroup goes on after its warps."""
        _, *warps = self._family(thread)
        for warp in warps:
            self._threads[warp].release(self._threads[thread].clock)

    def read_global(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """See `GlobalRaces`."""
        self._launch.read(self._launch.gmem, array, index, *self._own(thread, place))

    def write_global(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """See `GlobalRaces`."""
        self._launch.write(self._launch.gmem, array, index, *self._own(thread, place))

    def update_global(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """See `GlobalRaces`."""
        self._launch.update(self._launch.gmem, array, index, *self._own(thread, place))

    def load_global(self, thread: int, place: Place, array: np.ndarray, index: Index, barrier: object) -> None:
        """See `GlobalRaces`."""
        clock = self._memory.barriers[barrier]
        access = self._loaded(clock.loader, place)
        self._launch.read(self._launch.gmem, array, index, self._threads[thread].clock, access)
        clock.load(access.time)

    def store_global(self, thread: int, place: Place, array: np.ndarray, index: Index) -> None:
        """See `GlobalRaces`."""
        own = self._threads[thread]
        access = self._access(own.stores.writer, own.stores.started, place)
        change = self._launch.update if place.what == TMA_REDUCTION else self._launch.write
        change(self._launch.gmem, array, index, own.clock, access)

    def signal(self, thread: int, semaphore: Semaphore) -> None:
        """See `GlobalRaces`."""
        self._launch.signals_of(semaphore).signal(self._threads[thread], semaphore.signalled)

    def acquire(self, thread: int, semaphore: Semaphore, needed: int | None = None) -> None:
        """See `GlobalRaces`."""
        join(self._threads[thread].clock, self._launch.signals_of(semaphore).known_at(needed))

    def exit(self, line: str, buffers: Sequence[np.ndarray]) -> None:
        """The CTA's last warpgroup has ended, at `line`: SMEM must not be in use any more.

        Args:
          line: the kernel's.
          buffers: arrays in SMEM that other CTAs of the cluster can reach.
        """
        known: Clock = {}
        for thread in self._threads[:: 1 if self._has_warps else THREADS_PER_WARPGROUP]:
            join(known, thread.clock)
        mine = {loader for loader, _ in self._completing.values()} | {own.stores.reader for own in self._threads}
        for agent, (access, array, index) in self._memory.newest.items():
            if agent in mine and known.get(agent, 0) < access.time:
                end = self._access(0, 0, self._launch.exit_place(line, access.place.buffer, access.place.warpgroup))
                view = functools.partial(access.place.view, array, *index)
                self._launch.report(access, end, view, missing_wait)
        end = self._access(self._launch.agents.own(), 1, self._launch.exit_place(line, "SMEM", 0))
        self._memory.ends[self._cta] = end
        for (barrier, agent), access in self._memory.arrivals.pop(self._cta, {}).items():
            if known.get(agent, 0) < access.time:
                self._launch.report_region(access, end, lambda label=barrier.label: label, missing_farewell)
        for array in buffers if self._memory.size > 1 else ():
            self._launch.free(self._memory.smem, array, known, end)
        self._reuse.end()
        self._memory.running -= 1
        if not self._memory.running:
            self._memory.smem.clear()
            self._memory.barriers.clear()
            self._memory.newest.clear()
            self._memory.arrivals.clear()

    def made_late(self, array: np.ndarray) -> None:
        """A peer is about to access an array in SMEM that nobody had accessed when the CTA exited."""
        self._launch.free(self._memory.smem, array, {}, self._memory.ends[self._cta])

    def _family(self, thread: int) -> range:
        """Returns the numbers of a warpgroup and its warps."""
        return range(thread, thread + THREADS_PER_WARPGROUP)


def _make_threads(agents: Agents, has_warps: bool) -> list[Thread]:
    """Returns the threads of a warpgroup: itself, and its warps if it has any; else these are itself, too."""
    warpgroup = Thread(agents)
    if not has_warps:
        return [warpgroup] * THREADS_PER_WARPGROUP
    # What the warpgroup issues as a whole is issued by its first warp.
    first = Thread(agents, warpgroup.stores)
    return [warpgroup, first, *(Thread(agents) for _ in range(WARPS_PER_WARPGROUP - 1))]
