"""The thread that multiplies ahead of the simulation.

A tile's product is known when its wgmmas have been issued, long before the kernel reads the accumulator. BLAS does not
need the interpreter meanwhile, so another core multiplies while this one simulates what other warpgroups do. Whoever
comes first computes a product; all are added up in the order of issue, so who it was does not show.
"""

from __future__ import annotations

import os
import threading
from queue import SimpleQueue
from typing import Protocol

import numpy as np


class Job(Protocol):
    """What can be computed ahead."""

    def compute(self) -> None:
        """Computes it, unless that has been done or is under way."""


class Multiplier:
    """A thread for the jobs of one simulation, started by the first of them. Close it when the simulation ends."""

    def __init__(self) -> None:
        self._jobs: list[Job] = []
        self._tokens: SimpleQueue[bool] = SimpleQueue()  # True for each job, then False
        self._thread: threading.Thread | None = None
        self._is_open = True

    def submit(self, job: Job) -> None:
        """Queues a job; it may be computed before, or never."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mgpu multiplier", daemon=True)
            self._thread.start()
        self._jobs.append(job)
        self._tokens.put(True)

    def close(self) -> None:
        """Ends the thread after the job that it is at."""
        self._is_open = False
        if self._thread is not None:
            self._tokens.put(False)
            self._thread.join()

    def _run(self) -> None:
        with np.errstate(all="ignore"):
            while self._tokens.get() and self._is_open:
                # The simulation needs the oldest job next. If both took that one, one of them would wait.
                self._jobs.pop().compute()


def new_multiplier() -> Multiplier | None:
    """Returns a multiplier, or None if this process has one core only."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return None if cores == 1 else Multiplier()
