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


class Process:
    """A running generator.

    Attributes:
      name: what reports call it.
      done: True once the generator has returned.
      waiting_on: while parked, an object whose text says what the process waits for; else None.
      on_exit: called without arguments when the generator returns, if set.
    """

    __slots__ = ("_resume", "done", "is_parked", "name", "on_exit", "waiting_on")

    def __init__(self, generator: ProcessGenerator, name: str) -> None:
        self.name = name
        self.done = False
        self.is_parked = False
        self.waiting_on: object = None
        self.on_exit: Callable[[], object] | None = None
        self._resume = generator.__next__

    def __repr__(self) -> str:
        state = "finished" if self.done else "parked" if self.is_parked else "running or scheduled"
        reason = f", waiting on {self.waiting_on}" if self.waiting_on is not None else ""
        return f"Process({self.name!r}, {state}{reason})"


class Engine:
    """Runs callbacks and processes in time order.

    Args:
      seed: shuffles events of equal time, reproducibly; None keeps the order of scheduling.
      max_events: `run` fails after this many events; None for no limit.

    Attributes:
      now: current time in cycles. It has moved on before a callback or process runs.
      events: events processed so far.
    """

    __slots__ = ("_draw_tie", "_heap", "_max_events", "_processes", "_sequence", "events", "now")

    def __init__(self, seed: int | None = None, max_events: int | None = None) -> None:
        self.now = 0
        self.events = 0
        self._heap: list[_Entry] = []
        self._sequence = 0
        self._max_events = sys.maxsize if max_events is None else max_events
        self._processes: list[Process] = []
        self._draw_tie = None if seed is None else random.Random(seed).random

    def call_at(self, time: int, callback: Callable[..., object], *args: Any) -> None:
        """Schedules `callback(*args)` at `time`, in cycles.

        Raises:
          RuntimeError: `time` lies in the past.
        """
        if time < self.now:
            raise RuntimeError(f"{callback!r} is scheduled at {time}, but it is already {self.now}.")
        self._push(time, callback, args)

    def start(self, generator: ProcessGenerator, name: str, at: int | None = None) -> Process:
        """Starts a process at time `at`, by default now.

        Raises:
          RuntimeError: `at` lies in the past.
        """
        process = Process(generator, name)
        time = self.now if at is None else at
        if time < self.now:
            raise RuntimeError(f"{process} is started at {time}, but it is already {self.now}.")
        self._processes.append(process)
        self._push(time, process, None)
        return process

    def wake(self, process: Process, at: int) -> None:
        """Continues a parked process at time `at`.

        Raises:
          RuntimeError: the process is not parked (running, already woken, or finished), or `at` lies in the past.
        """
        if not process.is_parked:
            raise RuntimeError(f"{process} is woken at {at}, but only a parked process can be.")
        if at < self.now:
            raise RuntimeError(f"{process} is woken at {at}, but it is already {self.now}.")
        process.is_parked = False
        process.waiting_on = None
        self._push(at, process, None)

    def unfinished(self) -> list[Process]:
        """Returns the processes that have not returned, in start order. After `run`, these are deadlocked."""
        return [process for process in self._processes if not process.done]

    def run(self) -> None:
        """Processes events until none is left. An exception of a callback or a process ends the run and propagates.

        Raises:
          SimulationError: more than `max_events` events were processed.
          RuntimeError: a process yielded something else than a duration or None.
        """
        heap, max_events = self._heap, self._max_events
        while heap:
            self.now, _, _, target, args = heappop(heap)
            self.events += 1
            if self.events > max_events:
                raise self._runaway(target)
            # A callback, or a process that goes on until something else is due; then that is taken from the queue.
            while args is None:
                entry = self._continue(target)
                if entry is None:
                    break
                self.now, _, _, target, args = entry
                self.events += 1
                if self.events > max_events:
                    raise self._runaway(target)
            else:
                target(*args)

    def _continue(self, process: Process) -> _Entry | None:
        """Runs a process until it parks or returns, or until something else is due first, which is returned."""
        heap, resume = self._heap, process._resume
        try:
            while True:
                delay = resume()
                if delay is None:
                    process.is_parked = True
                    return None
                scheduled_at = self.now
                if type(delay) is tuple:
                    delay, lead = delay
                    scheduled_at += lead
                if type(delay) is not int or delay < 0:
                    raise RuntimeError(
                        f"{process} yielded {delay!r}, expected cycles to sleep (int, at least 0) or None."
                    )
                time = self.now + delay
                # Strictly first: going through the queue would bring back the same process, so the order is the same.
                if (heap and heap[0][0] <= time) or self.events >= self._max_events:
                    self._sequence = sequence = self._sequence + 1
                    if self._draw_tie is not None:
                        scheduled_at = int(self._draw_tie() * (1 << 30))
                    return heappushpop(heap, (time, scheduled_at, sequence, process, None))
                self.now = time
                self.events += 1
        except StopIteration:
            process.done = True
        if process.on_exit is not None:
            process.on_exit()
        return None

    def _push(self, time: int, target: Any, args: tuple[Any, ...] | None) -> None:
        self._sequence += 1
        tie = self.now if self._draw_tie is None else int(self._draw_tie() * (1 << 30))
        heappush(self._heap, (time, tie, self._sequence, target, args))

    def _runaway(self, target: object) -> SimulationError:
        return SimulationError(
            f"runaway simulation: {self._max_events} events were processed up to cycle {self.now}, and {target} goes "
            "on. A loop of the kernel may never end; otherwise raise max_events."
        )
