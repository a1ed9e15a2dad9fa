"""Data races in the shared memory of a CTA: accesses that nothing orders, found by vector clocks.

Each warpgroup has a clock that steps at every release: an arrival on a barrier, a `commit_smem`. What it knows of the
others' clocks travels with arrivals to whoever waits for the phase (Fidge and Mattern's vector clocks; accesses are
kept as epochs as in FastTrack, Flanagan and Freund, PLDI 2009). Asynchronous work has clocks of its own:

- a TMA load into a region is known to those who wait for the phase that its bytes complete;
- a warpgroup's wgmmas and TMA stores are known to it up to where it waited for them, and to others from there on;
- a store by the warpgroup itself is visible to TMA and the tensor core only after its `commit_smem`, which travels with
  arrivals too.

Regions are NumPy views, so overlap is exact. Not covered: clusters, warp-level code, semaphores, global memory.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Any

import numpy as np

WATCHED_CTAS = 4
"""CTAs of a launch that are watched unless all are asked for: they run the same code as the others."""

MAX_CELLS = 256
"""Regions of a CTA that are told apart; a kernel that uses more, such as one row at a time, is not checked further."""


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """An access as the kernel's author wrote it.

    Attributes:
      what: "TMA load", "TMA store", "wgmma", "read" or "write".
      line: where it is written.
      buffer: name of the shared memory buffer.
      warpgroup: who executes it.
    """

    what: str
    line: str
    buffer: str
    warpgroup: int

    def __str__(self) -> str:
        return f"{self.what} of {self.buffer} by warpgroup {self.warpgroup} at {self.line}"


@dataclasses.dataclass(frozen=True)
class Race:
    """Two accesses to the same shared memory that nothing orders.

    Attributes:
      kernel: name of the kernel.
      first, second: the accesses, in the order in which this run made them.
      region: shape and dtype of what the second access touches.
      needs: what would order them.
      cta, cycle: where and when it was seen first.
      count: how often it was seen, over all CTAs.
    """

    kernel: str
    first: Place
    second: Place
    region: str
    needs: str
    cta: int
    cycle: int
    count: int = 1

    def __str__(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        where = f"kernel {self.kernel}: race in CTA {self.cta} at cycle {self.cycle:,}{times}"
        return f"{where}: {self.second} ({self.region}) is not ordered after {self.first}. {self.needs}"


class RaceLog:
    """The races of one launch, one for each pair of places."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self._found: dict[tuple[Place, Place, str], Race] = {}

    def add(self, first: Place, second: Place, region: str, needs: str, cta: int, cycle: int) -> None:
        """Notes a race, or counts it if the same two places have raced before."""
        key = (first, second, needs)
        known = self._found.get(key)
        if known is not None:
            self._found[key] = dataclasses.replace(known, count=known.count + 1)
        else:
            self._found[key] = Race(self._kernel, first, second, region, needs, cta, cycle)

    def races(self) -> tuple[Race, ...]:
        """Returns the races in the order in which they were found."""
        return tuple(self._found.values())


class _Cell:
    """A region: its last write and the reads since then, each as (agent, clock, place)."""

    __slots__ = ("overlapping", "reads", "view", "write")

    def __init__(self, view: np.ndarray) -> None:
        self.view = view
        self.write: tuple[Hashable, int, Place] | None = None
        self.reads: dict[Hashable, tuple[int, Place]] = {}
        self.overlapping: list[_Cell] = [self]


Clock = dict[Hashable, int]


def _join(clock: Clock, other: Clock) -> None:
    for agent, time in other.items():
        if clock.get(agent, 0) < time:
            clock[agent] = time


