"""A discrete-event engine: an integer clock, a queue of callbacks, and processes written as generators.

A process yields how many cycles it sleeps, or None to be parked until somebody wakes it. Two sleeps with nothing
between them that others can see are yielded as one, (cycles of both, cycles of the first). Events run in the total
order (time, tie, order of scheduling). The tie is the time of scheduling - of the second of two sleeps, the end of the
first - so that equal times run in the order in which they were scheduled, fused or not; with a seed it is
pseudo-random, which shuffles equal times reproducibly and shows programs that depend on their order. What is scheduled
for the time that it already is, runs after all that was scheduled for it before.

The queue is a ring with a list of events for each of the next cycles, since a GPU has several events in most cycles: to
enter one and to take it out again costs half of what a heap costs. Events beyond the ring wait in a heap.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any

from mgpu.errors import SimulationError

ProcessGenerator = Generator[int | tuple[int, int] | None, None, Any]

_Entry = tuple[int, Any, tuple[Any, ...] | None]  # tie, callback or process, arguments of a callback
_TIES = 1 << 30  # pseudo-random ties are drawn from so many
_CHECK_EVERY = 1024  # events; some milliseconds
_RING = 1 << 13  # cycles; nearly every event is due sooner than that
_SLOT = _RING - 1  # mask: of a time, its slot in the ring

_tie_of = itemgetter(0)


class Runaway(SimulationError):
    """A run took more events than it was allowed."""


class Process:
    """A running generator.

    Attributes:
      name: what reports call it.
      done: True once the generator has returned.
      waiting_on: while parked, an object whose text says what the process waits for; else None.
      on_exit: called without arguments when the generator returns, if set.
    """

    __slots__ = ("_send", "done", "is_parked", "name", "on_exit", "waiting_on")

    def __init__(self, generator: ProcessGenerator, name: str) -> None:
        self.name = name
        self.done = False
        self.is_parked = False
        self.waiting_on: object = None
        self.on_exit: Callable[[], object] | None = None
        self._send = generator.send

    def __repr__(self) -> str:
        state = "finished" if self.done else "parked" if self.is_parked else "running or scheduled"
        reason = f", waiting on {self.waiting_on}" if self.waiting_on is not None else ""
        return f"Process({self.name!r}, {state}{reason})"


class Engine:
    """Runs callbacks and processes in time order.

    Args:
      seed: shuffles events of equal time, reproducibly; None keeps the order of scheduling.
      max_events: `run` fails after this many events; None for no limit.
      check: called every few milliseconds of a run; an exception that it raises ends the run and propagates.

    Attributes:
      now: current time in cycles. It has moved on before a callback or process runs.
      events: events processed so far.
    """

    __slots__ = (
        "_check",
        "_draw_tie",
        "_due",
        "_far",
        "_far_count",
        "_max_events",
        "_ring",
        "_unfinished",
        "events",
        "now",
    )

    def __init__(
        self, seed: int | None = None, max_events: int | None = None, check: Callable[[], object] | None = None
    ) -> None:
        self.now = 0
        self.events = 0
        self._ring: list[Any] = [None] * _RING  # for the times now to now + _RING - 1, a list of entries or None
        self._due = bytearray(_RING)  # 1 where the ring has events
        self._far: list[tuple[int, int, _Entry]] = []  # heap of later ones: time, count, entry
        self._far_count = 0
        self._max_events = sys.maxsize if max_events is None else max_events
        self._check = check
        self._unfinished: dict[Process, None] = {}  # in start order
        self._draw_tie = None if seed is None else random.Random(seed).random

    def call_at(self, time: int, callback: Callable[..., object], *args: Any) -> None:
        """Schedules `callback(*args)` at `time`, in cycles.

        Raises:
          RuntimeError: `time` lies in the past.
        """
        now = self.now
        if time < now:
            raise RuntimeError(f"{callback!r} is scheduled at {time}, but it is already {now}.")
        self._enter(time, (now if self._draw_tie is None else int(self._draw_tie() * _TIES), callback, args))

    def start(self, generator: ProcessGenerator, name: str, at: int | None = None) -> Process:
        """Starts a process at time `at`, by default now.

        Raises:
          RuntimeError: `at` lies in the past.
        """
        process = Process(generator, name)
        process.is_parked = True
        self.wake(process, self.now if at is None else at)
        self._unfinished[process] = None
        return process

    def wake(self, process: Process, at: int, tie: int | None = None) -> None:
        """Continues a parked process at time `at`, by default as what is scheduled now.

        Raises:
          RuntimeError: the process is not parked (running, already woken, or finished), or `at` lies in the past.
        """
        now = self.now
        if not process.is_parked:
            raise RuntimeError(f"{process} is woken at {at}, but only a parked process can be.")
        if at < now:
            raise RuntimeError(f"{process} is woken at {at}, but it is already {now}.")
        process.is_parked = False
        process.waiting_on = None
        if self._draw_tie is not None:
            tie = int(self._draw_tie() * _TIES)
        self._enter(at, (now if tie is None else tie, process, None))

    def unfinished(self) -> list[Process]:
        """Returns the processes that have not returned, in start order. After `run`, these are deadlocked."""
        return list(self._unfinished)

    def run(self) -> None:
        """Processes events until none is left. An exception of a callback or a process ends the run and propagates.

        Raises:
          Runaway: more than `max_events` events were processed.
          RuntimeError: a process yielded something else than a duration or None.
        """
        ring, due, far, draw_tie = self._ring, self._due, self._far, self._draw_tie
        now, events = self.now, self.events
        limit = self._next_limit(events)
        # One loop with everything in it: a call for each event would cost as much as the event.
        try:
            while True:
                slot = due.find(1, now & _SLOT)
                if slot < 0:
                    slot = due.find(1)
                    if slot < 0:
                        if not far:
                            break
                        slot = far[0][0] & _SLOT  # nothing is due before it
                        now = far[0][0]
                self.now = now = now + (slot - now & _SLOT)
                if far and far[0][0] <= now + _SLOT:
                    self._approach()
                entries = ring[slot]
                ring[slot] = None
                due[slot] = 0
                if len(entries) > 1:
                    entries.sort(key=_tie_of)
                events += len(entries)
                if events > limit:
                    if events > self._max_events:
                        first_refused = self._max_events - events
                        events = self._max_events
                        raise self._runaway(entries[first_refused][1])
                    if self._check is not None:
                        self.events = events
                        self._check()
                    limit = self._next_limit(events)
                for _, target, args in entries:
                    if args is not None:
                        target(*args)
                        continue
                    try:
                        delay = target._send(None)
                    except StopIteration:
                        self._finish(target)
                        continue
                    if delay is None:
                        target.is_parked = True
                        continue
                    tie = now
                    if type(delay) is tuple:
                        delay, lead = delay
                        tie += lead
                    if type(delay) is not int or delay < 0:
                        raise RuntimeError(
                            f"{target} yielded {delay!r}, expected cycles to sleep (int, at least 0) or None."
                        )
                    if draw_tie is not None:
                        tie = int(draw_tie() * _TIES)
                    if delay < _RING:  # `_enter` in place
                        slot = (now + delay) & _SLOT
                        if due[slot]:
                            ring[slot].append((tie, target, None))
                        else:
                            ring[slot] = [(tie, target, None)]
                            due[slot] = 1
                    else:
                        self._enter(now + delay, (tie, target, None))
        finally:
            self.events = events

    def _enter(self, time: int, entry: _Entry) -> None:
        """Puts an event into the queue."""
        if time - self.now < _RING:
            slot = time & _SLOT
            if self._due[slot]:
                self._ring[slot].append(entry)
            else:
                self._ring[slot] = [entry]
                self._due[slot] = 1
        else:
            self._far_count += 1
            heappush(self._far, (time, self._far_count, entry))

    def _approach(self) -> None:
        """Moves the events that have come within the ring from the heap into it."""
        far, end = self._far, self.now + _RING
        while far and far[0][0] < end:
            time, _, entry = heappop(far)
            self._enter(time, entry)

    def _next_limit(self, events: int) -> int:
        """Returns the number of events after which `run` has to look up from its work."""
        return self._max_events if self._check is None else min(self._max_events, events + _CHECK_EVERY)

    def _finish(self, process: Process) -> None:
        process.done = True
        del self._unfinished[process]
        on_exit, process.on_exit = process.on_exit, None  # who waits for the exit often refers to the process
        if on_exit is not None:
            on_exit()

    def _runaway(self, target: object) -> Runaway:
        who = target.name if isinstance(target, Process) else target
        return Runaway(
            f"runaway simulation: {self._max_events:,} events were processed up to cycle {self.now:,}, and {who} goes "
            "on. A loop of the kernel may never end; otherwise raise max_events."
        )
