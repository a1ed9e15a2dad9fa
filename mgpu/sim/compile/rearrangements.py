"""Arrays in registers, continued: slices at run-time offsets, prefix operations, padding, reversal, splitting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgpu.frontend.regions import Path
from mgpu.sim.compile.context import Context, Local, Rule
from mgpu.sim.compile.costs import work_of
from mgpu.sim.compile.scalars import assign_value
from mgpu.sim.values import carrier_dtype, rounding

_PREFIX: dict[str, Callable[..., Any]] = {
    "cumsum": np.cumsum,
    "cumprod": np.cumprod,
    "cummax": np.maximum.accumulate,
    "cummin": np.minimum.accumulate,
}


def dynamic_slice(array: np.ndarray, starts: tuple[int, ...], sizes: tuple[int, ...]) -> np.ndarray:
    """Returns a slice; an offset that would leave the array is moved back inside, as XLA does."""
    return array[_clamped(array.shape, starts, sizes)]


def dynamic_update_slice(array: np.ndarray, update: np.ndarray, starts: tuple[int, ...]) -> np.ndarray:
    """Returns a copy of `array` with a slice replaced; offsets as of `dynamic_slice`."""
    result = array.copy()
    result[_clamped(array.shape, starts, np.shape(update))] = update
    return result


def _clamped(shape: tuple[int, ...], starts: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[slice, ...]:
    firsts = [min(max(int(start), 0), whole - size) for whole, start, size in zip(shape, starts, sizes, strict=True)]
    return tuple(slice(first, first + size) for first, size in zip(firsts, sizes, strict=True))


def pad(array: np.ndarray, value: Any, config: tuple[tuple[int, int, int], ...]) -> np.ndarray:
    """Pads each dimension by (before, after, between elements); negative amounts cut, as `lax.pad` does."""
    spread = [max(size + (size - 1) * inner, 0) for size, (_, _, inner) in zip(array.shape, config, strict=True)]
    wide = np.full(spread, value, array.dtype)
    wide[tuple(slice(None, None, inner + 1) for _, _, inner in config)] = array
    grown = [(max(low, 0), max(high, 0)) for low, high, _ in config]
    result = np.pad(wide, grown, constant_values=value)
    cut = [slice(max(-low, 0), size - max(-high, 0)) for size, (low, high, _) in zip(result.shape, config, strict=True)]
    return result[tuple(cut)]


def _finish(context: Context, equation: Any, text: str) -> None:
    """Charges one move for each element of the result, and binds it."""
    (out,) = equation.outvars
    aval = equation.invars[0].aval
    context.emitter.spend(work=work_of("select_n", aval, out.aval, approx_math=False))
    context.values[out] = Local(assign_value(context, out, text))


def _starts(context: Context, atoms: Any) -> str:
    return f"({', '.join(context.expression(atom) for atom in atoms)},)"


def _dynamic_slice(context: Context, equation: Any, path: Path) -> None:
    function = context.emitter.constant(dynamic_slice)
    array, *starts = equation.invars
    sizes = tuple(int(size) for size in equation.params["slice_sizes"])
    _finish(context, equation, f"{function}({context.expression(array)}, {_starts(context, starts)}, {sizes})")


def _dynamic_update_slice(context: Context, equation: Any, path: Path) -> None:
    function = context.emitter.constant(dynamic_update_slice)
    array, update, *starts = equation.invars
    texts = f"{context.expression(array)}, {context.expression(update)}"
    _finish(context, equation, f"{function}({texts}, {_starts(context, starts)})")


def _prefix(context: Context, equation: Any, path: Path) -> None:
    params, dtype = equation.params, equation.outvars[0].aval.dtype
    accumulate, axis, carrier = _PREFIX[equation.primitive.name], int(params["axis"]), carrier_dtype(dtype)
    round_values = rounding(dtype)

    def run(array: np.ndarray) -> np.ndarray:
        ordered = np.flip(array, axis) if params["reverse"] else array
        result = accumulate(ordered, axis=axis).astype(carrier, copy=False)
        result = result if round_values is None else round_values(result)
        return np.flip(result, axis) if params["reverse"] else result

    _finish(context, equation, f"{context.emitter.constant(run)}({context.expression(equation.invars[0])})")


def _rev(context: Context, equation: Any, path: Path) -> None:
    axes = tuple(int(axis) for axis in equation.params["dimensions"])
    _finish(context, equation, f"{context.emitter.constant(np.flip)}({context.expression(equation.invars[0])}, {axes})")


def _pad(context: Context, equation: Any, path: Path) -> None:
    config = tuple(tuple(int(amount) for amount in entry) for entry in equation.params["padding_config"])
    array, value = (context.expression(atom) for atom in equation.invars)
    _finish(context, equation, f"{context.emitter.constant(pad)}({array}, {value}, {config})")


def _split(context: Context, equation: Any, path: Path) -> None:
    axis, begin = int(equation.params["axis"]), 0
    array = context.expression(equation.invars[0])
    for out, size in zip(equation.outvars, equation.params["sizes"], strict=True):
        index = f"{':, ' * axis}{begin}:{begin + int(size)}"
        context.values[out] = Local(assign_value(context, out, f"{array}[{index}]"))
        begin += int(size)


def _unstack(context: Context, equation: Any, path: Path) -> None:
    array, before = context.expression(equation.invars[0]), ":, " * int(equation.params["axis"])
    for number, out in enumerate(equation.outvars):
        context.values[out] = Local(assign_value(context, out, f"{array}[{before}{number}]"))


def _dot_general(context: Context, equation: Any, path: Path) -> None:
    raise context.unsupported(
        "a matrix product of arrays in registers (dot_general)",
        "The tensor core reads SMEM: store b to SMEM, commit_smem(), and use wgmma with an ACC.",
    )


RULES: dict[str, Rule] = {
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    **dict.fromkeys(_PREFIX, _prefix),
    "rev": _rev,
    "pad": _pad,
    "split": _split,
    "unstack": _unstack,
    "dot_general": _dot_general,
}
