"""A running warpgroup: what its generated code calls to reach the units around it.

Values move when the hardware would move them: a load lands when its bytes arrive, a store reads SMEM when the engine
does, a wgmma's result exists once it has been waited for. So a kernel that reads too early gets wrong values here too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mgpu.capture import UNITS
from mgpu.lang.barriers import BarrierSpace
from mgpu.sim.mbarrier import Mbarrier
from mgpu.sim.memory_system import Box
from mgpu.sim.products import Products
from mgpu.sim.recorder import Recorder
from mgpu.sim.reductions import Combine
from mgpu.units import WARPS_PER_WARPGROUP

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
      turn: which turn of its outermost loop it is in, of how many; (0, 0) before it begins one that counts its turns.
      warp: -1; the number of the warp for a warp that runs a warp-level region on its own.
    """

    def __init__(self, cta: CtaState, index: int, recorder: Recorder | None, registers: int) -> None:
        self.cta = cta
        self.index = index
        self.engine = cta.engine
        self.process: Any = None
        self.generator: Any = None
        self.recorder = recorder
        self.record = _ignore
        if recorder is not None:
            self.record = recorder.record_all if recorder.has_warp_tracks else recorder.record
        self.registers = registers
        self.begin = self.end = -1
        self.turn = 0, 0
        self.run_work = cta.sm.schedulers.run
        self._tma = cta.sm.tma
        self._tensor_core = cta.sm.tensor_core
        self._fill_cycles = cta.device.tma_latency_l2_cycles
        self._activity = cta.activity
        if cta.activity is not None:
            self._log = cta.activity.unit_log(cta.sm.index, cta.index, index)
        self.warp = -1
        self._warps: list[Warpgroup] = []
        self._running_warps = 0
        self._mma_ends: deque[int] = deque()  # of the wgmmas that have not been waited for, oldest first
        self._products = Products(cta.multiplier)
        cta.products.append(self._products)
        self._open_stores: list[tuple[int, int]] = []
        self._store_groups: deque[tuple[int, int]] = deque()

    def load(
        self,
        dst: Any,
        place: Any,
        src: np.ndarray,
        box: Box | None,
        barrier: Mbarrier,
        slot: int,
        num_bytes: int,
        site: int,
    ) -> None:
        """Starts a TMA load: arrives on the barrier, expects the bytes, and lands them when they come.

        Args:
          dst, place: an array and `...`, or the tiles of a slotted buffer and the number of a slot.
          src: values of the box.
          box: what L2 is asked for; None if the box lies outside its array.
          barrier, slot: the mbarrier and its number.
          num_bytes: of the whole box.
          site: number of the operation's site.
        """
        engine = self.engine
        barrier.expect_tx(num_bytes)
        barrier.arrive((self.index, site))
        now = engine.now
        # A box that lies outside its array is filled without asking L2.
        data_at = now + self._fill_cycles if box is None else self._tma.load(now, box)
        if dst is src:  # both stand for no values in a run that simulates time only
            engine.call_at(data_at, barrier.complete_tx, num_bytes, (LOAD_SOURCE, site))
        else:
            engine.call_at(data_at, _land, self.cta, dst, place, src, box, barrier, num_bytes, (LOAD_SOURCE, site))
        if self._activity is not None:
            self._log(TMA_LOAD, site, slot, now, data_at, num_bytes, 0)

    def load_collective(
        self,
        axes: tuple[str, ...],
        targets: Sequence[np.ndarray],
        src: np.ndarray,
        box: Box | None,
        barriers: Sequence[Mbarrier],
        slot: int,
        num_bytes: int,
        site: int,
        is_led: bool,
    ) -> None:
        """Starts this CTA's share of a load by all CTAs along `axes`.

        A share of a multicast lands in all of them: one's own barrier expects the shares of all, and each share
        completes on the barriers of all. If the first CTA leads, a share lands here alone, and the first CTA's barrier
        expects and completes them all.
        """
        engine, now, position = self.engine, self.engine.now, self.cta.position(axes)
        if is_led:
            receivers, completed, expecting = [self.cta], barriers[:1], barriers[0]
        else:
            receivers, completed, expecting = self.cta.peers(axes), barriers, barriers[position]
        if not is_led or position == 0:
            expecting.expect_tx(num_bytes * len(barriers))
            expecting.arrive((self.index, site))
        if box is None:
            landings = [now + self._fill_cycles] * len(receivers)
        else:
            landings = self._tma.multicast(now, box, [cta.sm.tma for cta in receivers])
        source = (LOAD_SOURCE, site, self.cta.index)
        for receiver, data_at, target, barrier in zip(receivers, landings, targets, completed, strict=True):
            engine.call_at(data_at, _land, receiver, target, ..., src, box, barrier, num_bytes, source)
        if self._activity is not None:
            self._log(TMA_LOAD, site, slot, now, max(landings), num_bytes, 0)

    def prefetch(self, box: Box | None, num_bytes: int, site: int) -> None:
        """Starts fetching a box into L2; nobody is told when it is there."""
        if box is None:
            return
        now = self.engine.now
        there = self.cta.memory.read(now, self.cta.sm.index, box, by_tma=True)
        if self._activity is not None:
            self._log(TMA_LOAD, site, -1, now, there, num_bytes, 0)

    def store(self, write: Any, box: Box | None, num_bytes: int, commit: bool, site: int) -> None:
        """Starts a TMA store. `write()` copies SMEM to GMEM; it is called when the engine has read SMEM."""
        now = self.engine.now
        read_done, written = (now, now) if box is None else self._tma.store(now, box)
        self.engine.call_at(read_done, write)
        self._open_stores.append((read_done, written))
        if commit:
            self.commit_stores()
        if self._activity is not None:
            self._log(TMA_STORE, site, -1, now, written, num_bytes, 0)

    def commit_stores(self) -> None:
        """Closes a group of the stores started since the last one; an empty group is complete at once."""
        stores = self._open_stores
        if not stores:
            now = self.engine.now
            self._store_groups.append((now, now))
            return
        self._store_groups.append((max(read for read, _ in stores), max(done for _, done in stores)))
        stores.clear()

    def store_wait(self, pending: int, read_only: bool, ahead: int) -> int:
        """Returns how long to wait until at most the `pending` newest store groups are in flight (or unread).

        A warpgroup waits for the groups of each of its warps.

        Args:
          pending: groups that may remain.
          read_only: wait until the groups have been read from SMEM, not until they are written.
          ahead: how many cycles after now the wait begins.
        """
        begin = self.engine.now + ahead
        longest = self._own_store_wait(pending, read_only, begin)
        for warp in self._warps:
            longest = max(longest, warp._own_store_wait(pending, read_only, begin))
        return longest

    def _own_store_wait(self, pending: int, read_only: bool, begin: int) -> int:
        groups = self._store_groups
        while groups and groups[0][1] <= begin:
            groups.popleft()
        if len(groups) <= pending:
            return 0
        read_done, written = groups[-1 - pending]
        end = read_done if read_only else written
        return end - begin if end > begin else 0

    def arrive_remote(self, barrier: Mbarrier, site: int) -> None:
        """Arrives on a barrier of another CTA of the cluster; it takes effect when the message is there."""
        at = self.engine.now + self.cta.sm.dsmem.one_way_cycles
        self.engine.call_at(at, barrier.arrive, (self.index, site, self.cta.index))

    def arrive_cluster(self, space: BarrierSpace, number: int, entry: int, slot: int, site: int) -> None:
        """Arrives on the barriers of all CTAs that a cluster barrier joins with this one."""
        for cta in self.barrier_peers(space):
            barrier = cta.buffer(number, entry)[slot]
            if cta is self.cta:
                barrier.arrive((self.index, site))
            else:
                self.arrive_remote(barrier, site)

    def barrier_peers(self, space: BarrierSpace) -> list[CtaState]:
        """Returns the CTAs whose barriers a cluster barrier joins with this one's."""
        found: dict[int, CtaState] = {}
        for axes in space.collective_axes:
            peers = self.cta.peers(axes)
            found.update((cta.rank, cta) for cta in (peers[:1] if space.leader_tracked else peers))
        return list(found.values())

    def remote_access(self, num_bytes: int) -> int:
        """Returns when bytes asked for now have come from another SM of the cluster."""
        return self.cta.sm.dsmem.read(self.engine.now, num_bytes)

    def store_remote(
        self,
        owner: CtaState,
        target: np.ndarray,
        value: Any,
        combine: Combine | None,
        barrier: Mbarrier,
        num_bytes: int,
        site: int,
    ) -> None:
        """Starts storing registers to SMEM of CTA `owner`; the barrier beside the target takes arrival and bytes."""
        at = self.cta.sm.dsmem.write(self.engine.now, num_bytes)
        source = (self.index, site, self.cta.index)
        self.engine.call_at(at, _land_registers, owner, target, value, combine, barrier, source)

    def run_warps(self, bodies: Sequence[Callable[[Warpgroup], Any]]) -> None:
        """Starts one process for each warp; this warpgroup parks and is woken when all have returned."""
        if not self._warps:
            self._warps = [self._make_warp(number) for number in range(len(bodies))]
        self._running_warps = len(bodies)
        for warp, body in zip(self._warps, bodies, strict=True):
            warp.generator = body(warp)
            name = f"CTA {self.cta.index} warpgroup {self.index} warp {warp.warp}"
            warp.process = self.engine.start(warp.generator, name)
            warp.process.on_exit = self._warp_returns
        self.process.waiting_on = _WarpsWait(self._warps)

    def running_warps(self) -> list[Warpgroup]:
        """Returns its warps that run a warp-level region on their own and have not ended it."""
        return [warp for warp in self._warps if warp.process is not None and not warp.process.done]

    def _make_warp(self, number: int) -> Warpgroup:
        recorder = self.recorder.of_warp(number) if self.recorder is not None else None
        warp = Warpgroup(self.cta, self.index, recorder, self.registers)
        warp.warp = number
        if recorder is not None:
            warp.record = recorder.record  # its own track only
        if number == 0:  # operations of the whole warpgroup that one thread issues are its first warp's
            warp._open_stores, warp._store_groups = self._open_stores, self._store_groups
        return warp

    def _warp_returns(self) -> None:
        self._running_warps -= 1
        if self._running_warps == 0:
            device = self.cta.device
            cycles = device.named_barrier_cycles + WARPS_PER_WARPGROUP * device.named_barrier_cycles_per_warp
            self.engine.wake(self.process, self.engine.now + cycles)

    def mma(self, busy_ticks: int, last_ticks: int, flops: int, work: Any, site: int) -> None:
        """Starts a wgmma.

        Args:
          busy_ticks, last_ticks: see `mgpu.sim.tensor_core.mma_ticks`.
          flops: of the whole operation.
          work: a `products.Mma` without its end, or None when only time is simulated.
          site: number of the operation's site.
        """
        now = self.engine.now
        begin, end = self._tensor_core.start(now, busy_ticks, last_ticks)
        self._mma_ends.append(end)
        if work is not None:
            self._products.add(now, (end, *work))
        if self._activity is not None:
            self._log(TENSOR_CORE, site, -1, begin, end, 0, flops)

    def mma_wait(self, pending: int, ahead: int) -> int:
        """Returns how long to wait until at most `pending` wgmmas are in flight, from `ahead` cycles after now."""
        ends, last = self._mma_ends, 0
        while len(ends) > pending:
            last = ends.popleft()
        begin = self.engine.now + ahead
        return last - begin if last > begin else 0

    def mma_retire(self) -> None:
        """Writes the results of the wgmmas that have been waited for."""
        self._products.retire(len(self._mma_ends))


def _ignore(_words: list[int]) -> None:
    """Stands for the recorder of a warp that has no track."""


def _land(
    cta: CtaState,
    dst: Any,
    place: Any,
    src: np.ndarray,
    box: Box | None,
    barrier: Mbarrier,
    num_bytes: int,
    source: tuple[int, ...],
) -> None:
    if place is not ...:
        dst.fill(place, src, box)
    elif dst is not src:  # both stand for no values in a run that simulates time only
        cta.multiply_ended()
        dst[...] = src
    barrier.complete_tx(num_bytes, source)


def _land_registers(
    cta: CtaState, dst: np.ndarray, value: Any, combine: Combine | None, barrier: Mbarrier, source: tuple[int, ...]
) -> None:
    cta.multiply_ended()
    dst[...] = value if combine is None else combine(dst, value)
    barrier.arrive(source)


class _WarpsWait:
    """What a warpgroup waits for while its warps run a region on their own."""

    def __init__(self, warps: Sequence[Warpgroup]) -> None:
        self._warps = warps

    def __str__(self) -> str:
        waiting = [f"warp {w.warp} on {w.process.waiting_on}" for w in self._warps if w.process.waiting_on is not None]
        return f"its warps ({', '.join(waiting) or 'running'})"
