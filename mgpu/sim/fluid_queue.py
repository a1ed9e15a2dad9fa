"""A server that works at a fixed rate on one request after another: the model of every bandwidth in the simulator.

Time is kept in ticks, a whole number of them per cycle, so that rates such as 1935.48 bytes per cycle accumulate
exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


class FluidQueue:
    """Serves requests in the order of the calls, without gaps while there is work.

    Args:
      ticks_per_cycle: work, in ticks, that is done in one cycle.
    """

    __slots__ = ("_free_ticks", "_ticks_per_cycle", "busy_ticks")

    def __init__(self, ticks_per_cycle: int) -> None:
        self._ticks_per_cycle = ticks_per_cycle
        self._free_ticks = 0
        self.busy_ticks = 0

    def serve(self, now: int, ticks: int) -> int:
        """Adds work at time `now` and returns the cycle at which it is done, rounded up."""
        start = now * self._ticks_per_cycle
        if self._free_ticks > start:
            start = self._free_ticks
        self._free_ticks = start + ticks
        self.busy_ticks += ticks
        return -(-self._free_ticks // self._ticks_per_cycle)

    @property
    def free_at(self) -> int:
        """The cycle at which all work so far is done, rounded up."""
        return -(-self._free_ticks // self._ticks_per_cycle)

    def done_after(self, ticks: int) -> int:
        """Returns the cycle, rounded up, that lies `ticks` after the end of all work so far."""
        return -(-(self._free_ticks + ticks) // self._ticks_per_cycle)

    @property
    def busy_cycles(self) -> int:
        """Cycles of work so far, rounded up."""
        return -(-self.busy_ticks // self._ticks_per_cycle)


def exact_ticks(costs: Sequence[Fraction]) -> tuple[int, list[int]]:
    """Finds a tick in which several costs are whole numbers.

    Args:
      costs: cycles per unit of work, such as per byte, of each kind of work.

    Returns:
      ticks per cycle, and the ticks that a unit of each kind of work takes.
    """
    ticks_per_cycle = math.lcm(*(cost.denominator for cost in costs))
    return ticks_per_cycle, [int(cost * ticks_per_cycle) for cost in costs]
