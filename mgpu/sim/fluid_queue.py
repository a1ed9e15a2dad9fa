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

    @property
    def busy_cycles(self) -> int:
        """Cycles of work so far, rounded up."""
        return -(-self.busy_ticks // self._ticks_per_cycle)


class ReadFirstQueue(FluidQueue):
    """A server that does deferred work in the gaps that its requests leave.

    Args:
      ticks_per_cycle: work, in ticks, that is done in one cycle.
      most_deferred_ticks: as soon as more work than this is deferred, requests wait until it no longer is.
    """

    __slots__ = ("_deferred_ticks", "_done_ticks", "_most_deferred_ticks")

    def __init__(self, ticks_per_cycle: int, most_deferred_ticks: int) -> None:
        super().__init__(ticks_per_cycle)
        self._most_deferred_ticks = most_deferred_ticks
        self._deferred_ticks = 0
        self._done_ticks = 0

    def serve(self, now: int, ticks: int) -> int:
        """Adds a request at time `now` and returns the cycle at which it is done, rounded up."""
        self._fill_gap(now)
        excess = self._deferred_ticks - self._most_deferred_ticks
        if excess > 0:
            self._free_ticks = max(self._free_ticks, now * self._ticks_per_cycle)
            self._do_deferred(excess)
        return super().serve(now, ticks)

    def defer(self, now: int, ticks: int) -> None:
        """Adds work at time `now` that is done when there are no requests."""
        self._fill_gap(now)
        self._free_ticks = max(self._free_ticks, now * self._ticks_per_cycle)
        self._deferred_ticks += ticks
        self.busy_ticks += ticks

    def take_done(self, now: int) -> int:
        """Returns the ticks of deferred work that were done by `now`, since the last call."""
        self._fill_gap(now)
        done, self._done_ticks = self._done_ticks, 0
        return done

    def do_all_deferred(self) -> None:
        """Does the deferred work that is left, as if no request came any more."""
        self._do_deferred(self._deferred_ticks)

    def _fill_gap(self, now: int) -> None:
        gap = now * self._ticks_per_cycle - self._free_ticks
        if self._deferred_ticks and gap > 0:
            self._do_deferred(min(self._deferred_ticks, gap))

    def _do_deferred(self, ticks: int) -> None:
        self._free_ticks += ticks
        self._deferred_ticks -= ticks
        self._done_ticks += ticks


def exact_ticks(costs: Sequence[Fraction]) -> tuple[int, list[int]]:
    """Finds a tick in which several costs are whole numbers.

    Args:
      costs: cycles per unit of work, such as per byte, of each kind of work.

    Returns:
      ticks per cycle, and the ticks that a unit of each kind of work takes.
    """
    ticks_per_cycle = math.lcm(*(cost.denominator for cost in costs))
    return ticks_per_cycle, [int(cost * ticks_per_cycle) for cost in costs]
