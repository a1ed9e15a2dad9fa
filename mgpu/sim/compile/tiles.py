"""Arrays in registers: element-wise arithmetic, conversions, reductions and shape changes, as NumPy calls.

An array value is never changed in place, so views may be shared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special

from mgpu.sim.compile.context import Context, Known, Local
from mgpu.sim.compile.costs import latency_of, work_of
from mgpu.sim.compile.scalars import assign_value
from mgpu.sim.values import carrier_dtype, convert, from_carrier, is_narrow_float, rounding, to_carrier


def _integer_divide(a: Any, b: Any) -> Any:
    a, b = np.broadcast_arrays(a, b)
    safe = np.where(b == 0, np.ones_like(b), b)
    quotient = np.floor_divide(a, safe)
    # Floor and truncation differ by one where signs differ and something remains.
    quotient += ((quotient * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.where(b == 0, np.invert(np.zeros_like(a)), quotient)  # by zero: all bits set, as XLA defines it


def _integer_remainder(a: Any, b: Any) -> Any:
    a, b = np.broadcast_arrays(a, b)
    return np.where(b == 0, a, np.fmod(a, np.where(b == 0, 1, b))).astype(a.dtype)


def _shift_right_arithmetic(a: Any, count: Any) -> Any:
    """Copies the highest bit, also that of an unsigned integer."""
    a, count = np.asarray(a), np.asarray(count)
    if a.dtype.kind != "u":
        return np.right_shift(a, count)
    signed = f"i{a.dtype.itemsize}"
    return np.right_shift(a.view(signed), count.astype(signed)).view(a.dtype)


def _population_count(x: Any) -> Any:
    x = np.asarray(x)
    # NumPy counts the bits of the absolute value.
    return np.bitwise_count(x.view(f"u{x.dtype.itemsize}")).astype(x.dtype)


def _round_away(x: np.ndarray) -> np.ndarray:
    return np.trunc(x + np.copysign(np.asarray(0.5, x.dtype), x))


def _leading_zeros(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x)
    bits = x.dtype.itemsize * 8
    # The exponent of the value as an exact float is the position of its highest bit.
    _, exponent = np.frexp(x.view(f"u{x.dtype.itemsize}").astype(np.longdouble))
    return (bits - exponent).astype(x.dtype)


def _select(which: Any, *cases: Any) -> np.ndarray:
    if len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(which, cases)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "add_any": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "pow": np.power,
    "atan2": np.arctan2,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "floor": np.floor,
    "ceil": np.ceil,
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "logistic": scipy.special.expit,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "cbrt": np.cbrt,
    "erf": scipy.special.erf,
    "erfc": scipy.special.erfc,
    "erf_inv": scipy.special.erfinv,
    "lgamma": scipy.special.gammaln,
    "digamma": scipy.special.digamma,
    "square": np.square,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shift_left": np.left_shift,
    "shift_right_arithmetic": _shift_right_arithmetic,
    "is_finite": np.isfinite,
    "select_n": _select,
    "clamp": lambda low, x, high: np.minimum(np.maximum(x, low), high),
    "nextafter": np.nextafter,
    "population_count": _population_count,
    "clz": _leading_zeros,
    "copy": lambda x: x,
    "copy_p": lambda x: x,
    "stop_gradient": lambda x: x,
}
_REDUCTIONS: dict[str, Callable[..., Any]] = {
    "reduce_sum": np.sum,
    "reduce_max": np.max,
    "reduce_min": np.min,
    "reduce_prod": np.prod,
    "reduce_and": np.all,
    "reduce_or": np.any,
}


def compile_tile(context: Context, equation: Any) -> bool:
    """Compiles an equation over arrays or float scalars. Returns False if it is not one that this file knows."""
    name = equation.primitive.name
    expression = _expression(context, equation, name)
    if expression is None:
        return False
    (out,) = equation.outvars
    arrays = [atom.aval for atom in equation.invars if hasattr(atom.aval, "shape")]
    largest = max(arrays, key=lambda aval: math.prod(aval.shape), default=out.aval)
    by_constant = len(equation.invars) == 2 and isinstance(context.read(equation.invars[1]), Known)
    approx_math = context.program.params.approx_math
    work = work_of(name, largest, out.aval, approx_math=approx_math, by_constant=by_constant)
    if out.aval.shape == () and not arrays:
        context.emitter.spend(cycles=1)
    else:
        context.emitter.spend(work=work)
    local = assign_value(context, out, expression)
    operands = [value for value in map(context.read, equation.invars) if isinstance(value, Local)]
    context.emitter.depend([value.name for value in operands], local, latency_of(name, context.device))
    context.values[out] = Local(local, is_fragment=any(value.is_fragment for value in operands))
    if name in _REDUCTIONS:
        # Element-wise work on a tile flows element by element; a reduction has to be over before its result is used.
        context.emitter.flush()
    return True


def _expression(context: Context, equation: Any, name: str) -> str | None:
    operands = [context.expression(atom) for atom in equation.invars]
    (out,) = equation.outvars if len(equation.outvars) == 1 else (None,)
    if out is None:
        return None
    special = _SPECIAL.get(name)
    if special is not None:
        return special(context, equation, operands)
    if name in _REDUCTIONS:
        axes = tuple(int(axis) for axis in equation.params["axes"])
        call = f"{context.emitter.constant(_REDUCTIONS[name])}({operands[0]}, axis={axes})"
        return _rounded(context, _kept_dtype(call, out.aval), out.aval)
    function = _FUNCTIONS.get(name)
    if function is None:
        return None
    call = f"{context.emitter.constant(function)}({', '.join(operands)})"
    return _rounded(context, call, out.aval)


def _kept_dtype(call: str, aval: Any) -> str:
    # NumPy widens sums of small integers; XLA does not.
    return f"{call}.astype({np.dtype(carrier_dtype(aval.dtype)).name!r}, copy=False)"


def _rounded(context: Context, call: str, aval: Any) -> str:
    round_values = rounding(aval.dtype)
    return call if round_values is None else f"{context.emitter.constant(round_values)}({call})"


def _division(context: Context, equation: Any, operands: list[str]) -> str:
    aval = equation.outvars[0].aval
    is_float = np.dtype(aval.dtype).kind == "f" or is_narrow_float(aval.dtype)
    functions = {
        ("div", True): np.divide,
        ("div", False): _integer_divide,
        ("rem", True): np.fmod,
        ("rem", False): _integer_remainder,
    }
    function = functions[equation.primitive.name, is_float]
    return _rounded(context, f"{context.emitter.constant(function)}({', '.join(operands)})", aval)


def _convert(context: Context, equation: Any, operands: list[str]) -> str:
    source, target = equation.invars[0].aval.dtype, equation.outvars[0].aval.dtype
    if source == target:
        return operands[0]
    dtypes = f"{context.emitter.constant(np.dtype(source))}, {context.emitter.constant(np.dtype(target))}"
    return f"{context.emitter.constant(convert)}({operands[0]}, {dtypes})"


def _bitcast(context: Context, equation: Any, operands: list[str]) -> str:
    source, target = np.dtype(equation.invars[0].aval.dtype), np.dtype(equation.outvars[0].aval.dtype)
    if source.itemsize != target.itemsize:
        raise context.unsupported(
            f"bitcast_convert_type from {source.name} to {target.name}", "Use types of the same size."
        )

    def bitcast(x: Any) -> np.ndarray:
        # A carrier is not the value's bytes: go through the real dtype.
        return to_carrier(from_carrier(np.asarray(x, carrier_dtype(source)), source).view(target))

    return f"{context.emitter.constant(bitcast)}({operands[0]})"


def _broadcast(context: Context, equation: Any, operands: list[str]) -> str:
    shape = tuple(equation.params["shape"])
    dimensions = equation.params["broadcast_dimensions"]
    aval = equation.invars[0].aval
    expanded = [1] * len(shape)
    for axis, dimension in enumerate(dimensions):
        expanded[dimension] = aval.shape[axis]
    dtype = carrier_dtype(aval.dtype).name
    return f"broadcast_to(asarray({operands[0]}, {dtype!r}).reshape({tuple(expanded)}), {shape})"


def _reshape(context: Context, equation: Any, operands: list[str]) -> str:
    return f"asarray({operands[0]}).reshape({tuple(equation.outvars[0].aval.shape)})"


def _transpose(context: Context, equation: Any, operands: list[str]) -> str:
    return f"{operands[0]}.transpose({tuple(equation.params['permutation'])})"


def _slice(context: Context, equation: Any, operands: list[str]) -> str:
    params = equation.params
    strides = params["strides"] or (1,) * len(params["start_indices"])
    parts = [
        f"{start}:{limit}:{stride}" if stride != 1 else f"{start}:{limit}"
        for start, limit, stride in zip(params["start_indices"], params["limit_indices"], strides, strict=True)
    ]
    return f"{operands[0]}[{', '.join(parts)}]"


def _concatenate(context: Context, equation: Any, operands: list[str]) -> str:
    return f"concatenate(({', '.join(operands)},), axis={equation.params['dimension']})"


def _stack(context: Context, equation: Any, operands: list[str]) -> str:
    dtype = carrier_dtype(equation.outvars[0].aval.dtype).name
    return f"stack(({', '.join(operands)},), axis={equation.params['axis']}).astype({dtype!r}, copy=False)"


def _iota(context: Context, equation: Any, operands: list[str]) -> str:
    shape, dimension = tuple(equation.params["shape"]), equation.params["dimension"]
    dtype = carrier_dtype(equation.params["dtype"])
    line = np.arange(shape[dimension], dtype=dtype)
    values = np.broadcast_to(line.reshape([-1 if i == dimension else 1 for i in range(len(shape))]), shape)
    return context.emitter.constant(values)


def _integer_pow(context: Context, equation: Any, operands: list[str]) -> str:
    aval = equation.outvars[0].aval
    return _rounded(context, f"power({operands[0]}, {equation.params['y']})", aval)


def _round(context: Context, equation: Any, operands: list[str]) -> str:
    to_even = int(equation.params["rounding_method"]) == 1
    function = np.rint if to_even else _round_away
    return f"{context.emitter.constant(function)}({operands[0]})"


def _shift_right_logical(context: Context, equation: Any, operands: list[str]) -> str:
    dtype = np.dtype(equation.outvars[0].aval.dtype)
    unsigned = np.dtype(f"u{dtype.itemsize}").name
    count = f"asarray({operands[1]}).astype({unsigned!r})"
    return f"right_shift(asarray({operands[0]}, {dtype.name!r}).view({unsigned!r}), {count}).view({dtype.name!r})"


def _reduce_precision(context: Context, equation: Any, operands: list[str]) -> str:
    params = equation.params
    dtypes = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): None}
    bits = (params["exponent_bits"], params["mantissa_bits"])
    if bits not in dtypes or equation.outvars[0].aval.dtype != np.float32:
        raise context.unsupported(
            f"reduce_precision to {bits[0]} exponent and {bits[1]} mantissa bits", "Use those of bfloat16 or float16."
        )
    name = dtypes[bits]
    round_values = rounding(name) if name else None
    return operands[0] if round_values is None else f"{context.emitter.constant(round_values)}({operands[0]})"


def _argument(context: Context, equation: Any, operands: list[str]) -> str:
    function = {"argmax": "argmax", "argmin": "argmin"}[equation.primitive.name]
    (axis,) = equation.params["axes"]
    dtype = np.dtype(equation.params["index_dtype"]).name
    return f"{function}({operands[0]}, axis={axis}).astype({dtype!r})"


_SPECIAL: dict[str, Callable[[Context, Any, list[str]], str]] = {
    "div": _division,
    "rem": _division,
    "convert_element_type": _convert,
    "bitcast_convert_type": _bitcast,
    "broadcast_in_dim": _broadcast,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "stack": _stack,
    "iota": _iota,
    "integer_pow": _integer_pow,
    "round": _round,
    "shift_right_logical": _shift_right_logical,
    "reduce_precision": _reduce_precision,
    "argmax": _argument,
    "argmin": _argument,
}

NAMESPACE = {
    name: getattr(np, name)
    for name in ("asarray", "broadcast_to", "concatenate", "stack", "power", "right_shift", "argmax", "argmin")
}