class CtaRaces:
    """Watches the shared memory of one CTA. Agents are warpgroup numbers, and tuples for asynchronous work.

    Args:
      log: where races go.
      cta: number of the CTA.
      num_warpgroups: its warpgroups.
      engine: tells the cycle.
    """

    def __init__(self, log: RaceLog, cta: int, num_warpgroups: int, engine: Any) -> None:
        self._log = log
        self._cta = cta
        self._engine = engine
        self._clocks: list[Clock] = [{number: 1} for number in range(num_warpgroups)]
        self._arrived: dict[object, Clock] = {}
        self._published: dict[object, Clock] = {}
        self._cells: dict[tuple[Any, ...], _Cell] = {}
        self._mmas = [0] * num_warpgroups
        self._stores = [0] * num_warpgroups
        self._store_groups: list[list[int]] = [[] for _ in range(num_warpgroups)]
        self._loads = 0

    def read(self, warpgroup: int, view: np.ndarray, place: Place) -> None:
        """The warpgroup itself reads a region."""
        self._read(warpgroup, warpgroup, self._clocks[warpgroup][warpgroup], view, place, is_async=False)

    def write(self, warpgroup: int, view: np.ndarray, place: Place) -> None:
        """The warpgroup itself writes a region."""
        self._write(warpgroup, warpgroup, self._clocks[warpgroup][warpgroup], view, place)

    def load(self, warpgroup: int, view: np.ndarray, barrier: object, place: Place) -> None:
        """A warpgroup starts a TMA load into a region, which completes with the current phase of `barrier`."""
        self._loads += 1
        agent = ("load", barrier)
        self._write(warpgroup, agent, self._loads, view, place)
        arrived = self._arrived.setdefault(barrier, {})
        arrived[agent] = self._loads

    def store(self, warpgroup: int, view: np.ndarray, closes_group: bool, place: Place) -> None:
        """A warpgroup starts a TMA store from a region."""
        self._stores[warpgroup] += 1
        self._read(warpgroup, ("store", warpgroup), self._stores[warpgroup], view, place, is_async=True)
        if closes_group:
            self.close_store_group(warpgroup)

    def close_store_group(self, warpgroup: int) -> None:
        """A warpgroup commits its stores so far as a group."""
        self._store_groups[warpgroup].append(self._stores[warpgroup])

    def store_waited(self, warpgroup: int, pending: int) -> None:
        """A warpgroup has waited until at most `pending` groups of its stores are in flight."""
        groups = self._store_groups[warpgroup]
        if len(groups) > pending:
            self._clocks[warpgroup]["store", warpgroup] = groups[len(groups) - 1 - pending]

    def mma(self, warpgroup: int, views: tuple[tuple[np.ndarray, Place], ...]) -> None:
        """A warpgroup starts a wgmma that reads some regions."""
        self._mmas[warpgroup] += 1
        for view, place in views:
            self._read(warpgroup, ("mma", warpgroup), self._mmas[warpgroup], view, place, is_async=True)

    def mma_waited(self, warpgroup: int, pending: int) -> None:
        """A warpgroup has waited until at most `pending` of its wgmmas are in flight."""
        clock, done = self._clocks[warpgroup], self._mmas[warpgroup] - pending
        if clock.get(("mma", warpgroup), 0) < done:
            clock["mma", warpgroup] = done

    def commit(self, warpgroup: int) -> None:
        """A warpgroup makes its own stores visible to asynchronous units."""
        clock = self._clocks[warpgroup]
        clock["commit", warpgroup] = clock[warpgroup]
        clock[warpgroup] += 1

    def arrived(self, barrier: object, source: Any, _phase: int, completes: bool) -> None:
        """Somebody has arrived on a barrier, or a load's bytes have; in the form of `mbarrier.ArrivalLog`."""
        if source[0] >= 0:
            clock = self._clocks[source[0]]
            _join(self._arrived.setdefault(barrier, {}), clock)
            clock[source[0]] += 1
        if completes:
            _join(self._published.setdefault(barrier, {}), self._arrived.pop(barrier, {}))

    def waited(self, warpgroup: int, barrier: object) -> None:
        """A warpgroup has seen a phase of a barrier complete."""
        _join(self._clocks[warpgroup], self._published.get(barrier, {}))

    def synchronised(self) -> None:
        """All warpgroups have met at a barrier of the whole CTA."""
        together: Clock = {}
        for clock in self._clocks:
            _join(together, clock)
        for number, clock in enumerate(self._clocks):
            _join(clock, together)
            clock[number] += 1

    def _read(
        self, warpgroup: int, agent: Hashable, time: int, view: np.ndarray, place: Place, *, is_async: bool
    ) -> None:
        cell = self._cell(view)
        if cell is None:
            return
        clock = self._clocks[warpgroup]
        for other in cell.overlapping:
            if other.write is not None:
                self._check_write(clock, other.write, view, place, is_async=is_async)
        cell.reads[agent] = (time, place)

    def _write(self, warpgroup: int, agent: Hashable, time: int, view: np.ndarray, place: Place) -> None:
        cell = self._cell(view)
        if cell is None:
            return
        clock = self._clocks[warpgroup]
        for other in cell.overlapping:
            if other.write is not None:
                self._check_write(clock, other.write, view, place, is_async=False)
            for reader, (read_time, read_place) in other.reads.items():
                if clock.get(reader, 0) < read_time:
                    self._report(read_place, place, view, _missing_order(read_place, place))
        cell.reads.clear()
        cell.write = (agent, time, place)

    def _check_write(
        self, clock: Clock, write: tuple[Hashable, int, Place], view: np.ndarray, place: Place, *, is_async: bool
    ) -> None:
        writer, time, write_place = write
        if clock.get(writer, 0) < time:
            self._report(write_place, place, view, _missing_order(write_place, place))
        elif is_async and isinstance(writer, int) and clock.get(("commit", writer), 0) < time:
            needs = "Needs commit_smem() after the write"
            needs += (
                ", before this access." if writer == place.warpgroup else " and before the arrival that hands it over."
            )
            self._report(write_place, place, view, needs)

    def _report(self, first: Place, second: Place, view: np.ndarray, needs: str) -> None:
        self._log.add(first, second, f"{list(view.shape)} of {view.dtype}", needs, self._cta, self._engine.now)

    def _cell(self, view: np.ndarray) -> _Cell | None:
        key = (view.__array_interface__["data"][0], view.shape, view.strides)
        cell = self._cells.get(key)
        if cell is None and len(self._cells) < MAX_CELLS:
            cell = self._cells[key] = _Cell(view)  # holds the view, so that its memory is not used again
            for other in self._cells.values():
                if other is not cell and np.shares_memory(view, other.view):
                    cell.overlapping.append(other)
                    other.overlapping.append(cell)
        return cell


def _missing_order(first: Place, second: Place) -> str:
    """Returns what would put `second` after `first`."""
    same = first.warpgroup == second.warpgroup
    if first.what == "TMA load":
        return "Needs barrier_wait on the barrier of that load before this access."
    if first.what == "wgmma":
        wait = "wgmma_wait(n) with a smaller n"
    elif first.what == "TMA store":
        wait = "wait_smem_to_gmem(n) with a smaller n"
    else:
        wait = ""
    if same:
        return f"Needs {wait or 'an order of the two'} in between."
    hand_over = f"barrier_arrive by warpgroup {first.warpgroup} and barrier_wait by warpgroup {second.warpgroup}"
    return f"Needs {wait + ', then ' if wait else ''}{hand_over} in between."
