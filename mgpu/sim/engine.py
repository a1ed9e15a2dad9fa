"""A discrete-event engine: an integer clock, a queue of callbacks, and processes written as generators.

A process yields how many cycles it sleeps, or None to be parked until somebody wakes it. Two sleeps with nothing
between them that others can see are yielded as one, (cycles of both, cycles of the first). Events run in the total
order (time, tie, sequence number). The tie is the time of scheduling - of the second of two sleeps, the end of the
first - so that equal times run in the order in which they were scheduled, fused or not; with a seed it is
pseudo-random, which shuffles equal times reproducibly and shows programs that depend on their order.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Generator
from heapq import heappop, heappush, heappushpop
from typing import Any

from mgpu.errors import SimulationError

ProcessGenerator = Generator[int | tuple[int, int] | None, None, Any]

_Entry = tuple[int, int, int, Any, tuple[Any, ...] | None]
_TIES = 1 << 30  # pseudo-random ties are drawn from so many
_CHECK_EVERY = 1024  # events; some milliseconds


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

    __slots__ = ("_check", "_draw_tie", "_heap", "_max_events", "_sequence", "_unfinished", "events", "now")

    def __init__(
        self, seed: int | None = None, max_events: int | None = None, check: Callable[[], object] | None = None
    ) -> None:
        self.now = 0
        self.events = 0
        self._heap: list[_Entry] = []
        self._sequence = 0
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
        self._sequence = sequence = self._sequence + 1
        tie = now if self._draw_tie is None else int(self._draw_tie() * _TIES)
        heappush(self._heap, (time, tie, sequence, callback, args))

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

    def wake(self, process: Process, at: int) -> None:
        """Continues a parked process at time `at`.

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
        self._sequence = sequence = self._sequence + 1
        tie = now if self._draw_tie is None else int(self._draw_tie() * _TIES)
        heappush(self._heap, (at, tie, sequence, process, None))

    def unfinished(self) -> list[Process]:
        """Returns the processes that have not returned, in start order. After `run`, these are deadlocked."""
        return list(self._unfinished)

    def run(self) -> None:
        """Processes events until none is left. An exception of a callback or a process ends the run and propagates.

        Raises:
          Runaway: more than `max_events` events were processed.
          RuntimeError: a process yielded something else than a duration or None.
        """
        heap, draw_tie = self._heap, self._draw_tie
        events = self.events
        limit = self._next_limit(events)
        entry = None
        # One loop with everything in it: a call for each event would cost as much as the event.
        try:
            while entry is not None or heap:
                time, _, _, target, args = heappop(heap) if entry is None else entry
                entry = None
                self.now = time
                events += 1
                if events > limit:
                    if events > self._max_events:
                        raise self._runaway(target)
                    if self._check is not None:
                        self._check()
                    limit = self._next_limit(events)
                if args is not None:
                    target(*args)
                    continue
                # A process goes on until it parks or returns, or until something else is due first.
                send = target._send
                while True:
                    try:
                        delay = send(None)
                    except StopIteration:
                        self._finish(target)
                        break
                    if delay is None:
                        target.is_parked = True
                        break
                    tie = time
                    if type(delay) is tuple:
                        delay, lead = delay
                        tie += lead
                    if type(delay) is not int or delay < 0:
                        raise RuntimeError(
                            f"{target} yielded {delay!r}, expected cycles to sleep (int, at least 0) or None."
                        )
                    time += delay
                    # Going through the queue would bring back the same process at once, so the order is the same.
                    if (heap and heap[0][0] <= time) or events >= limit:
                        self._sequence = sequence = self._sequence + 1
                        if draw_tie is not None:
                            tie = int(draw_tie() * _TIES)
                        entry = heappushpop(heap, (time, tie, sequence, target, None))
                        break
                    self.now = time
                    events += 1
        finally:
            self.events = events

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
        return Runaway(
            f"runaway simulation: {self._max_events} events were processed up to cycle {self.now}, and {target} goes "
            "on. A loop of the kernel may never end; otherwise raise max_events."
        )
