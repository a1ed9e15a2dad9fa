"""The named barriers of a CTA: PTX `bar.sync` and `bar.arrive`, by number, for any number of its threads."""

from __future__ import annotations

from mgpu.devices import Device
from mgpu.errors import BarrierError
from mgpu.sim.engine import Engine, Process
from mgpu.units import LANES_PER_WARP

NUM_BARRIERS = 16  # PTX ISA, "bar, barrier": each CTA has barriers 0 to 15


class NamedBarrier:
    """One of them. It can be used again and again, each time for a number of threads of its own.

    Args:
      engine: the clock that waiters run on.
      device: gives the cycles from the last arrival to the waiters' next instruction.
      number: 0 to 15.

    Raises:
      BarrierError: another number.
    """

    def __init__(self, engine: Engine, device: Device, number: int) -> None:
        if not 0 <= number < NUM_BARRIERS:
            raise BarrierError(f"named barrier {number}: a CTA has barriers 0 to {NUM_BARRIERS - 1}.")
        self.number = number
        self._engine = engine
        self._device = device
        self._arrived = 0
        self._expected = 0
        self._waiters: list[Process] = []

    def __str__(self) -> str:
        return f"named barrier {self.number} ({self._arrived} of {self._expected} threads)"

    def arrive(self, threads: int, expected: int, process: Process | None = None) -> None:
        """Counts threads that come.

        Args:
          threads: how many.
          expected: how many complete this use of the barrier.
          process: who comes, if it waits: it parks next, and is woken when the others have come too.

        Raises:
          BarrierError: the others expect another number of threads, or more come than are expected.
        """
        if self._arrived and expected != self._expected:
            raise BarrierError(
                f"{self}: somebody comes at cycle {self._engine.now} who expects {expected} threads. "
                "Give the same number wherever the barrier is used together."
            )
        self._expected = expected
        self._arrived += threads
        if self._arrived > expected:
            raise BarrierError(
                f"{self}: more threads come at cycle {self._engine.now} than it expects. "
                "Count 128 for each warpgroup and 32 for each warp that uses it, and let them take turns."
            )
        if process is not None:
            process.waiting_on = self
            self._waiters.append(process)
        if self._arrived == expected:
            device, waiters = self._device, self._waiters
            self._arrived, self._waiters = 0, []
            cycles = device.named_barrier_cycles + device.named_barrier_cycles_per_warp * (expected // LANES_PER_WARP)
            # A callback, because the last party is still running now and can be woken only once it has parked.
            self._engine.call_at(self._engine.now + cycles, self._release, waiters)

    def _release(self, waiters: list[Process]) -> None:
        for process in waiters:
            self._engine.wake(process, self._engine.now)
