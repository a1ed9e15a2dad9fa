"""Distributed shared memory: accesses of one SM to the SMEM of other SMs of its cluster.

An SM's remote traffic is served at its share of the chip's measured rate. A read costs the measured round trip; a
store or a remote arrival is posted and takes effect after half of it, since nothing has to come back.
"""

from __future__ import annotations

import functools
from fractions import Fraction

from mgpu.devices import Device
from mgpu.sim.fluid_queue import FluidQueue, exact_ticks


@functools.cache
def _ticks(clocks_hz: int, bandwidth: int) -> tuple[int, int]:
    """Returns ticks per cycle, and those that a byte takes; computed once for all SMs."""
    ticks_per_cycle, (byte_ticks,) = exact_ticks([Fraction(clocks_hz, bandwidth)])
    return ticks_per_cycle, byte_ticks


class Dsmem:
    """The port of one SM to the network between SMs.

    Args:
      device: gives `dsmem_bandwidth` (of the chip) and `dsmem_latency_cycles`.

    Attributes:
      one_way_cycles: from a posted store or arrival to its effect.
    """

    __slots__ = ("_byte_ticks", "_latency_cycles", "_queue", "one_way_cycles")

    def __init__(self, device: Device) -> None:
        ticks_per_cycle, self._byte_ticks = _ticks(device.clock_hz * device.num_sms, device.dsmem_bandwidth)
        self._queue = FluidQueue(ticks_per_cycle)
        self._latency_cycles = device.dsmem_latency_cycles
        self.one_way_cycles = device.dsmem_latency_cycles // 2

    def read(self, now: int, num_bytes: int) -> int:
        """Returns the cycle at which bytes asked for at `now` have arrived."""
        return self._queue.serve(now, num_bytes * self._byte_ticks) + self._latency_cycles

    def write(self, now: int, num_bytes: int) -> int:
        """Returns the cycle at which bytes sent at `now` are in the other SM's memory."""
        return self._queue.serve(now, num_bytes * self._byte_ticks) + self.one_way_cycles
