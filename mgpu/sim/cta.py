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
from mgpu.sim.mbarrier import ArrivalLog, CtaBarrier, Mbarrier
from mgpu.sim.memory_system import MemorySystem
from mgpu.sim.multiplier import Multiplier
from mgpu.sim.named_barrier import NamedBarrier
from mgpu.sim.products import Products
from mgpu.sim.races import CtaRaces, GlobalRaces
from mgpu.sim.registers import RegisterPool
from mgpu.sim.semaphore import Semaphore
from mgpu.sim.slots import Slots
from mgpu.sim.values import uninitialised


@dataclasses.dataclass(frozen=True)
class Scope:
    """What one `run_scoped` allocates for the whole CTA; `key` names the `run_scoped`.

    Buffers whose number is in `byte_exact` are stored in their own dtype, the others in a carrier; those in
    `slotted` are divided into slots.
    """

    key: tuple[int, ...]
    allocations: tuple[Allocation, ...]
    byte_exact: frozenset[int] = frozenset()
    slotted: Mapping[int, Slots] = dataclasses.field(default_factory=dict)


class LateAllocation:
    """A buffer or barrier list of a CTA that is made when somebody first accesses it: CTAs without a tile never do.

    Attributes:
      made: the array or barrier list; None if nobody has accessed it yet.
    """

    __slots__ = ("_allocation", "_cta", "_scope", "_tiles", "made")

    def __init__(self, cta: CtaState, allocation: Allocation, scope: Scope) -> None:
        self._cta = cta
        self._allocation = allocation
        self._scope = scope
        self._tiles: list[np.ndarray] | None = None
        self.made: Any = None

    def get(self) -> Any:
        """Returns the array or barrier list, the same at every call."""
        if self.made is None:
            self.made = self._cta.make(self._allocation, self._scope)
        return self.made

    @property
    def tiles(self) -> list[np.ndarray]:
        """What the slots of a slotted buffer hold, the same list at every call."""
        if self._tiles is None:
            self._tiles = self._scope.slotted[self._allocation.number].new_tiles(self._allocation.aval.dtype)
        return self._tiles


