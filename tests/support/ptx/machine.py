"""A machine for the PTX that jaxlib's Mosaic GPU compiler emits: runs a launch and leaves its results in memory.

Each lane has its own program counter; a warp runs the lanes that stand at the same instruction together. Warps take
turns in an order that a seed decides, and asynchronous copies land after a while that the seed decides too, so that
what depends on the order shows. Time is counted in instructions; it is no model of a GPU's speed.

What no GPU allows is an error: an address outside memory, an mbarrier used as data, `bar.sync` by part of a warp, too
many arrivals, a register that was never written where a branch or an address depends on it; and so is a deadlock.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Sequence

import numpy as np

from support.ptx.barriers import CountedBarrier, MBarrier
from support.ptx.lanes import FULL, LANES
from support.ptx.memory import PARAM_BASE, PEER_SHIFT, SHARED_BASE, UNINITIALISED, Region, Regions
from support.ptx.parse import Kernel, PtxError, Register

BLOCKED = object()
"""What an instruction returns that must wait; it is tried again."""

Step = Callable[["Warp", np.ndarray], object]


@dataclasses.dataclass(frozen=True)
class Launch:
    """A launch of a kernel: its shape in CTAs and threads, bytes of shared memory, bytes of its parameters."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    params: bytes


class Cta:
    """A running CTA: its place in the grid, its shared memory and barriers."""

    def __init__(self, machine: Machine, index: tuple[int, ...], rank: int, sm: int) -> None:
        self.machine, self.index, self.rank, self.sm = machine, index, rank, sm
        size = machine.launch.shared_bytes
        self.shared = Region("shared memory", SHARED_BASE, np.full(size, UNINITIALISED, np.uint8))
        self.mbarriers: dict[int, MBarrier] = {}
        self.named: dict[int, CountedBarrier] = {}
        self.cluster: list[Cta] = []
        self.warps: list[Warp] = []
        self.cluster_barrier = CountedBarrier()

    def at(self, address: int) -> tuple[Cta, int]:
        """Returns whose shared memory an address is in, and the address there."""
        rank = address >> PEER_SHIFT
        return (self.cluster[rank - 1] if rank else self), address & ((1 << PEER_SHIFT) - 1)

    def mbarrier(self, address: int) -> MBarrier:
        """Returns the mbarrier at an address of the cluster's shared memory."""
        owner, address = self.at(address)
        if address not in owner.mbarriers:
            raise PtxError(f"no mbarrier was initialised at offset {address - SHARED_BASE} of shared memory")
        return owner.mbarriers[address]


