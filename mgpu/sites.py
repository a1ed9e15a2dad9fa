"""Sites: the places of a program that are recorded, and what is known about each before it runs.

A site is a user's `jax.named_scope`, or an operation that can block or starts asynchronous work. `mgpu.passes.sites`
finds them; a recorded event carries only a site's number; the profiler joins the two again. NumPy and JAX free.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any


class Edge(enum.IntEnum):
    """What moment of a site an event marks."""

    BEGIN = 0
    END = 1
    INSTANT = 2


class SiteKind(enum.StrEnum):
    """What a site does. The value is the name in tables and traces; `category` says how its time is counted."""

    SCOPE = "scope"
    BARRIER_WAIT = "barrier_wait"
    BARRIER_ARRIVE = "barrier_arrive"
    TMA_LOAD = "tma_load"
    TMA_STORE = "tma_store"
    STORE_WAIT = "store_wait"
    MMA_ISSUE = "mma_issue"
    MMA_WAIT = "mma_wait"
    COMMIT_SMEM = "commit_smem"
    SET_REGISTERS = "set_registers"
    SYNC = "sync"
    UNRECORDED = "not_recorded"  # iterations outside the recorded window

    @property
    def category(self) -> Category:
        """How the profiler counts time spent in such a site."""
        return _CATEGORY[self]

    @property
    def is_instant(self) -> bool:
        """True if the site is recorded by one INSTANT event instead of a BEGIN and an END."""
        return self is SiteKind.BARRIER_ARRIVE


class Category(enum.StrEnum):
    """Where every cycle of a track goes; the four sum to the track's lifetime."""

    BUSY = "busy"
    WAIT = "wait"
    OVERHEAD = "overhead"
    IDLE = "idle"


_CATEGORY = {
    SiteKind.SCOPE: Category.BUSY,
    SiteKind.BARRIER_WAIT: Category.WAIT,
    SiteKind.BARRIER_ARRIVE: Category.OVERHEAD,
    SiteKind.TMA_LOAD: Category.OVERHEAD,
    SiteKind.TMA_STORE: Category.OVERHEAD,
    SiteKind.STORE_WAIT: Category.WAIT,
    SiteKind.MMA_ISSUE: Category.OVERHEAD,
    SiteKind.MMA_WAIT: Category.WAIT,
    SiteKind.COMMIT_SMEM: Category.OVERHEAD,
    SiteKind.SET_REGISTERS: Category.WAIT,
    SiteKind.SYNC: Category.WAIT,
    SiteKind.UNRECORDED: Category.IDLE,
}


@dataclasses.dataclass(frozen=True)
class Site:
    """One recorded place.

    Attributes:
      id: number of the site in its program, from 0; what the event words carry.
      name: what people see: the scope's own name, or the operation's (`barrier_wait full`).
      kind: what the operation does.
      file, line, function: the user's source line; line 0 when unknown.
      barrier: name of the barrier that is waited for, arrived on, or completed by a copy; "" if none.
      buffer: name of the SMEM buffer that is written or read; "" if none.
      size_bytes: bytes that one execution moves, 0 if none.
      flops: floating-point operations that one execution starts on the tensor core, 0 if none.
      operand_bits: bits of an element of the tensor core's operands, which decide its rate; 0 if none.
      in_flight: groups of MMAs or stores that a wait leaves in flight: it waits for all but the newest `in_flight`.
      scope: enclosing named scopes, outermost first, joined by "/".
    """

    id: int
    name: str
    kind: SiteKind
    file: str = ""
    line: int = 0
    function: str = ""
    barrier: str = ""
    buffer: str = ""
    size_bytes: int = 0
    flops: int = 0
    operand_bits: int = 0
    in_flight: int = 0
    scope: str = ""

    @property
    def location(self) -> str:
        """`file.py:41`, or "" when unknown."""
        return f"{self.file.rsplit('/', 1)[-1]}:{self.line}" if self.line else ""

    def to_json(self) -> dict[str, Any]:
        """Returns the site as a JSON object."""
        return vars(self) | {"kind": str(self.kind)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Site:
        """Reads what `to_json` wrote."""
        fields = dict(value)
        fields["kind"] = SiteKind(str(fields["kind"]))
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class BarrierInfo:
    """A barrier array of the program.

    Attributes:
      id: number of the barrier in its program, from 0.
      name: the kernel's own name for it.
      num_slots: how many barriers the array holds.
      num_arrivals: arrivals that complete one phase.
    """

    id: int
    name: str
    num_slots: int
    num_arrivals: int
