"""Operations that leave values as they are: layout casts, barriers to the optimiser, printing."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

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


def _optimization_barrier(context: Context, equation: Any, path: Path) -> None:
    for out, atom in zip(equation.outvars, equation.invars, strict=True):
        context.values[out] = context.read(atom)


def _debug_print(context: Context, equation: Any, path: Path) -> None:
    """Prints once for each warpgroup (or warp) that gets here, in the order of simulated time."""
    emitter, params = context.emitter, equation.params
    emitter.flush()
    values = ", ".join(context.expression(atom) for atom in equation.invars)
    text = emitter.constant(print_text(str(params["fmt"]), len(equation.invars)), "print")
    emitter.line(f"{text}({values})")


def print_text(fmt: str, num_values: int) -> Any:
    """Returns a function that prints values by a format string; values without a placeholder come after the text."""
    has_placeholders = "{" in fmt

    def show(*values: Any) -> None:
        shown = [np.asarray(value) if getattr(value, "shape", ()) else value for value in values]
        text = fmt.format(*shown) if has_placeholders else " ".join([fmt, *map(str, shown)])
        print(text, flush=True)

    del num_values
    return show


def _inline_mgpu(context: Context, equation: Any, path: Path) -> None:
    raise context.unsupported(
        "inline_mgpu (IR of the GPU's compiler)",
        "Write this step with the language's own operations (loads, stores, arithmetic, copies), or run the kernel on "
        "a GPU.",
    )


RULES: dict[str, Rule] = {
    "inline_mgpu": _inline_mgpu,
    "layout_cast": _layout_cast,
    "optimization_barrier": _optimization_barrier,
    "debug_print": _debug_print,
}
