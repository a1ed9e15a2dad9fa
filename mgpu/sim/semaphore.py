"""Semaphores in GMEM: a counter that a CTA, or any CTA, adds to and that a waiter polls."""

from __future__ import annotations

from collections import deque

from mgpu.devices import Device
from mgpu.errors import SimulationError
from mgpu.sim.engine import Engine, Process

MAX_COUNT = 2**31 - 1
"""Largest value: semaphores are 32-bit signed integers."""


class SemaphoreWait:
    """What a parked process waits for."""

    __slots__ = ("semaphore", "value")

    def __init__(self, semaphore: Semaphore, value: int) -> None:
        self.semaphore = semaphore
        self.value = value

    def __str__(self) -> str:
        return f"semaphore {self.semaphore.label}: {self.semaphore.count} of {self.value}"


class Semaphore:
    """One counter. Starts at zero.

    Args:
      engine: the clock that waiters run on.
      device: gives `gmem_semaphore_hop_ns`, from a signal to the waiter that sees it.
      label: what reports call it.
      is_global: all CTAs of the launch share it.

    Attributes:
      count: its value.
      taken: what waits have taken from it.
    """

    __slots__ = ("_engine", "_hop_cycles", "_waiters", "count", "is_global", "label", "taken")

    def __init__(self, engine: Engine, device: Device, label: str, *, is_global: bool = False) -> None:
        self.label = label
        self.is_global = is_global
        self.count = self.taken = 0
        self._engine = engine
        self._hop_cycles = device.cycles(device.gmem_semaphore_hop_ns)
        self._waiters: deque[tuple[Process, int, bool]] = deque()

    @property
    def signalled(self) -> int:
        """Sum of all signals so far."""
        return self.count + self.taken

    def signal(self, increment: int) -> None:
        """Adds to the counter and wakes the waiters, in order of arrival, for whom it is now enough.

        Raises:
          SimulationError: the counter overflows.
        """
        self.count += increment
        if self.count > MAX_COUNT:
            raise SimulationError(
                f"semaphore {self.label} reaches {self.count}, but it is a 32-bit integer. Decrement it when waiting."
            )
        at = self._engine.now + self._hop_cycles
        still_waiting: deque[tuple[Process, int, bool]] = deque()
        for process, value, decrement in self._waiters:
            if self.count >= value:
                self._take(value, decrement)
                self._engine.wake(process, at)
            else:
                still_waiting.append((process, value, decrement))
        self._waiters = still_waiting

    def wait(self, process: Process, value: int, decrement: bool) -> bool:
        """Returns True if the counter has reached `value`; else the process must park, and will be woken."""
        if self.count >= value:
            self._take(value, decrement)
            return True
        process.waiting_on = SemaphoreWait(self, value)
        self._waiters.append((process, value, decrement))
        return False

    def _take(self, value: int, decrement: bool) -> None:
        if decrement:
            self.count -= value
            self.taken += value
