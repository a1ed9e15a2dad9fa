"""The register pool of a CTA: `setmaxnreg` gives registers back and takes them, waiting until there are enough."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from mgpu.errors import ResourceError
from mgpu.sim.engine import Engine, Process
from mgpu.units import LANES_PER_WARPGROUP


def check_registers(kernel: str, at_launch: int, at_end: Sequence[int | None]) -> None:
    """Checks that the warpgroups of a CTA can all have the registers that they ask for last.

    Args:
      kernel: source line and name of the kernel.
      at_launch: registers per thread of every warpgroup when the CTA starts.
      at_end: for each warpgroup, what its last `set_max_registers` leaves; 0 if it has none, None if that depends on
        the run.

    Raises:
      ResourceError: the CTA does not own as many, so that one of them would wait forever.
    """
    wanted, owned = sum(at_launch if count == 0 else count or 0 for count in at_end), at_launch * len(at_end)
    if wanted > owned:
        each = ", ".join("?" if count is None else str(count or at_launch) for count in at_end)
        raise ResourceError(
            f"{kernel}: set_max_registers leaves its warpgroups with {each} registers per thread, {wanted} in all; a "
            f"CTA of {len(at_end)} warpgroups owns {owned} ({at_launch} each at launch). Let some decrease more, or "
            "increase less."
        )


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