class CtaState:
    """What the warpgroups of a CTA share.

    Attributes:
      engine, device, sm: where it runs.
      index: number of the CTA in the grid.
      axes: its position along each grid and cluster axis.
      gmem, consts: arrays of the GMEM operands and of closed-over constants, in their carriers.
      memory: L2 and HBM.
      activity: log of asynchronous units and arrivals, or None.
      races: what watches the CTA for races, or None.
      global_races: what watches its accesses to GMEM for races, or None if nobody looks for races.
      registers: register pool.
      cluster: all CTAs of the cluster, by rank.
      rank: position in the cluster.
      sync: barrier of all warpgroups, for collective allocation.
      products: for each warpgroup, its wgmmas that are not multiplied yet.
      multiplier: multiplies some of them ahead of time, or None.
      running: warpgroups that have not exited.
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
        global_semaphores: dict[int, list[Semaphore]],
        multiplier: Multiplier | None,
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
        self.global_races: GlobalRaces | None = None
        self.registers = RegisterPool(engine, device.setmaxnreg_cycles)
        together = "the other warpgroups of its CTA, to enter a run_scoped together"
        self.sync = CtaBarrier(engine, device, num_warpgroups, together)
        self.products: list[Products] = []
        self.multiplier = multiplier
        self.running = num_warpgroups
        self.cluster = cluster.ctas
        self.rank = rank
        cluster.ctas[rank] = self
        self._cluster = cluster
        self._global_semaphores = global_semaphores
        self._semaphores: dict[int, list[Semaphore]] = {}
        self._named_barriers: dict[int, NamedBarrier] = {}
        self._entered: dict[int, dict[int, Any]] = {}
        self._num_warpgroups = num_warpgroups
        self._barrier_ids = barrier_ids
        self._scopes: dict[tuple[tuple[int, ...], int], tuple[list[Any], int]] = {}

    def enter(self, scope: Scope, entry: int) -> list[Any]:
        """Returns the buffers and barrier lists of a scope as `LateAllocation`s, and its semaphore lists.

        Args:
          scope: what is allocated.
          entry: how often the calling warpgroup has entered this scope before; the warpgroups of a CTA that give the
            same number get the same buffers.
        """
        key = (scope.key, entry)
        found = self._scopes.get(key)
        if found is None:
            found = ([self._allocate(allocation, scope) for allocation in scope.allocations], 0)
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
        """Returns the array or the barrier list of an allocation of this CTA for a peer.

        Raises:
          SimulationError: this CTA has not entered the scope yet, or has left it.
        """
        found = self._entered.get(number, {}).get(entry)
        if found is None:
            raise SimulationError(
                f"a peer accesses SMEM of CTA {self.index} that is not allocated there at cycle {self.engine.now}. "
                "Allocate it in scratch_types, or wait on a ClusterBarrier after entering the scope."
            )
        return found.get() if isinstance(found, LateAllocation) else found

    def named_barrier(self, number: int) -> NamedBarrier:
        """Returns a named barrier (PTX `bar`) of this CTA."""
        if number not in self._named_barriers:
            self._named_barriers[number] = NamedBarrier(self.engine, self.device, number)
        return self._named_barriers[number]

    def position(self, axes: tuple[str, ...]) -> int:
        """Returns the position of this CTA among those that differ from it along `axes`."""
        return self._cluster.group(self.rank, axes).index(self.rank)

    def peers(self, axes: tuple[str, ...]) -> list[CtaState]:
        """Returns the CTAs that differ from this one only along `axes`, itself included."""
        return [self.cluster[rank] for rank in self._cluster.group(self.rank, axes)]

    def peer_buffers(self, axes: tuple[str, ...], number: int, entry: int) -> list[Any]:
        """Returns the same array or barrier list in each CTA of `peers(axes)`."""
        return [cta.buffer(number, entry) for cta in self.peers(axes)]

    def multiply_ended(self) -> None:
        """Multiplies the wgmmas that have ended by now. To be called before SMEM is overwritten, which they have read.

        They are multiplied late otherwise, when their accumulator is read.
        """
        now = self.engine.now
        for products in self.products:
            products.before_overwriting(now)

    def reachable_arrays(self) -> list[np.ndarray]:
        """Returns the arrays of its SMEM, as far as somebody has accessed them, that a peer can reach."""
        entered = [buffer for entries in self._entered.values() for buffer in entries.values()]
        made = [buffer.made for buffer in entered if isinstance(buffer, LateAllocation)]
        return [array for array in made if isinstance(array, np.ndarray)]

    def exit(self) -> None:
        """Lets go of the other CTAs of the cluster when all have exited, so that nothing is left in a cycle."""
        if self._cluster.exit_one():
            for cta in list(self.cluster.values()):
                cta._entered.clear()
            self.cluster.clear()

    def _allocate(self, allocation: Allocation, scope: Scope) -> Any:
        if isinstance(allocation.aval.memory_space, SemaphoreSpace):
            # Nobody resets a counter between two entries of its scope.
            return self._semaphores.setdefault(allocation.number, self._new_semaphores(allocation))
        return LateAllocation(self, allocation, scope)

    def make(self, allocation: Allocation, scope: Scope) -> Any:
        """Returns a new array or barrier list for an allocation of a scope."""
        aval, number = allocation.aval, allocation.number
        if isinstance(aval.memory_space, BarrierSpace):
            return self._new_barriers(allocation)
        slots = scope.slotted.get(number)
        if slots is not None:
            values = slots.new_memory(aval.dtype)
        else:
            values = uninitialised(tuple(aval.shape), aval.dtype)
            values = values.astype(aval.dtype) if number in scope.byte_exact else values
        if not self.running and self.races is not None:  # a peer accesses it first, after the exit
            self.races.made_late(values)
        return values

    def global_semaphores(self, allocation: Allocation) -> list[Semaphore]:
        """Returns semaphores that all CTAs of the launch share."""
        semaphores = self._new_semaphores(allocation, is_global=True)
        return self._global_semaphores.setdefault(allocation.number, semaphores)

    def _new_semaphores(self, allocation: Allocation, *, is_global: bool = False) -> list[Semaphore]:
        names = [f"{allocation.name}[{slot}]" for slot in range(math.prod(allocation.aval.shape))]
        return [Semaphore(self.engine, self.device, name, is_global=is_global) for name in names]

    def _new_barriers(self, allocation: Allocation) -> list[Mbarrier]:
        arrivals = arrivals_per_phase(allocation.aval.memory_space, self._cluster.sizes)
        return [self._new_barrier(allocation, slot, arrivals) for slot in range(math.prod(allocation.aval.shape))]

    def _new_barrier(self, allocation: Allocation, slot: int, arrivals: int) -> Mbarrier:
        log: ArrivalLog | None = None
        if self.activity is not None:
            number = self._barrier_ids[allocation.number]
            log = self.activity.arrival_log(self.engine, number, slot, self.index, self.sm.index)
        if self.races is not None:
            log = self.races.arrived if log is None else functools.partial(_log_both, log, self.races.arrived)
        barrier = Mbarrier(self.engine, self.device, arrivals, f"{allocation.name}[{slot}]", log)
        if self.races is not None:
            self.races.watch(barrier, allocation.number, slot)
        return barrier


def _log_both(first: ArrivalLog, second: ArrivalLog, *arrival: Any) -> None:
    first(*arrival)
    second(*arrival)
