"""The chip: SMs behind one memory system, and the block scheduler that places a grid's CTAs on them.

CTAs start in order of their index, as room appears. The CTAs of a cluster start together, on neighbouring SMs, one
CTA on each; every SM gets its first CTA before any gets a second. When the last CTA of a cluster has exited, the next
cluster takes its place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from mgpu.capture import CTA_DTYPE
from mgpu.devices import Device
from mgpu.errors import ResourceError
from mgpu.sim.dsmem import Dsmem
from mgpu.sim.engine import Engine
from mgpu.sim.memory_system import MemorySystem
from mgpu.sim.tensor_core import TensorCore
from mgpu.sim.tma import Tma
from mgpu.sim.warp_schedulers import WarpSchedulers
from mgpu.units import LANES_PER_WARP, WARPS_PER_WARPGROUP


@dataclasses.dataclass(frozen=True)
class CtaResources:
    """What one CTA takes from its SM.

    Attributes:
      smem_bytes: static and dynamic SMEM, without what the system reserves.
      num_warpgroups: warpgroups of 4 warps.
      registers_per_thread: 32-bit registers of each lane at launch.
    """

    smem_bytes: int
    num_warpgroups: int
    registers_per_thread: int


class Sm:
    """One streaming multiprocessor.

    Attributes:
      index: its number on the chip.
      tma, tensor_core, schedulers, dsmem: its units.
    """

    __slots__ = ("dsmem", "index", "schedulers", "tensor_core", "tma")

    def __init__(self, device: Device, memory: MemorySystem, index: int) -> None:
        self.index = index
        self.tensor_core = TensorCore()
        self.tma = Tma(device, memory, index, self.tensor_core)
        self.schedulers = WarpSchedulers(device)
        self.dsmem = Dsmem(device)


class Cta:
    """One CTA on its SM.

    Attributes:
      index: linear index in grid order.
      cluster: linear index of its cluster.
      rank: position in its cluster.
      sm: where it runs.
      begin: cycle of its entry. The warpgroups of the first CTA of a place run `cta_setup_ns` later, when barriers and
        descriptors are set up; those of later ones at once, because `relaunch_gap_ns` holds their setup.
      end: cycle of its exit, -1 while it runs.
    """

    __slots__ = ("_on_exit", "begin", "cluster", "end", "index", "rank", "sm")

    def __init__(self, index: int, cluster: int, rank: int, sm: Sm, begin: int, on_exit: Callable[[Cta], None]) -> None:
        self.index = index
        self.cluster = cluster
        self.rank = rank
        self.sm = sm
        self.begin = begin
        self.end = -1
        self._on_exit = on_exit

    def exit(self) -> None:
        """Ends the CTA now and frees its place. To be called once, when all its warpgroups are done."""
        self._on_exit(self)


@dataclasses.dataclass
class _Launch:
    """State of the grid that is being placed."""

    num_clusters: int
    cluster_size: int
    start: Callable[[Cta], object]
    next_cluster: int = 0
    running: dict[int, int] = dataclasses.field(default_factory=dict)  # cluster -> CTAs that have not exited


class Machine:
    """A simulated chip for one launch.

    Args:
      engine: the clock.
      device: the numbers.
      num_sms: SMs to simulate, by default all of the device; the memory system stays that of the whole chip.

    Attributes:
      memory, sms: the parts.
      cta_log: rows (cta, cluster, sm, begin, end) of `mgpu.capture.CTA_DTYPE`, in the order of exit.
    """

    def __init__(self, engine: Engine, device: Device, num_sms: int | None = None) -> None:
        self.device = device
        self.memory = MemorySystem(device)
        count = device.num_sms if num_sms is None else num_sms
        if not 1 <= count <= device.num_sms:
            raise ResourceError(f"num_sms is {count}, expected 1 to {device.num_sms}, the SMs of {device.name}.")
        self.sms = [Sm(device, self.memory, index) for index in range(count)]
        self.cta_log: list[tuple[int, int, int, int, int]] = []
        self._engine = engine

    def ctas_per_sm(self, resources: CtaResources) -> int:
        """Returns how many CTAs fit on an SM at once.

        Raises:
          ResourceError: not even one does; says which limit it exceeds.
        """
        device = self.device
        warps = WARPS_PER_WARPGROUP * resources.num_warpgroups
        unit = device.register_allocation_unit
        registers_per_warp = -(-resources.registers_per_thread * LANES_PER_WARP // unit) * unit
        wanted_and_allowed = {
            "bytes of SMEM per CTA": (resources.smem_bytes, device.smem_per_cta_bytes),
            "registers per thread": (resources.registers_per_thread, device.registers_per_lane),
            "registers": (max(1, registers_per_warp * warps), device.registers_per_sm),
            "warps": (max(1, warps), device.max_warps_per_sm),
        }
        for what, (wanted, allowed) in wanted_and_allowed.items():
            if wanted > allowed:
                raise ResourceError(
                    f"a CTA asks for {wanted} {what}, {device.name} has {allowed}. Use smaller tiles or fewer stages, "
                    "warpgroups or registers."
                )
        by_smem = device.smem_per_sm_bytes // (resources.smem_bytes + device.smem_reserved_per_cta_bytes)
        by_count = [allowed // wanted for wanted, allowed in list(wanted_and_allowed.values())[2:]]
        return min(by_smem, *by_count, device.max_ctas_per_sm)

    def cluster_places(self, cluster_size: int) -> int:
        """Returns how many clusters run side by side with one CTA per SM: limited by SMs and by how GPCs divide them.

        Raises:
          ResourceError: the machine cannot hold one such cluster.
        """
        device = self.device
        if not 1 <= cluster_size <= min(device.max_cluster_size, len(self.sms)):
            raise ResourceError(
                f"cluster of {cluster_size} CTAs: {device.name} allows at most {device.max_cluster_size}, and "
                f"{len(self.sms)} SMs are simulated. Use a smaller cluster."
            )
        limits = {
            1: device.num_sms,
            2: device.max_clusters_of_2,
            4: device.max_clusters_of_4,
            8: device.max_clusters_of_8,
        }
        # Sizes without a measured limit are as constrained as the next larger one, in SMs that can be used.
        size = next((known for known in limits if known >= cluster_size), 8)
        return max(1, min(len(self.sms) // cluster_size, limits[size] * size // cluster_size))

    def launch(self, num_ctas: int, cluster_size: int, resources: CtaResources, start: Callable[[Cta], object]) -> None:
        """Places the grid's CTAs from now on; the engine has to run afterwards.

        Args:
          num_ctas: CTAs of the grid, a multiple of `cluster_size`.
          cluster_size: CTAs of a cluster; consecutive indices form one.
          resources: of one CTA.
          start: called with each CTA when its warpgroups are to start.

        Raises:
          ResourceError: a CTA or a cluster does not fit, or the grid is not made of whole clusters.
        """
        if num_ctas % cluster_size:
            raise ResourceError(
                f"grid of {num_ctas} CTAs in clusters of {cluster_size}: expected a multiple of the cluster size."
            )
        places, per_sm = self.cluster_places(cluster_size), self.ctas_per_sm(resources)
        launch = _Launch(num_ctas // cluster_size, cluster_size, start)
        device = self.device
        ramp = self._engine.now + device.cycles(device.launch_ramp_ns)
        # Breadth first: the places of all SMs, then the same again for each further CTA that fits.
        for turn in range(min(places * per_sm, launch.num_clusters)):
            entry = ramp + device.cycles(device.cta_dispatch_ns * turn * cluster_size)
            self._engine.call_at(entry, self._enter, launch, turn % places, device.cycles(device.cta_setup_ns))

    def _enter(self, launch: _Launch, place: int, setup_cycles: int) -> None:
        """Lets the next cluster of the grid, if there is one, enter the SMs of a place."""
        if launch.next_cluster == launch.num_clusters:
            return
        cluster, size = launch.next_cluster, launch.cluster_size
        launch.next_cluster += 1
        launch.running[cluster] = size
        now = self._engine.now
        ready = now + setup_cycles

        def on_exit(cta: Cta) -> None:
            self._exit(launch, place, cta)

        for rank in range(size):
            cta = Cta(cluster * size + rank, cluster, rank, self.sms[place * size + rank], now, on_exit)
            self._engine.call_at(ready, launch.start, cta)

    def _exit(self, launch: _Launch, place: int, cta: Cta) -> None:
        if cta.end >= 0:
            raise RuntimeError(f"CTA {cta.index} exits a second time.")
        cta.end = self._engine.now
        self.cta_log.append((cta.index, cta.cluster, cta.sm.index, cta.begin, cta.end))
        launch.running[cta.cluster] -= 1
        if launch.running[cta.cluster] == 0:
            del launch.running[cta.cluster]
            reentry = self._engine.now + self.device.cycles(self.device.relaunch_gap_ns)
            self._engine.call_at(reentry, self._enter, launch, place, 0)

    def cta_table(self) -> np.ndarray:
        """Returns `cta_log` as an array of `CTA_DTYPE`, sorted by CTA."""
        return np.array(sorted(self.cta_log), CTA_DTYPE)
