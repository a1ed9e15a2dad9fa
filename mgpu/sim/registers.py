"""The register pool of a CTA: `setmaxnreg` gives registers back and takes them, waiting until there are enough."""

from __future__ import annotations

from collections import deque

from mgpu.sim.engine import Engine, Process
from mgpu.units import LANES_PER_WARPGROUP


class RegisterWait:
    """What a warpgroup that asks for more registers waits for."""

    __slots__ = ("needed", "pool")

    def __init__(self, pool: RegisterPool, needed: int) -> None:
        self.pool = pool
        self.needed = needed

    def __str__(self) -> str:
        return f"set_max_registers: {self.needed} registers wanted, {self.pool.free} free in the CTA"


class RegisterPool:
    """Registers of one CTA that no warpgroup owns.

    Attributes:
      free: registers, over all lanes.
    """

    def __init__(self, engine: Engine, cycles: int) -> None:
        self.free = 0
        self._engine = engine
        self._cycles = cycles
        self._waiting: deque[tuple[Process, int]] = deque()

    def change(self, process: Process, owned: int, wanted: int) -> bool:
        """Moves a warpgroup from `owned` to `wanted` registers per thread.

        Returns:
          True if it is done; False if the process must park until others have given registers back.
        """
        needed = (wanted - owned) * LANES_PER_WARPGROUP
        if needed <= self.free:
            self.free -= needed
            self._wake()
            return True
        process.waiting_on = RegisterWait(self, needed)
        self._waiting.append((process, needed))
        return False

    def _wake(self) -> None:
        while self._waiting and self._waiting[0][1] <= self.free:
            process, needed = self._waiting.popleft()
            self.free -= needed
            self._engine.wake(process, self._engine.now + self._cycles)
