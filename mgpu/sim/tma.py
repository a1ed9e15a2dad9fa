"""The TMA engine of one SM: when has a box landed in SMEM, when has a stored one been read from it.

A load costs the memory's latency, then its rows stream in at one row of up to 128 bytes per cycle, a little below 128
bytes per cycle in all; boxes land in the order of issue. A narrower row costs as much as a full one. A store is read
from SMEM at a lower rate. The engine takes up its operations one after the other: a store keeps it until it has been
read, a load only for as long as asking takes. So what is issued behind a store waits for it, but stores do not wait
for the data of loads. (Nobody has published this: a matmul that stores a tile while the next tile's loads are under way
shows it, Triton's 07-persistence.py at K = 512 and 1024.)

Loads and wgmmas meet at SMEM, where wgmmas go first: a load that starts while the tensor core works takes longer by
`tma_wgmma_contention`. That is latency only; a ring deep enough to hide it keeps the rate.

Sources: the row rate explains the SemiAnalysis main-loop sweep on B200 and the H100 latency by size of the flash-vla
notes; store times are those of the GH200 2-D store probe (device file, `tma_store_*`).
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from mgpu.devices import Device
from mgpu.sim.fluid_queue import FluidQueue
from mgpu.sim.memory_system import Box, MemorySystem
from mgpu.sim.tensor_core import TensorCore

__all__ = ["Box", "Stored", "Tma"]


_LATER = sys.maxsize


@functools.cache
def _ratio(number: float) -> tuple[int, int]:
    """Returns numerator and denominator of a decimal number; computed once for all SMs."""
    return Fraction(str(number)).as_integer_ratio()


class Stored(NamedTuple):
    """Times of a store, in cycles.

    Attributes:
      read_done: SMEM may be reused (`cp.async.bulk.wait_group.read` returns).
      written: the bytes are in GMEM for everybody (`cp.async.bulk.wait_group` returns).
    """

    read_done: int
    written: int


class Tma:
    """The engine of one SM. Calls must come in time order over all SMs, because they share `memory`.

    The issuing thread's own cost, `tma_issue_cycles` for each operation, is charged by the caller.

    Args:
      device: rates and latencies.
      memory: what is behind the engine.
      sm: index of the engine's SM.
      tensor_core: of the same SM, or None for one that never works.
    """

    __slots__ = (
        "_contention",
        "_costs",
        "_descriptor_ready",
        "_device",
        "_landing",
        "_memory",
        "_sm",
        "_stores",
        "_stores_read",
        "_tensor_core",
    )

    def __init__(self, device: Device, memory: MemorySystem, sm: int, tensor_core: TensorCore | None = None) -> None:
        self._device = device
        self._memory = memory
        self._sm = sm
        self._tensor_core = tensor_core
        self._contention = _ratio(device.tma_wgmma_contention)
        self._landing = FluidQueue(device.tma_bytes_per_cycle)
        self._stores = FluidQueue(device.tma_store_bytes_per_cycle)
        self._stores_read = 0  # cycle at which the engine has read all stores so far
        self._descriptor_ready: dict[int, int] = {}
        self._costs: dict[tuple[int, int], int] = {}

    def load(self, now: int, box: Box) -> int:
        """Starts a copy from GMEM to SMEM at time `now`.

        Returns:
          The cycle at which the last byte is in SMEM; `complete_tx` is due.
        """
        buffer, extent = box.buffer, (box.rows, box.row_bytes)
        arrives = self._memory.read(now, self._sm, box, by_tma=True)
        if self._stores_read > now or self._descriptor_ready.get(buffer, _LATER) > now:
            arrives += self._waiting_cycles(now, buffer)
        return self._land(now, arrives, self._costs.get(extent) or self._ticks(*extent))

    def multicast(self, now: int, box: Box, receivers: Sequence[Tma]) -> list[int]:
        """Starts a copy from GMEM to the SMEM of several SMs of a cluster, which L2 is asked for once.

        Returns:
          For each receiver, the cycle at which the last byte is in its SMEM. Each takes the bytes at its own rate.
        """
        ticks = self._ticks(box.rows, box.row_bytes)
        arrives = self._memory.read(now, self._sm, box, by_tma=True) + self._waiting_cycles(now, box.buffer)
        return [receiver._land(now, arrives, ticks) for receiver in receivers]

    def _land(self, now: int, arrives: int, ticks: int) -> int:
        """Returns the cycle at which bytes that were asked for at `now` and arrive at `arrives` are in this SMEM."""
        data_at = self._landing.serve(arrives, ticks)
        if self._tensor_core is None or self._tensor_core.free_at <= now:
            return data_at
        numerator, denominator = self._contention
        return data_at + (data_at - now) * numerator // denominator

    def store(self, now: int, box: Box) -> Stored:
        """Starts a copy from SMEM to GMEM at time `now`."""
        device = self._device
        start = now + self._waiting_cycles(now, box.buffer)
        self._stores_read = drained = self._stores.serve(start, box.nbytes)
        # The engine reads no faster than L2 takes the bytes, so both waits feel what the other SMs write.
        taken = max(drained, self._memory.write(now, self._sm, box))
        return Stored(taken + device.tma_store_read_latency_cycles, taken + device.tma_store_latency_cycles)

    def _ticks(self, rows: int, row_bytes: int) -> int:
        """Returns how many ticks a box takes to land, and remembers it for the next box of this extent."""
        device = self._device
        streamed_rows = rows * -(-row_bytes // device.tma_row_bytes)
        # Streaming a row takes a cycle even if it is short, so short rows count as full ones here.
        row_ticks = streamed_rows * device.tma_bytes_per_cycle // device.tma_rows_per_cycle
        self._costs[rows, row_bytes] = ticks = max(rows * row_bytes, row_ticks)
        return ticks

    def _waiting_cycles(self, now: int, buffer: int) -> int:
        """Returns how long an operation waits: for stores to be read, then for its tensor map, fetched once an SM."""
        begin = self._stores_read
        if begin < now:
            begin = now
        ready = self._descriptor_ready.get(buffer)
        if ready is None:
            ready = self._descriptor_ready[buffer] = begin + self._device.tma_descriptor_fetch_cycles
        return (ready if ready > begin else begin) - now
