"""State of one CTA while it runs: its shared memory, barriers and warpgroups."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgpu.devices import Device
from mgpu.errors import SimulationError
from mgpu.frontend.regions import Allocation
from mgpu.lang.barriers import BarrierSpace, arrivals_per_phase
from mgpu.lang.semaphores import SemaphoreSpace
from mgpu.sim.activity import Activity
from mgpu.sim.cluster import Cluster
from mgpu.sim.engine import Engine
from mgpu.sim.machine import Sm
from mgpu.sim.matmul import MmaQueue
from mgpu.sim.mbarrier import ArrivalLog, CtaBarrier, Mbarrier
from mgpu.sim.memory_system import MemorySystem
from mgpu.sim.races import CtaRaces
from mgpu.sim.registers import RegisterPool
from mgpu.sim.semaphore import Semaphore
from mgpu.sim.values import uninitialised


@dataclasses.dataclass(frozen=True)
class Scope:
    """What one `run_scoped` allocates for the whole CTA; `key` names the `run_scoped`.

    Buffers whose number is in `byte_exact` are stored in their own dtype, the others in a carrier.
    """

    key: tuple[int, ...]
    allocations: tuple[Allocation, ...]
    byte_exact: frozenset[int] = frozenset()


class CtaState:
    """What the warpgroups of a CTA share.

    Attributes:
      engine, device, sm: where it runs.
      index: number of the CTA in the grid.
      axes: its position along each grid and cluster axis.
      gmem, consts: arrays of the GMEM operands and of closed-over constants, in their carriers.
      memory: L2 and HBM.
      activity: log of asynchronous units and arrivals, or None.
      races: what watches the CTA's SMEM for races, or None.
      registers: register pool.
      cluster: all CTAs of the cluster, by rank.
      rank: position in the cluster.
      sync: barrier of all warpgroups, for collective allocation.
      mma_queues: for each warpgroup, its wgmmas in flight, oldest first: the cycle at which each ends, and its work.
    """

    def __init__(
        self,
        engine: Engine,
        device: Device,
        sm: Sm,
        index: int,
        axes: Mapping[str, int],
        gmem: Sequence[np.ndarray],
        consts: Sequence[np.ndarray],
        memory: MemorySystem,
        num_warpgroups: int,
        activity: Activity | None,
        barrier_ids: Mapping[int, int],
        cluster: Cluster,
        rank: int,
        semaphores: dict[int, list[Semaphore]],
    ) -> None:
        self.engine = engine
        self.device = device
        self.sm = sm
        self.index = index
        self.axes = axes
        self.gmem = gmem
        self.consts = consts
        self.memory = memory
        self.activity = activity
        self.races: CtaRaces | None = None
        self.registers = RegisterPool(engine, device.setmaxnreg_cycles)
        self.sync = CtaBarrier(engine, device, num_warpgroups, f"warpgroups of CTA {index}")
        self.mma_queues: list[MmaQueue] = []
        self.cluster = cluster.ctas
        self.rank = rank
        cluster.ctas[rank] = self
        self._cluster = cluster
        self._semaphores = semaphores
        self._entered: dict[int, dict[int, Any]] = {}
        self._num_warpgroups = num_warpgroups
        self._barrier_ids = barrier_ids
        self._scopes: dict[tuple[tuple[int, ...], int], tuple[list[Any], int]] = {}

    def enter(self, scope: Scope, entry: int) -> list[Any]:
        """Returns the buffers and barrier lists of a scope.

        Args:
          scope: what is allocated.
          entry: how often the calling warpgroup has entered this scope before; the warpgroups of a CTA that give the
            same number get the same buffers.
        """
        key = (scope.key, entry)
        found = self._scopes.get(key)
        if found is None:
            found = ([self._allocate(allocation, scope.byte_exact) for allocation in scope.allocations], 0)
            self._remember(scope, entry, found[0])
        buffers, users = found[0], found[1] + 1
        if users == self._num_warpgroups:
            self._scopes.pop(key, None)  # everybody has it: nothing needs to be looked up again
        else:
            self._scopes[key] = (buffers, users)
        return buffers

    def _remember(self, scope: Scope, entry: int, buffers: list[Any]) -> None:
        """Keeps the buffers of a scope's two newest entries where other CTAs of the cluster find them."""
        if not self._cluster.sizes:
            return
        for allocation, buffer in zip(scope.allocations, buffers, strict=True):
            entries = self._entered.setdefault(allocation.number, {})
            entries[entry] = buffer
            entries.pop(entry - 2, None)

    def buffer(self, number: int, entry: int) -> Any:
        """Returns a buffer or barrier list of this CTA for a peer.

        Raises:
          SimulationError: this CTA has not entered the scope yet, or has left it.
        """
        found = self._entered.get(number, {}).get(entry)
        if found is None:
            raise SimulationError(
                f"a peer accesses SMEM of CTA {self.index} that is not allocated there at cycle {self.engine.now}. "
                "Allocate it in scratch_types, or wait on a ClusterBarrier after entering the scope."
            )
        return found

    def position(self, axes: tuple[str, ...]) -> int:
        """Returns the position of this CTA among those that differ from it along `axes`."""
        return self._cluster.group(self.rank, axes).index(self.rank)

    def peers(self, axes: tuple[str, ...]) -> list[CtaState]:
        """Returns the CTAs that differ from this one only along `axes`, itself included."""
        return [self.cluster[rank] for rank in self._cluster.group(self.rank, axes)]

    def peer_buffers(self, axes: tuple[str, ...], number: int, entry: int) -> list[Any]:
        """Returns the same buffer or barrier list in each CTA of `peers(axes)`."""
        return [cta.buffer(number, entry) for cta in self.peers(axes)]

    def _allocate(self, allocation: Allocation, byte_exact: frozenset[int]) -> Any:
        aval, number = allocation.aval, allocation.number
        if isinstance(aval.memory_space, SemaphoreSpace):
            return self._semaphores.setdefault(number, self._new_semaphores(allocation))
        if isinstance(aval.memory_space, BarrierSpace):
            return [self._barrier(allocation, slot) for slot in range(math.prod(aval.shape))]
        buffer = uninitialised(tuple(aval.shape), aval.dtype)
        return buffer.astype(aval.dtype) if number in byte_exact else buffer

    def _new_semaphores(self, allocation: Allocation) -> list[Semaphore]:
        count = math.prod(allocation.aval.shape)
        return [Semaphore(self.engine, self.device, f"{allocation.name}[{slot}]") for slot in range(count)]

    def _barrier(self, allocation: Allocation, slot: int) -> Mbarrier:
        log: ArrivalLog | None = None
        if self.activity is not None:
            number = self._barrier_ids[allocation.number]
            log = self.activity.arrival_log(self.engine, number, slot, self.index, self.sm.index)
        if self.races is not None:
            log = self.races.arrived if log is None else functools.partial(_log_both, log, self.races.arrived)
        arrivals = arrivals_per_phase(allocation.aval.memory_space, self._cluster.sizes)
        return Mbarrier(self.engine, self.device, arrivals, f"{allocation.name}[{slot}]", log)


def _log_both(first: ArrivalLog, second: ArrivalLog, *arrival: Any) -> None:
    first(*arrival)
    second(*arrival)
