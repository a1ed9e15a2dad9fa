"""What is found: two accesses, where they touch, and what would order them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

TMA_LOAD, TMA_STORE, TMA_REDUCTION, WGMMA = "TMA load", "TMA store", "TMA reduction", "wgmma"
REMOTE_STORE, REMOTE_ATOMIC, REMOTE_ARRIVAL = "remote store", "remote atomic", "remote arrival"
_ASYNCHRONOUS = (TMA_LOAD, TMA_STORE, TMA_REDUCTION, WGMMA)


@dataclasses.dataclass(frozen=True, eq=False)
class Place:
    """An access as the kernel's author wrote it.

    Attributes:
      what: "TMA load", "TMA store", "TMA reduction", "wgmma", "read", "write", "atomic",
        "remote store", "remote atomic", or "remote arrival" on a barrier.
      line: where it is written.
      buffer: name of the buffer.
      warpgroup: who executes it.
      warp: the warp of it, in a warp-level region; else None.
      space: "SMEM" or "GMEM".
      view: what is accessed of an array, given its run-time index values.
    """

    what: str
    line: str
    buffer: str
    warpgroup: int
    warp: int | None = None
    space: str = "SMEM"
    view: Callable[..., np.ndarray] = dataclasses.field(default=np.asarray, repr=False)
    is_asynchronous: bool = dataclasses.field(init=False)
    """Whether another unit makes the access (in the asynchronous proxy)."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_asynchronous", self.what in _ASYNCHRONOUS)

    @property
    def who(self) -> str:
        """The warpgroup, or the warp of it."""
        return f"warpgroup {self.warpgroup}" if self.warp is None else f"warp {self.warp} of warpgroup {self.warpgroup}"

    def __str__(self) -> str:
        relation = "on" if self.what == REMOTE_ARRIVAL else "of"
        return f"{self.what} {relation} {self.buffer} by {self.who} at {self.line}"


class Access(NamedTuple):
    """One execution of a place.

    Attributes:
      agent: who makes it.
      time: the agent's time.
      place: what it is.
      cta: number of the CTA.
      cluster: number of its cluster.
    """

    agent: int
    time: int
    place: Place
    cta: int
    cluster: int


