"""State of one CTA while it runs: its shared memory, barriers and warpgroups."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgpu.devices import Device
from mgpu.frontend.regions import Allocation
from mgpu.lang.barriers import BarrierSpace
from mgpu.sim.activity import Activity
from mgpu.sim.engine import Engine
from mgpu.sim.machine import Sm
from mgpu.sim.memory_system import MemorySystem
from mgpu.sim.mbarrier import CtaBarrier, Mbarrier
from mgpu.sim.registers import RegisterPool
from mgpu.sim.values import uninitialised


@dataclasses.dataclass(frozen=True)
class Scope:
    """What one `run_scoped` allocates for the whole CTA; `key` names the `run_scoped`."""

    key: tuple[int, ...]
    allocations: tuple[Allocation, ...]


class CtaState:
    """What the warpgroups of a CTA share.

    Attributes:
      engine, device, sm: where it runs.
      index: number of the CTA in the grid.
      axes: its position along each grid and cluster axis.
      gmem, consts: arrays of the GMEM operands and of closed-over constants, in their carriers.
      memory: L2 and HBM.
      activity: log of asynchronous units and arrivals, or None.
      registers: register pool.
      sync: barrier of all warpgroups, for collective allocation.
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
        self.registers = RegisterPool(engine, device.setmaxnreg_cycles)
        self.sync = CtaBarrier(engine, device, num_warpgroups, f"warpgroups of CTA {index}")
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
            found = ([self._allocate(allocation) for allocation in scope.allocations], 0)
        buffers, users = found[0], found[1] + 1
        if users == self._num_warpgroups:
            self._scopes.pop(key, None)  # everybody has it: nothing needs to be looked up again
        else:
            self._scopes[key] = (buffers, users)
        return buffers

    def _allocate(self, allocation: Allocation) -> Any:
        aval = allocation.aval
        if isinstance(aval.memory_space, BarrierSpace):
            return [self._barrier(allocation, slot) for slot in range(math.prod(aval.shape))]
        return uninitialised(tuple(aval.shape), aval.dtype)

    def _barrier(self, allocation: Allocation, slot: int) -> Mbarrier:
        log = None
        if self.activity is not None:
            number = self._barrier_ids[allocation.number]
            log = functools.partial(_log_arrival, self.activity, self.engine, number, slot, self.index, self.sm.index)
        arrivals = allocation.aval.memory_space.num_arrivals
        return Mbarrier(self.engine, self.device, arrivals, f"{allocation.name}[{slot}]", log)


def _log_arrival(
    activity: Activity,
    engine: Engine,
    barrier: int,
    slot: int,
    cta: int,
    sm: int,
    _mbarrier: Mbarrier,
    source: tuple[int, int],
    phase: int,
    completes: bool,
) -> None:
    who, site = source
    activity.arrival(barrier, slot, phase, cta, sm, engine.now, who, cta, site, completes)
