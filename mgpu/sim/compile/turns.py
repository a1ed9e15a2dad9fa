"""Telling which turn of its outermost loop a warpgroup is in, for those who watch a long simulation.

A persistent kernel has as many CTAs as SMs, all of which run to the end: only their loops show how far they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgpu.sim.compile.context import Context, Known, Local


def note_scan_turn(context: Context, counter: str, length: int, *, reverse: bool) -> None:
    """Emits which turn of a loop with a known number of turns begins, unless it lies in another loop."""
    if context.loop_depth == 0:
        done = f"{length - 1} - {counter}" if reverse else counter
        context.emitter.line(f"wg.turn = {done}, {length}")


def note_while_turn(context: Context, condition: Any, carried: Sequence[Any]) -> None:
    """Emits which turn of a loop begins that counts up to a bound, unless it lies in another loop.

    Args:
      context: what is being compiled.
      condition: the jaxpr of the loop's condition; only `counter < bound` is understood.
      carried: the condition's variables for what the loop carries.
    """
    if context.loop_depth or len(condition.eqns) != 1 or condition.eqns[0].primitive.name != "lt":
        return
    counter, bound = condition.eqns[0].invars
    if any(counter is variable for variable in carried):
        values = [context.read(atom) for atom in (counter, bound)]
        if all(isinstance(value, (Known, Local)) for value in values):
            context.emitter.line(f"wg.turn = {', '.join(map(context.expression, values))}")