@dataclasses.dataclass(frozen=True)
class Race:
    """Two accesses to the same memory that nothing orders.

    Attributes:
      kernel: name of the kernel.
      first, second: the accesses, in the order in which this run made them.
      region: part of the buffer, or shape and dtype of what the second access touches.
      needs: what would order them.
      cta, cycle: where and when it was seen first.
      first_cta: the CTA of the first access.
      count: how often it was seen, over all CTAs.
    """

    kernel: str
    first: Place
    second: Place
    region: str
    needs: str
    cta: int
    cycle: int
    first_cta: int
    count: int = 1

    def __str__(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        where = f"kernel {self.kernel}: race in CTA {self.cta} at cycle {self.cycle:,}{times}"
        other = f" of CTA {self.first_cta}" if self.first_cta != self.cta else ""
        what = f"{self.second} ({self.region})"
        if self.first.what == EXIT:
            return f"{where}: {what} after CTA {self.first_cta}, whose SMEM it is, has exited. {self.needs}"
        if self.second.what == EXIT:
            what = f"{self.first}{other} ({self.region})"
            return f"{where}: the CTA exits at {self.second.line} and does not wait for {what}. {self.needs}"
        reused = ", whose SMEM it takes" if self.first.buffer != self.second.buffer else ""
        return f"{where}: {what} is not ordered after {self.first}{other}{reused}. {self.needs}"


EXIT = "exit"
"""What a `Place` is that stands for the end of a CTA."""


@dataclasses.dataclass(frozen=True)
class UnwrittenRead:
    """A read of memory that nobody has written: its values may be anything.

    Attributes:
      kernel: name of the kernel.
      place: the read.
      region: part of the buffer, or shape and dtype of what is read.
      cta, cycle: where and when it was seen first.
      count: how often it was seen, over all CTAs.
    """

    kernel: str
    place: Place
    region: str
    cta: int
    cycle: int
    count: int = 1

    def __str__(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        if self.place.space == "SMEM":
            needs = (
                "Needs a store or a copy into it before; in a ring, see whether slot and barrier are those of the load."
            )
        else:
            needs = "Outputs begin with anything: write it before, or alias an input to it (input_output_aliases)."
        return (
            f"kernel {self.kernel}: CTA {self.cta} reads at cycle {self.cycle:,}{times} what nobody has written: "
            f"{self.place} ({self.region}), or a part of it. {needs}"
        )


Missing = Callable[[Access, Access], str]
"""Words what would order two accesses."""


class RaceLog:
    """The races of one launch, one for each pair of places, and its reads of what nobody has written."""

    def __init__(self, kernel: str) -> None:
        self._kernel = kernel
        self._races: dict[tuple[object, ...], Race] = {}
        self._unwritten: dict[Place, UnwrittenRead] = {}

    def add(self, first: Access, second: Access, region: Callable[[], str], missing: Missing, cycle: int) -> None:
        """Notes a race, or counts it if the same two places have raced before; only the first one is worded."""
        key = (first.place, second.place, missing, first.cta == second.cta, first.cluster == second.cluster)
        known = self._races.get(key)
        if known is not None:
            self._races[key] = dataclasses.replace(known, count=known.count + 1)
        else:
            needs = missing(first, second)
            self._races[key] = Race(
                self._kernel, first.place, second.place, region(), needs, second.cta, cycle, first.cta
            )

    def add_unwritten(self, access: Access, region: Callable[[], str], cycle: int) -> None:
        """Notes a read of what nobody has written, or counts it."""
        known = self._unwritten.get(access.place)
        if known is not None:
            self._unwritten[access.place] = dataclasses.replace(known, count=known.count + 1)
        else:
            self._unwritten[access.place] = UnwrittenRead(self._kernel, access.place, region(), access.cta, cycle)

    def races(self) -> tuple[Race, ...]:
        """Returns the races in the order in which they were found."""
        return tuple(self._races.values())

    def unwritten(self) -> tuple[UnwrittenRead, ...]:
        """Returns the reads of what nobody has written, in the order in which they were found."""
        return tuple(self._unwritten.values())


def missing_order(first: Access, second: Access) -> str:
    """Returns what would put `second` after `first`."""
    before, after = first.place, second.place
    if first.cluster != second.cluster:
        return _between_clusters(first, second)
    wait = _own_wait(before)
    if before.what == TMA_LOAD:
        return f"Needs {wait} before this access."
    if first.cta == second.cta and before.who == after.who:
        is_slot = before.what == WGMMA and after.what == TMA_LOAD
        kept = " (or, in emit_pipeline, a larger delay_release)" if is_slot else ""
        return f"Needs {wait or 'an order of the two'}{kept} in between."
    if first.cta == second.cta:
        hand_over = f"barrier_arrive by {before.who} and barrier_wait by {after.who}"
    else:
        hand_over = f"barrier_arrive on a ClusterBarrier by CTA {first.cta} and barrier_wait by CTA {second.cta}"
    own_part = f"a part of {after.buffer} for each warpgroup, or " if before.what == after.what == "write" else ""
    return f"Needs {own_part}{wait + ', then ' if wait else ''}{hand_over} in between."


def _own_wait(before: Place) -> str:
    """Returns how the warpgroup that started an asynchronous access waits for it; "" for one of its own."""
    if before.what == TMA_LOAD:
        return "barrier_wait on the barrier of that load"
    if before.what == WGMMA:
        return "wgmma_wait(n) with a smaller n"
    if before.is_asynchronous:
        whole = " without wait_read_only" if before.space == "GMEM" else ""
        return f"wait_smem_to_gmem(n) with a smaller n{whole}"
    return ""


def _between_clusters(first: Access, second: Access) -> str:
    wait = _own_wait(first.place)
    return (
        f"Needs a part of {second.place.buffer} for each CTA, or {wait + ', then ' if wait else ''}semaphore_signal by "
        f"CTA {first.cta} and semaphore_wait by CTA {second.cta} in between, on a semaphore of pl.get_global, for a "
        "value that takes that signal"
        + (", or atomics." if "read" not in (first.place.what, second.place.what) else ".")
    )


def missing_farewell(first: Access, second: Access) -> str:
    """Returns what keeps a CTA from exiting before an access of another one to its SMEM; either comes first."""
    access, end = (second, first) if first.place.what == EXIT else (first, second)
    if access.place.what == REMOTE_ARRIVAL:
        return (
            f"Needs barrier_wait on {access.place.buffer} by CTA {end.cta} for that phase before its end: who fills "
            "slots waits at last until all are released. An arrival at a CTA that has exited is undefined."
        )
    return (
        f"Needs barrier_arrive on a ClusterBarrier by CTA {access.cta} after this access and barrier_wait by CTA "
        f"{end.cta} before its end."
    )


def missing_commit(first: Access, second: Access) -> str:
    """Returns what makes a write by a warpgroup visible to an asynchronous unit that is ordered after it."""
    if first.place.space == "GMEM":
        return (
            "Needs copy_smem_to_gmem instead of the write, or a plain access after it: TMA does not see plain writes "
            "of GMEM in the same launch (commit_smem is a fence for SMEM)."
        )
    same = first.cta == second.cta and first.place.who == second.place.who
    where = ", before this access." if same else " and before the arrival that hands it over."
    return f"Needs commit_smem() after the write{where}"


def missing_wait(first: Access, _end: Access) -> str:
    """Returns what keeps a CTA from exiting before a copy of its own is over."""
    if first.place.what == TMA_LOAD:
        return "Needs barrier_wait on the barrier of that load before the end."
    return "Needs wait_smem_to_gmem(0, wait_read_only=True) before the end."
