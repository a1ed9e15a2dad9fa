"""Writing the source of a generator: lines, names, constants, and costs that wait to be spent.

Costs of straight-line code are summed while compiling and spent by one `yield` before the next operation that others
can see (a barrier, a memory, an asynchronous unit). So most equations cost no event in the simulation.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from mgpu.jax_internals import SourceLine
from mgpu.sim.warp_schedulers import Work

NO_WORK = Work()


class Emitter:
    """Source text of one generator function, and what its names mean.

    Args:
      compute_scale: factor on what work on the SM's shared pipes takes, for what-ifs.
      least_cycles: returns what a stretch of work takes at least, however empty the pipes are.

    Attributes:
      namespace: globals of the generated function.
      sources: the user's source line of each generated line.
      source: the user's line that is being compiled.
    """

    def __init__(self, compute_scale: float, least_cycles: Callable[[Work], int]) -> None:
        self._compute_scale = compute_scale
        self._least_cycles = least_cycles
        self.namespace: dict[str, Any] = {}
        self.sources: list[SourceLine] = []
        self.source = SourceLine("", 0, "")
        self._lines: list[str] = []
        self._prologue: list[str] = []
        self._depth = 0
        self._names = 0
        self._constants: dict[int, str] = {}
        self._cycles = 0.0
        self._leads: list[int] = []  # private cycles at which events were recorded since the last flush or settle
        self._work = NO_WORK
        self._ready_after: dict[str, int] = {}
        self._chain_cycles = 0
        self._may_owe = False
        self._has_waited = False  # a wait ended, and nothing has been spent since then
        self._done: list[set[str]] = [set()]  # for each open block, what `once` has emitted in it
        self._recorder = ""
        # Events that `_recorder` has not been given yet: tag, "owed" or nothing, private cycles since `engine.now`.
        self._events: list[tuple[str, str, int]] = []
        # Line, barrier and parity of a wait since which constant cycles alone have been spent.
        self._parking: tuple[int, str, str] | None = None

    @property
    def is_unconditional(self) -> bool:
        """True outside loops and branches: what is emitted here runs exactly once."""
        return self._depth == 0

    def line(self, text: str) -> None:
        """Appends a line at the current depth."""
        if self._events and ("yield" in text or "owed" in text):  # time moves on
            self.hand_over_events()
        self._lines.append("    " * self._depth + text)
        self.sources.append(self.source)

    def prologue(self, text: str) -> None:
        """Adds a line at the top of the function, before everything else, unless it is there."""
        if text not in self._prologue:
            self._prologue.append(text)

    @contextlib.contextmanager
    def block(self, header: str) -> Iterator[None]:
        """Opens an indented block; costs do not leak over its borders except as the run-time debt `owed`."""
        self.settle()
        self.hand_over_events()
        self.line(header)
        self._depth += 1
        self._done.append(set())
        yield
        self.settle()
        self.hand_over_events()
        self.line("pass")
        self._done.pop()
        self._depth -= 1

    def once(self, name: str, text: str) -> None:
        """Appends a line unless this block, or one around it, already holds it; `name` tells such lines apart."""
        if not any(name in done for done in self._done):
            self._done[-1].add(name)
            self.line(text)

    def fresh(self, prefix: str = "v") -> str:
        """Returns a new local name."""
        self._names += 1
        return f"{prefix}{self._names}"

    def assign(self, expression: str, prefix: str = "v") -> str:
        """Assigns `expression` to a new local and returns its name."""
        name = self.fresh(prefix)
        self.line(f"{name} = {expression}")
        return name

    def constant(self, value: Any, prefix: str = "k") -> str:
        """Returns the global name of an object that the generated code uses."""
        key = id(value)
        if key not in self._constants:
            name = self.fresh(prefix.upper())
            self._constants[key] = name
            self.namespace[name] = value  # keeps the object alive, so its id stays its own
        return self._constants[key]

    def spend(self, cycles: float = 0, work: Work = NO_WORK) -> None:
        """Adds private cycles, and work on the SM's shared pipes, to what is spent at the next `flush`."""
        self._cycles += cycles
        self._work += work

    def depend(self, operands: Sequence[str], result: str, latency_cycles: int) -> None:
        """Notes that `result` is there so many cycles after the last of `operands`.

        A stretch of work takes at least its longest chain of such steps, however empty the pipes are.
        """
        begin = max((self._ready_after.get(operand, 0) for operand in operands), default=0)
        self._ready_after[result] = begin + latency_cycles
        self._chain_cycles = max(self._chain_cycles, begin + latency_cycles)

    def elapsed(self) -> str:
        """Returns the expression of the private cycles that have passed since `engine.now`.

        For what only the warpgroup itself sees: it needs no `flush`.
        """
        self._parking = None
        return _sum(*self._elapsed())

    def _elapsed(self) -> tuple[str, int]:
        if self._work != NO_WORK:
            self.flush()
        self._cycles = math.ceil(self._cycles)
        return "owed" if self._may_owe else "", self._cycles

    def record(self, recorder: str, tag: str) -> None:
        """Records an event that only the warpgroup sees, so its time need not pass in the simulation yet.

        Args:
          recorder: expression of a function as `mgpu.sim.recorder.Recorder.record`.
          tag: expression of the event's first word.
        """
        owed, cycles = self._elapsed()
        if recorder != self._recorder:
            self.hand_over_events()
        self._recorder = recorder
        self._leads.append(cycles)
        self._events.append((tag, owed, cycles))

    def hand_over_events(self) -> None:
        """Emits one call for the events since time last moved on: each call costs as much as storing an event."""
        if self._events:
            events, self._events = self._events, []
            self._parking = None  # these times count from the wait's end
            words = ", ".join(f"{tag}, {_sum('engine.now', owed, cycles)}" for tag, owed, cycles in events)
            self.line(f"{self._recorder}([{words}])")

    def flush(self) -> None:
        """Emits what spends the costs so far: from here on, the warpgroup's time is `engine.now`."""
        cycles, lead = self._take_cycles()
        if self._parking and cycles:
            self._sleep_on(cycles, lead or 0)
        elif not self._may_owe:
            if cycles:
                self.line(f"yield {cycles}, {lead}" if lead else f"yield {cycles}")
        elif lead is None:
            if cycles:
                self.line(f"owed += {cycles}")
            self.line("if owed: yield owed, lead; owed = lead = 0")
        else:
            self.line(f"yield owed + {cycles}, {_sum('owed', lead)}")
            self.line("owed = lead = 0")
        self._parking = None
        self._may_owe = False
        if self._work != NO_WORK:
            self._chain_cycles = max(self._chain_cycles, self._least_cycles(self._work))
            if self._compute_scale != 1:
                self._work = Work(*(math.ceil(amount * self._compute_scale) for amount in self._work))
                self._chain_cycles = math.ceil(self._chain_cycles * self._compute_scale)
            done = f"run_work(engine.now, {self.constant(self._work)}) - engine.now"
            self.line(f"yield max({done}, {self._chain_cycles})" if self._chain_cycles else f"yield {done}")
            self._work = NO_WORK
        self._ready_after.clear()
        self._chain_cycles = 0

    def wait(self, call: str) -> None:
        """Emits a wait for the warpgroup's own asynchronous work: nobody else sees it, so it is owed like a cost.

        Args:
          call: expression of how many cycles the wait takes from `owed` cycles after `engine.now`.
        """
        self.settle()
        self.line(f"wait = {call}")
        self.line("if wait: lead = owed; owed += wait")
        self._begin_anew()

    def park(self, barrier: str, parity: str) -> None:
        """Emits the wait for a barrier. Constant costs on both sides of it need no event of their own.

        Args:
          barrier: expression of the mbarrier.
          parity: expression of the phase's parity.
        """
        self.settle()
        self.line(f"if not {barrier}.wait(process, {parity}, owed): yield None; owed = lead = 0")
        self._begin_anew()
        self._parking = len(self._lines) - 1, barrier, parity

    def _sleep_on(self, cycles: int, lead: int) -> None:
        """Joins a sleep with the wait for a barrier before it: the lines in between run when both are over.

        Args:
          cycles: of the sleep.
          lead: those from its begin to the last event recorded before its end.
        """
        assert self._parking is not None
        line, barrier, parity = self._parking
        indent = " " * (len(self._lines[line]) - len(self._lines[line].lstrip()))
        sleeps = f"{barrier}.wait(process, {parity}, owed, {cycles}, {lead})"
        self._lines[line] = (
            f"{indent}yield (owed + {cycles}, {_sum('owed', lead)}) if {sleeps} else None; owed = lead = 0"
        )
        self._events = [(tag, "", time - cycles) for tag, _, time in self._events]

    def _begin_anew(self) -> None:
        """Notes that a wait has ended: what follows is a sleep of its own."""
        self._leads, self._has_waited = [0], True
        self._ready_after.clear()
        self._chain_cycles = 0

    def settle(self) -> None:
        """Moves private cycles into the run-time debt `owed`, for borders of control flow."""
        # Where a wait just ended, a sleep would begin; but in another block it could not be told from the wait's own.
        if self._work != NO_WORK or (self._has_waited and not self._cycles):
            self.flush()
        cycles, lead = self._take_cycles()
        if cycles:
            if lead is not None and (lead or self._may_owe):
                self.line(f"lead = {_sum('owed' if self._may_owe else '', lead)}")
            self.line(f"owed += {cycles}")
        self._may_owe = True
        self._parking = None

    def _take_cycles(self) -> tuple[int, int | None]:
        """Returns the private cycles to spend, and those of them up to the last event recorded before their end.

        Order among equal times is that of scheduling. The engine takes a sleep as scheduled at that event, as if it had
        ended a sleep of its own: so recording events does not change the order. None means what `settle` noted.
        """
        cycles, self._cycles, self._has_waited = math.ceil(self._cycles), 0.0, False
        leads, self._leads = [lead for lead in self._leads if lead < cycles], []
        return cycles, leads[-1] if leads else None

    def text(self, name: str, arguments: str) -> str:
        """Returns the whole function definition; `source_of` takes its line numbers."""
        body = "\n".join("    " + line for line in (*self._prologue, *self._lines))
        return f"def {name}({arguments}):\n{body}\n"

    def source_of(self, line: int) -> SourceLine:
        """Returns the user's line behind line number `line` (from 1) of the text."""
        index = line - 2 - len(self._prologue)
        return self.sources[index] if 0 <= index < len(self.sources) else self.source


def _sum(*terms: str | int) -> str:
    """Returns the expression of a sum; empty names and zeros are left out."""
    return " + ".join(str(term) for term in terms if term) or "0"
