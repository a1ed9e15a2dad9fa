"""Barriers of the PTX machine: mbarriers in shared memory, named barriers of a CTA, the barrier of a cluster."""

from __future__ import annotations

import dataclasses

from support.ptx.parse import PtxError


@dataclasses.dataclass
class MBarrier:
    """An mbarrier object: a phase ends when no arrival and no byte is pending (PTX ISA 8.7, section 9.7.13.15)."""

    expected: int
    pending: int
    bytes_pending: int = 0
    phase: int = 0

    def arrive(self, count: int = 1, *, may_complete: bool = True) -> None:
        """Counts arrivals."""
        self.pending -= count
        if self.pending < 0:
            raise PtxError(f"an mbarrier that expects {self.expected} arrivals got more in one phase")
        if not may_complete and not self.pending and not self.bytes_pending:
            raise PtxError("mbarrier.arrive.noComplete completes a phase")
        self._turn()

    def expect(self, size: int) -> None:
        """Adds bytes to those that the current phase waits for."""
        self.bytes_pending += size

    def complete(self, size: int) -> None:
        """Counts bytes that have landed; they may land before they are expected."""
        self.bytes_pending -= size
        self._turn()

    def is_complete(self, parity: int) -> bool:
        """True if the phase with this parity has ended."""
        return self.phase & 1 != parity & 1

    def _turn(self) -> None:
        if not self.pending and not self.bytes_pending:
            self.phase += 1
            self.pending = self.expected


@dataclasses.dataclass
class CountedBarrier:
    """A barrier that a fixed number of threads reach, again and again: `bar.sync`, or that of a cluster."""

    arrived: int = 0
    generation: int = 0

    def arrive(self, threads: int, needed: int) -> int:
        """Counts threads; returns the generation whose end releases them."""
        mine = self.generation
        self.arrived += threads
        if self.arrived > needed:
            raise PtxError(f"{self.arrived} threads at a barrier of {needed}")
        if self.arrived == needed:
            self.arrived, self.generation = 0, mine + 1
        return mine + 1
