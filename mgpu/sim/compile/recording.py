"""Recording an event from generated code, and what most rules of the language's operations begin with."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from mgpu.capture import pack_tag
from mgpu.frontend.regions import Path
from mgpu.lang.primitive import unflatten_operands
from mgpu.passes.recorded_loops import RecordedLoop
from mgpu.sim.compile.context import Context
from mgpu.sites import Edge


def operands_of(equation: Any) -> list[Any]:
    """Returns the operands of one of the language's equations: refs as `View`s, values as variables or literals."""
    return unflatten_operands(equation.params["tree"], equation.invars)


def site_of(context: Context, path: Path) -> int:
    """Returns the site of an equation, -1 if it has none."""
    return context.plan.operations.get(path, -1)


def record(context: Context, site: int, edge: Edge, slot: str = "") -> None:
    """Emits the recording of an event. It costs before a begin and after an end: a span excludes its own recording."""
    cycles = context.options.record_cycles
    if cycles is None or site < 0:
        return
    if edge is not Edge.END:
        context.emitter.spend(cycles=cycles)
    tag = pack_tag(site, edge)
    payload = f" | {slot} << 16" if slot else ""
    context.emitter.record(context.record, f"{tag}{payload}")
    if edge is Edge.END:
        context.emitter.spend(cycles=cycles)


class WindowedLoop:
    """A loop of which only some iterations are recorded: the others run alike, and their events go nowhere.

    Make one before the loop; it marks the stretches that are left out, which costs the warpgroup nothing here.

    Args:
      context: the loop's context.
      loop: which iterations are recorded.
    """

    def __init__(self, context: Context, loop: RecordedLoop) -> None:
        self._context = context
        self._loop = loop
        self._outer = context.record
        self._was = context.emitter.assign("True", "was")

    @contextlib.contextmanager
    def iteration(self, counter: str) -> Iterator[None]:
        """Emits the choice at the start of an iteration; what is recorded inside obeys it.

        Args:
          counter: expression of the iteration's number.
        """
        emitter, loop = self._context.emitter, self._loop
        upper = "" if loop.end is None else f" < {loop.end}"
        now = emitter.assign(f"{loop.first} <= {counter}{upper}", "now")
        emitter.line(f"if {now} != {self._was}: {self._mark(now)}; {self._was} = {now}")
        self._context.record = emitter.assign(f"{self._outer} if {now} else skip_event", "record")
        yield
        self._context.record = self._outer

    def close(self) -> None:
        """Emits the end of a stretch that is open when the loop ends."""
        self._context.emitter.line(f"if not {self._was}: {self._mark('True')}")

    def _mark(self, is_recorded: str) -> str:
        site = self._context.plan.unrecorded
        end, begin = pack_tag(site, Edge.END), pack_tag(site, Edge.BEGIN)
        emitter = self._context.emitter
        elapsed = emitter.elapsed()
        emitter.hand_over_events()
        return f"{self._outer}([{end} if {is_recorded} else {begin}, engine.now + {elapsed}])"


def windowed_loop(context: Context, path: Path) -> WindowedLoop | None:
    """Returns what chooses the recorded iterations of the loop at a path; None if all are."""
    loop = context.plan.loops.get(path)
    return None if loop is None or context.options.record_cycles is None else WindowedLoop(context, loop)


def skip_event(_words: list[int]) -> None:
    """Stands for the recorder outside the recorded window."""