class Warp:
    """32 lanes: registers, program counters, and the bulk copies that each lane has issued."""

    def __init__(self, cta: Cta, number: int) -> None:
        machine = cta.machine
        self.cta, self.number, self.machine = cta, number, machine
        self.registers: dict[str, np.ndarray] = {}
        self.pc = np.zeros(LANES, np.int64)
        self.alive = FULL.copy()
        x, y, _ = machine.launch.block
        linear = number * LANES + np.arange(LANES)
        self.tid = (linear % x, linear // x % y, linear // (x * y))
        self.waits: dict[int, int] = {}
        """Generation of each barrier that the warp has arrived at and waits for; -1 is the cluster's."""
        self.open_copies: list[list[list[int]]] = [[] for _ in range(LANES)]
        self.groups: list[list[list[list[int]]]] = [[] for _ in range(LANES)]
        self._turn = 0

    def read(self, register: Register) -> np.ndarray:
        """Returns the bits of a register."""
        bits = self.registers.get(register.name)
        if bits is None:
            raise PtxError(f"register {register.name} is read, but was never written")
        return bits ^ np.uint64(1) if register.negated else bits

    def write(self, register: Register, bits: np.ndarray, mask: np.ndarray) -> None:
        """Writes the lanes of `mask`."""
        old = self.registers.get(register.name)
        self.registers[register.name] = bits if old is None or mask is FULL else np.where(mask, bits, old)

    def run(self, budget: int) -> int:
        """Runs at most about `budget` instructions; returns how many could run."""
        done, blocked = 0, set()
        while done < budget:
            places = sorted(set(self.pc[self.alive].tolist()) - blocked)
            if not places:
                break
            place = places[self._turn % len(places)]
            mask = self.alive & (self.pc == place)
            stop = next((other for other in sorted(set(self.pc[self.alive].tolist())) if other > place), -1)
            count, is_blocked = self._run_lanes(place, FULL if mask.all() else mask, stop, budget - done)
            done += count
            if count:
                blocked.clear()
            if is_blocked:
                blocked.add(int(self.pc[mask][0]))
        return done

    def _run_lanes(self, place: int, mask: np.ndarray, stop: int, budget: int) -> tuple[int, bool]:
        """Runs some lanes from `place` on until they part, meet others at `stop`, or must wait."""
        machine = self.machine
        steps, guards, targets = machine.steps, machine.guards, machine.targets
        count, is_blocked = 0, False
        while count < budget and place != stop:
            guard, active = guards[place], mask
            if guard is not None:
                active = mask & (self.read(guard) != 0)
                if active.all():
                    active = FULL
            machine.time += 1
            if targets[place] >= 0:
                count += 1
                if active is mask or (active == mask).all():
                    self._turn += targets[place] <= place
                    place = targets[place]
                    continue
                if active.any():
                    self._turn += targets[place] <= place
                    self.pc[mask], self.pc[active] = place + 1, targets[place]
                    return count, False
            elif active.any():
                try:
                    result = steps[place](self, active)
                except PtxError as error:
                    raise PtxError(f"{error}\n  {self.where(place)}") from None
                if result is BLOCKED:
                    is_blocked = True
                    break
                count += 1
                if not self.alive[mask].any():
                    return count, False
            else:
                count += 1
            place += 1
        self.pc[mask & self.alive] = place
        return count, is_blocked

    def where(self, place: int | None = None) -> str:
        """Describes where the warp, or some of its lanes, stand."""
        places = sorted(set(self.pc[self.alive].tolist())) if place is None else [place]
        lines = [self.machine.kernel.instructions[each].text[:100] for each in places]
        return f"CTA {self.cta.index} warp {self.number}: " + " | ".join(lines)


class Machine:
    """Runs one launch; make one for each.

    Args:
      kernel: what runs.
      launch: how.
      memory: global memory, as regions.
      seed: decides the order of warps, and when copies land.
      num_sms: CTAs of the grid are given to SMs in turn.
      start: time of the first instruction on the machine's clock, in cycles.
      most_clusters: clusters that run at the same time.
      clock_skew: how far the cycle counters of SMs lie apart at most.
    """

    def __init__(
        self,
        kernel: Kernel,
        launch: Launch,
        memory: Sequence[Region],
        *,
        seed: int = 0,
        num_sms: int = 4,
        start: int = 1 << 33,
        most_clusters: int = 64,
        clock_skew: int = 1 << 31,
    ) -> None:
        from support.ptx.instructions import translate

        self.kernel, self.launch = kernel, launch
        self.params = Region("the parameters", PARAM_BASE, np.frombuffer(launch.params, np.uint8).copy())
        self.memory = Regions([*memory, self.params])
        self.random = np.random.default_rng(seed)
        self.time = start
        self._skew = self.random.integers(0, clock_skew + 1, num_sms)
        self._num_sms, self._most_clusters = num_sms, most_clusters
        self._pending: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self.steps = [translate(instruction, kernel) for instruction in kernel.instructions]
        self.guards = [instruction.guard for instruction in kernel.instructions]
        self.targets = [instruction.target for instruction in kernel.instructions]

    def clock(self, sm: int) -> int:
        """Returns an SM's cycle counter; each SM counts from a moment of its own."""
        return self.time + int(self._skew[sm])

    def global_timer(self) -> int:
        """Returns the device's timer in ns, which moves in steps of 32 ns as on Hopper; a cycle is 0.5 ns."""
        return (1 << 60) + self.time // 2 // 32 * 32

    def later(self, act: Callable[[], None]) -> None:
        """Has something happen after a while, as asynchronous copies do."""
        heapq.heappush(self._pending, (self.time + int(self.random.integers(1, 2000)), next(self._numbers), act))

    def run(self) -> None:
        """Runs all CTAs to their end and lets all copies land.

        Raises:
          PtxError: the kernel did what no GPU allows, or nothing can go on.
        """
        waiting = self._clusters()
        running: list[list[Warp]] = []
        while waiting or running:
            while waiting and len(running) < self._most_clusters:
                running.append(waiting.pop(0))
            self._land()
            order = [warp for warps in running for warp in warps if warp.alive.any()]
            ran = 0
            for number in self.random.permutation(len(order)):
                ran += order[int(number)].run(int(self.random.integers(20, 400)))
            running = [warps for warps in running if any(warp.alive.any() for warp in warps)]
            if running and not ran:
                if not self._pending:
                    stuck = "\n  ".join(warp.where() for warps in running for warp in warps if warp.alive.any())
                    raise PtxError(f"deadlock: no warp can go on\n  {stuck}")
                self.time = max(self.time, self._pending[0][0])
        while self._pending:
            self.time = max(self.time, self._pending[0][0])
            self._land()

    def _land(self) -> None:
        while self._pending and self._pending[0][0] <= self.time:
            heapq.heappop(self._pending)[2]()

    def _clusters(self) -> list[list[Warp]]:
        """Returns the warps of each cluster, in the order in which a GPU starts them."""
        grid, shape = self.launch.grid, self.launch.cluster
        if any(size % part for size, part in zip(grid, shape, strict=True)):
            raise PtxError(f"grid {grid} is no multiple of the cluster {shape}")
        warps_of_cta = -(-int(np.prod(self.launch.block)) // LANES)
        clusters, started = [], 0
        for z, y, x in itertools.product(*(range(g // c) for g, c in zip(grid[::-1], shape[::-1], strict=True))):
            members: list[Cta] = []
            for dz, dy, dx in itertools.product(*(range(size) for size in shape[::-1])):
                index = (x * shape[0] + dx, y * shape[1] + dy, z * shape[2] + dz)
                members.append(Cta(self, index, len(members), (started + len(members)) % self._num_sms))
            started += len(members)
            for cta in members:
                cta.cluster = members
                cta.cluster_barrier = members[0].cluster_barrier
                cta.warps = [Warp(cta, number) for number in range(warps_of_cta)]
            clusters.append([warp for cta in members for warp in cta.warps])
        return clusters
