"""Operations that leave values as they are: layout casts, barriers to the optimiser, shardings, printing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mgpu.errors import SimulationError
from mgpu.frontend.regions import Path
from mgpu.lang.layouts import is_fragment_layout
from mgpu.sim.compile.context import Context, Local, Rule
from mgpu.sim.compile.recording import operands_of


def _layout_cast(context: Context, equation: Any, path: Path) -> None:
    (atom,) = operands_of(equation)
    value = context.read(atom)
    if isinstance(value, Local):
        value = dataclasses.replace(value, is_fragment=is_fragment_layout(equation.params["layout"]))
    context.values[equation.outvars[0]] = value


def _pass_on(context: Context, equation: Any, path: Path) -> None:
    for out, atom in zip(equation.outvars, equation.invars, strict=True):
        context.values[out] = context.read(atom)


def _debug_print(context: Context, equation: Any, path: Path) -> None:
    """Prints once for each warpgroup (or warp) that gets here, in the order of simulated time."""
    emitter, params = context.emitter, equation.params
    emitter.flush()
    values = ", ".join(context.expression(atom) for atom in equation.invars)
    text = emitter.constant(print_text(str(params["fmt"])), "print")
    emitter.line(f"{text}({values})")


def print_text(fmt: str) -> Callable[..., None]:
    """Returns a function that prints values by a format string, and an array element by element, as on the device.

    Values without a placeholder come after the text.
    """

    def show(*values: Any) -> None:
        if len(values) == 1 and getattr(values[0], "shape", ()):
            elements = np.asarray(values[0])
            lines = [text(f"{list(index)}: {elements[index]}") for index in np.ndindex(elements.shape)]
            print("\n".join(lines), flush=True)
        else:
            print(text(*values), flush=True)

    def text(*values: Any) -> str:
        return fmt.format(*values) if "{" in fmt else " ".join([fmt, *map(str, values)])

    return show


def _check(context: Context, equation: Any, path: Path) -> None:
    """Stops the run where a `pl.debug_check` fails. Takes no time: on the device it costs when checks are enabled."""
    context.emitter.flush()
    leaves = [context.expression(atom) for atom in equation.invars]  # of JAX's error: whether it occurred comes first
    fail = context.emitter.constant(_failure(equation.params["err_tree"]), "fail")
    context.emitter.line(f"if {leaves[0]}: {fail}({', '.join(leaves)})")


def _failure(tree: Any) -> Callable[..., None]:
    def fail(*leaves: Any) -> None:
        raise SimulationError(str(jax.tree.unflatten(tree, leaves).get()))

    return fail


def _print_layout(context: Context, equation: Any, path: Path) -> None:
    """Takes no time: the layouts pass has printed it."""


RULES: dict[str, Rule] = {
    "layout_cast": _layout_cast,
    "optimization_barrier": _pass_on,
    # A kernel runs on one device: jax.numpy says how its results are sharded where a mesh has explicit axes.
    "reshard": _pass_on,
    "sharding_constraint": _pass_on,
    "debug_print": _debug_print,
    "check": _check,
    "print_layout": _print_layout,
}
