"""A running warpgroup: what its generated code calls to reach the units around it.

Values move when the hardware would move them: a load lands when its bytes arrive, a store reads SMEM when the engine
does, a wgmma's result exists once it has been waited for. So a kernel that reads too early gets the wrong values here too.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mgpu.capture import UNITS
from mgpu.sim.matmul import MatmulFunction
from mgpu.sim.mbarrier import Mbarrier
from mgpu.sim.memory_system import Box
from mgpu.sim.recorder import Recorder

if TYPE_CHECKING:
    from mgpu.sim.cta import CtaState

TMA_LOAD, TMA_STORE, TENSOR_CORE = range(len(UNITS))
LOAD_SOURCE, STORE_SOURCE, MMA_SOURCE = (-1 - unit for unit in range(len(UNITS)))


class Warpgroup:
    """One warpgroup of one CTA.

    Attributes:
      cta: state shared with the CTA's other warpgroups.
      index: its number in the CTA.
      engine: the simulation's clock.
      process: its process; set once it has been started.
      recorder: its event buffer, or None if nothing is recorded.
      run_work: charges work to the SM's shared pipes, (now, Work) -> finish time.
      registers: registers per thread that it owns.
      begin, end: cycles of its first and last moment.
    """

    def __init__(self, cta: CtaState, index: int, recorder: Recorder | None, registers: int) -> None:
        self.cta = cta
        self.index = index
        self.engine = cta.engine
        self.process: Any = None
        self.generator: Any = None
        self.recorder = recorder
        self.record = recorder.record if recorder is not None else None
        self.registers = registers
        self.begin = self.end = -1
        self.run_work = cta.sm.schedulers.run
        self._tma = cta.sm.tma
        self._tensor_core = cta.sm.tensor_core
        self._activity = cta.activity
        if cta.activity is not None:
            self._log = functools.partial(_log_unit, cta.activity.unit_span, cta.sm.index, cta.index, index)
        self._mmas: deque[tuple[int, MatmulFunction | None, Any, Any, Any]] = deque()
        self._open_stores: list[tuple[int, int]] = []
        self._store_groups: deque[tuple[int, int]] = deque()

    def load(
        self, dst: np.ndarray, src: np.ndarray, box: Box, barrier: Mbarrier, slot: int, num_bytes: int, site: int
    ) -> None:
        """Starts a TMA load: arrives on the barrier, expects the bytes, and lands them when they come."""
        engine = self.engine
        barrier.expect_tx(num_bytes)
        barrier.arrive((self.index, site))
        now = engine.now
        landing = self._tma.load(now, box)
        engine.call_at(landing.data_at, _land, dst, src, barrier, num_bytes, (LOAD_SOURCE, site))
        if self._activity is not None:
            self._log(TMA_LOAD, site, slot, now, landing.data_at, num_bytes, 0)

    def store(self, write: Any, box: Box, num_bytes: int, commit: bool, site: int) -> None:
        """Starts a TMA store. `write()` copies SMEM to GMEM; it is called when the engine has read SMEM."""
        now = self.engine.now
        read_done, written = self._tma.store(now, box)
        self.engine.call_at(read_done, write)
        self._open_stores.append((read_done, written))
        if commit:
            self.commit_stores()
        if self._activity is not None:
            self._log(TMA_STORE, site, -1, now, written, num_bytes, 0)

    def commit_stores(self) -> None:
        """Closes a group of the stores started since the last one; an empty group is complete at once."""
        now = self.engine.now
        read_done = max((read for read, _ in self._open_stores), default=now)
        written = max((done for _, done in self._open_stores), default=now)
        self._store_groups.append((read_done, written))
        self._open_stores.clear()

    def store_wait(self, pending: int, read_only: bool) -> int:
        """Returns how long to wait until at most the `pending` newest store groups are in flight (or unread)."""
        groups, now = self._store_groups, self.engine.now
        while groups and groups[0][1] <= now:
            groups.popleft()
        if len(groups) <= pending:
            return 0
        read_done, written = groups[-1 - pending]
        return max(0, (read_done if read_only else written) - now)

    def mma(self, shape: tuple[int, int, int], bits: int, a_in_registers: bool, work: Any, site: int) -> None:
        """Starts a wgmma. `work` is (matmul function, acc, a, b), or (None, ...) when only time is simulated."""
        now = self.engine.now
        m, n, k = shape
        begin, end, _ = self._tensor_core.issue(now, m, n, k, bits, a_in_registers)
        self._mmas.append((end, *work))
        if self._activity is not None:
            self._log(TENSOR_CORE, site, -1, begin, end, 0, 2 * m * n * k)

    def mma_wait(self, pending: int) -> int:
        """Returns how long to wait until at most `pending` wgmmas are in flight."""
        if len(self._mmas) <= pending:
            return 0
        return max(0, self._mmas[-1 - pending][0] - self.engine.now)

    def mma_retire(self, pending: int) -> None:
        """Writes the results of the wgmmas that have been waited for. Operands are read now: they must still be there."""
        mmas = self._mmas
        while len(mmas) > pending:
            _, multiply, acc, a, b = mmas.popleft()
            if multiply is not None:
                multiply(acc, a, b)


def _log_unit(unit_span: Callable[..., None], sm: int, cta: int, warpgroup: int, unit: int, *rest: int) -> None:
    unit_span(unit, sm, cta, warpgroup, *rest)


def _land(dst: np.ndarray, src: np.ndarray, barrier: Mbarrier, num_bytes: int, source: tuple[int, int]) -> None:
    dst[...] = src
    barrier.complete_tx(num_bytes, source)
