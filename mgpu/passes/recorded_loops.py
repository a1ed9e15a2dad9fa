"""Finds the loops whose iterations a window selects, and what counts their iterations."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend import core as jex_core

from mgpu.errors import ParamsError
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Path, regions_of, walk
from mgpu.jax_internals import scan_split

_BODY = {"scan": 0, "while": 1}  # number of the region that runs once an iteration


@dataclasses.dataclass(frozen=True)
class RecordedLoop:
    """A loop of which some iterations are recorded.

    Attributes:
      level: how many such loops enclose it.
      first, end: its recorded iterations: from `first` up to `end`, which is left out; None: to the last.
      counter: the carried value that counts its iterations, as a number among the carried; None to count turns.
    """

    level: int
    first: int
    end: int | None
    counter: int | None


def find_recorded_loops(
    program: KernelProgram, recorded: Collection[Path], levels: tuple[tuple[int, int | None], ...]
) -> Mapping[Path, RecordedLoop]:
    """Returns the loops to which a window's levels apply, by the path of their equation.

    Args:
      program: a traced kernel.
      recorded: paths of the equations that are sites or stand in scopes. Loops without any count as no level.
      levels: first and end iteration for each level of loops, outermost first (`ProfileWindow.levels`).

    Raises:
      ParamsError: there are fewer levels of loops.
    """
    if not levels:
        return {}
    loops: dict[Path, RecordedLoop] = {}
    deepest = 0
    for step in walk(program):
        name = step.equation.primitive.name
        body = (*step.path, _BODY[name]) if name in _BODY else ()
        if not body or not any(path[: len(body)] == body for path in recorded):
            continue
        level = sum(1 for path in loops if _is_in_body(step.path, path))
        deepest = max(deepest, level + 1)
        # Levels beyond the last are recorded whole: an entry of their own tells that they are loops of that level.
        first, end = levels[level] if level < len(levels) else (0, None)
        loops[step.path] = RecordedLoop(level, first, end, _counter(step.equation))
    if deepest < len(levels):
        found = "no loop" if not deepest else f"loops nested {deepest} deep"
        raise ParamsError(
            f"{program.source} kernel {program.name}: ProfileWindow(iterations=) has {len(levels)} levels, the "
            f"recorded code of the kernel has {found}. Give one range for each level, outermost first, or none."
        )
    return {path: loop for path, loop in loops.items() if loop.level < len(levels)}


def _is_in_body(path: Path, loop: Path) -> bool:
    return len(path) > len(loop) + 1 and path[: len(loop)] == loop


def body_region(equation: Any) -> int:
    """Returns the number of the region of a loop's equation that runs once an iteration."""
    return _BODY[equation.primitive.name]


def carried_variables(equation: Any) -> tuple[Sequence[Any], Sequence[Any]]:
    """Returns what a loop's body carries: its variables at the start of an iteration, and what they are at its end."""
    body = regions_of(equation)[body_region(equation)].jaxpr
    if equation.primitive.name == "scan":
        consts, carry, _ = scan_split(equation.params, equation.invars)
        return body.invars[len(consts) : len(consts) + len(carry)], body.outvars[: len(carry)]
    return body.invars[len(body.invars) - len(equation.outvars) :], body.outvars


def _counter(equation: Any) -> int | None:
    """Returns which carried value of a loop is its counter: the first integer that every turn increases by one."""
    body = regions_of(equation)[body_region(equation)].jaxpr
    increments = {
        eqn.outvars[0]: eqn.invars[0] for eqn in body.eqns if eqn.primitive.name == "add" and _is_one(eqn.invars[1])
    }
    for number, (var, out) in enumerate(zip(*carried_variables(equation), strict=True)):
        is_scalar = not var.aval.shape and np.issubdtype(var.aval.dtype, np.integer)
        if is_scalar and not isinstance(out, jex_core.Literal) and increments.get(out) is var:
            return number
    return None


def _is_one(atom: Any) -> bool:
    return isinstance(atom, jex_core.Literal) and np.ndim(atom.val) == 0 and atom.val == 1
