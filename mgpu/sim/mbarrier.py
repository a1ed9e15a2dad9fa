"""Barriers: the mbarrier in SMEM, and the CTA-wide barrier. They say when a waiting process goes on.

An mbarrier's current phase completes when no arrival and no transaction byte is pending; then the pending count starts
anew. Waiters give the parity of the phase they need, as in the PTX instruction `mbarrier.try_wait.parity`, so a
waiter that falls two phases behind cannot tell them apart: that is the hardware's behaviour, and the simulator has it
too.
"""

from __future__ import annotations

from collections.abc import Callable

from mgpu.devices import Device
from mgpu.errors import BarrierError
from mgpu.sim.engine import Engine, Process
from mgpu.units import WARPS_PER_WARPGROUP

MAX_COUNT = (1 << 20) - 1
"""Largest pending count and transaction byte count of an mbarrier (PTX ISA, "mbarrier: contents of the object")."""

ArrivalLog = Callable[["Mbarrier", object, int, bool], object]


class BarrierWait:
    """What a parked process waits for; its text describes the barrier as it is when asked."""

    __slots__ = ("barrier", "parity")

    def __init__(self, barrier: Mbarrier, parity: int) -> None:
        self.barrier = barrier
        self.parity = parity

    def __str__(self) -> str:
        barrier = self.barrier
        arrived = barrier.num_arrivals - barrier.pending
        text = f"{barrier.label} phase {barrier.phase} parity {self.parity}"
        text += f" ({arrived} of {barrier.num_arrivals} arrivals"
        if barrier.tx_bytes < 0:
            return f"{text}, {-barrier.tx_bytes} bytes have landed that no arrival has announced)"
        return text + (f", {barrier.tx_bytes} bytes outstanding)" if barrier.tx_bytes else ")")


