"""Recording an event from generated code, and what most rules of the language's operations begin with."""

from __future__ import annotations

from typing import Any

from mgpu.capture import pack_tag
from mgpu.frontend.regions import Path
from mgpu.lang.primitive import unflatten_operands
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
    # Only the warpgroup itself sees the event, so its time need not pass in the simulation yet.
    elapsed = context.emitter.elapsed()
    context.emitter.line(f"record({tag}{payload}, {elapsed})" if elapsed else f"record({tag}{payload})")
    if edge is Edge.END:
        context.emitter.spend(cycles=cycles)