class Mbarrier:
    """One barrier slot in SMEM.

    Args:
      engine: the clock that waiters run on.
      device: gives `mbarrier_hop_cycles`, from a phase's completion to the waiter's next instruction.
      num_arrivals: arrivals that complete one phase.
      label: what reports call the slot, such as "full[2]".
      on_arrival: called with (barrier, source, completed phases before, completes) for every arrival and every
        `complete_tx`.

    Attributes:
      phase: phases completed so far.
      pending: arrivals that the current phase still needs.
      tx_bytes: bytes that were announced for the current phase and have not landed; negative if they landed first.
    """

    __slots__ = (
        "_engine",
        "_hop_cycles",
        "_on_arrival",
        "_waiters",
        "label",
        "num_arrivals",
        "pending",
        "phase",
        "tx_bytes",
    )

    def __init__(
        self, engine: Engine, device: Device, num_arrivals: int, label: str, on_arrival: ArrivalLog | None = None
    ) -> None:
        if not 1 <= num_arrivals <= MAX_COUNT:
            raise BarrierError(f"{label}: num_arrivals is {num_arrivals}, expected 1 to {MAX_COUNT}.")
        self.label = label
        self.num_arrivals = num_arrivals
        self.phase = 0
        self.pending = num_arrivals
        self.tx_bytes = 0
        self._engine = engine
        self._hop_cycles = device.mbarrier_hop_cycles
        self._on_arrival = on_arrival
        self._waiters: list[tuple[Process, int, int, int]] = []  # with begin of the wait, sleep and lead after it

    def arrive(self, source: object, count: int = 1) -> None:
        """Takes `count` arrivals of `source`.

        Raises:
          BarrierError: the current phase does not take that many arrivals any more.
        """
        pending = self.pending - count
        if pending < 0:
            outstanding = ", and waits for bytes to land" if self.tx_bytes else ""
            times = "" if count == 1 else f" {count} times"
            raise BarrierError(
                f"{self.label}: {_who(source)} arrives{times} at cycle {self._engine.now:,}, but phase {self.phase} "
                f"has taken {self.num_arrivals - self.pending} of its {self.num_arrivals} arrivals{outstanding}. Wait "
                "for the phase before arriving again (a copy arrives, too: wait until its slot was released before it "
                "is loaded again), or raise num_arrivals."
            )
        self.pending = pending
        if not pending and not self.tx_bytes:
            self._complete(source)
        elif self._on_arrival is not None:
            self._on_arrival(self, source, self.phase, False)

    def expect_tx(self, nbytes: int) -> None:
        """Announces `nbytes` that have to land before the current phase can complete.

        Raises:
          BarrierError: more bytes are outstanding than the barrier can count.
        """
        self.tx_bytes = outstanding = self.tx_bytes + nbytes
        if outstanding > MAX_COUNT:
            raise self._too_many_bytes()

    def complete_tx(self, nbytes: int, source: object) -> None:
        """Takes `nbytes` that `source` has landed.

        Raises:
          BarrierError: more bytes landed unannounced than the barrier can count.
        """
        self.tx_bytes = outstanding = self.tx_bytes - nbytes
        if not outstanding and not self.pending:
            self._complete(source)
        elif outstanding < -MAX_COUNT:
            raise self._too_many_bytes()
        elif self._on_arrival is not None:
            self._on_arrival(self, source, self.phase, False)

    def wait(self, process: Process, parity: int, ahead: int = 0, sleep: int = 0, lead: int = 0) -> bool:
        """Returns True if the phase of that parity has completed; else the process must park, and will be woken.

        Args:
          process: the caller; it yields None next if the answer is False.
          parity: 0 for phases 0, 2, ...; 1 for phases 1, 3, ... A new barrier counts parity 1 as complete.
          ahead: cycles from now to the wait: if the phase completes before, the wait ends then.
          sleep, lead: cycles that a parked process sleeps after the wait, and which of them make its tie (see
            `mgpu.sim.engine`).
        """
        if self.phase & 1 != parity:
            return True
        process.waiting_on = BarrierWait(self, parity)
        self._waiters.append((process, self._engine.now + ahead, sleep, lead))
        return False

    def is_complete(self, parity: int) -> bool:
        """Returns True if the phase of that parity has completed, as `wait` would, without waiting."""
        return self.phase & 1 != parity

    def _too_many_bytes(self) -> BarrierError:
        return BarrierError(
            f"{self.label}: {self.tx_bytes} transaction bytes outstanding in phase {self.phase} at cycle "
            f"{self._engine.now}, but an mbarrier counts at most {MAX_COUNT}. Split the copy over two barriers."
        )

    def _complete(self, source: object) -> None:
        phase = self.phase
        self.phase = phase + 1
        self.pending = self.num_arrivals
        if self._on_arrival is not None:
            self._on_arrival(self, source, phase, True)
        if self._waiters:
            waiters, self._waiters = self._waiters, []
            now = self._engine.now
            for process, begin, sleep, lead in waiters:
                ends = begin if begin > now else now + self._hop_cycles
                self._engine.wake(process, ends + sleep, ends + lead if sleep else now)


def _who(source: object) -> str:
    """Returns who arrives, for a source as warpgroups give it: their number, the site, and the CTA of a remote one."""
    if not isinstance(source, tuple):
        return str(source)
    return f"warpgroup {source[0]}" + (f" of CTA {source[2]}" if len(source) > 2 else "")


class CtaBarrier:
    """A barrier of `parties` warpgroups that arrive and wait in one step, such as `bar.sync` or a named barrier.

    All of them go on `named_barrier_cycles` + `named_barrier_cycles_per_warp` per warp after the last has arrived. It
    can be used again and again.
    """

    __slots__ = ("_cycles", "_engine", "_waiters", "label", "parties")

    def __init__(self, engine: Engine, device: Device, parties: int, label: str) -> None:
        self.label = label
        self.parties = parties
        self._engine = engine
        num_warps = WARPS_PER_WARPGROUP * parties
        self._cycles = device.named_barrier_cycles + device.named_barrier_cycles_per_warp * num_warps
        self._waiters: list[Process] = []

    def __str__(self) -> str:
        return f"{self.label} ({len(self._waiters)} of {self.parties} warpgroups)"

    def arrive_and_wait(self, process: Process) -> bool:
        """Arrives and returns False: the process must park. The last party too is woken after the latency."""
        process.waiting_on = self
        self._waiters.append(process)
        if len(self._waiters) == self.parties:
            # A callback, because the last party is still running now and can be woken only once it has parked.
            waiters, self._waiters = self._waiters, []
            self._engine.call_at(self._engine.now + self._cycles, self._release, waiters)
        return False

    def _release(self, waiters: list[Process]) -> None:
        for process in waiters:
            self._engine.wake(process, self._engine.now)
