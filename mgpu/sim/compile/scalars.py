"""Scalar integer and boolean arithmetic: Python numbers, folded when known.

Integers wrap around as the hardware's do. Wrapping costs time, so it is left out where a literal operand is too small
to reach it from an index. Division by zero sets all bits instead of raising an error, as XLA defines it: kernels
compute both sides of a select.

Index arithmetic takes no time. The compiler hoists it out of loops, turns products into running sums and issues the
rest on the uniform datapath beside the warp's other instructions; how an index is written down does not decide how
long a kernel takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

from mgpu.sim.compile.context import Context, Known, Local

_SMALL = 1 << 16


def c_divide(a: int, b: int) -> int:
    """Divides integers as C does: truncating toward zero; by zero gives -1."""
    if b == 0:
        return -1
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def c_remainder(a: int, b: int) -> int:
    """Returns the remainder of `c_divide`, which has the sign of `a`; by zero gives `a`."""
    return a - b * c_divide(a, b)


def floor_remainder(a: int, b: int) -> int:
    """Returns the remainder with the sign of `b`, as Python and `jnp.remainder` do; by zero gives `a`."""
    return a % b if b else a


def wrap(value: int, bits: int, signed: bool) -> int:
    """Returns `value` modulo 2**bits, in the signed or unsigned range."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def shift_left(a: int, count: int, bits: int, signed: bool) -> int:
    """Shifts by 0 to `bits` - 1 places; any other count leaves nothing."""
    return wrap(a << count, bits, signed) if 0 <= count < bits else 0


def shift_right_arithmetic(a: int, count: int, bits: int, signed: bool) -> int:
    """Shifts in copies of the highest bit, also of an unsigned number's; any count but 0 to `bits` - 1 leaves these."""
    return wrap(wrap(a, bits, True) >> (count if 0 <= count < bits else bits - 1), bits, signed)


def shift_right_logical(a: int, count: int, bits: int, signed: bool) -> int:
    """Shifts in zeros; any count but 0 to `bits` - 1 leaves nothing."""
    return wrap(wrap(a, bits, False) >> count, bits, signed) if 0 <= count < bits else 0


_SHIFTS: dict[str, Callable[[int, int, int, bool], int]] = {
    "shift_left": shift_left,
    "shift_right_arithmetic": shift_right_arithmetic,
    "shift_right_logical": shift_right_logical,
}
NAMESPACE = {
    "c_divide": c_divide,
    "c_remainder": c_remainder,
    "floor_remainder": floor_remainder,
    "wrap": wrap,
    **_SHIFTS,
}


def _power(a: int, y: int) -> int:
    return a**y


_BINARY: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("{} + {}", lambda a, b: a + b),
    "sub": ("{} - {}", lambda a, b: a - b),
    "mul": ("{} * {}", lambda a, b: a * b),
    "div": ("c_divide({}, {})", c_divide),
    "rem": ("c_remainder({}, {})", c_remainder),
    "max": ("max({}, {})", max),
    "min": ("min({}, {})", min),
    "eq": ("{} == {}", lambda a, b: a == b),
    "ne": ("{} != {}", lambda a, b: a != b),
    "lt": ("{} < {}", lambda a, b: a < b),
    "le": ("{} <= {}", lambda a, b: a <= b),
    "gt": ("{} > {}", lambda a, b: a > b),
    "ge": ("{} >= {}", lambda a, b: a >= b),
    "and": ("{} & {}", lambda a, b: a & b),
    "or": ("{} | {}", lambda a, b: a | b),
    "xor": ("{} ^ {}", lambda a, b: a ^ b),
}
_WRAPPING = ("add", "sub", "mul", "div")


def assign_value(context: Context, out: Any, text: str) -> str:
    """Assigns the value of a variable, given as an array, to a new local and returns its name.

    Integer and boolean scalars become Python numbers. What has no value in this run is not computed.
    """
    if is_integer_scalar(out.aval):
        return context.emitter.assign(f"({text}).item()" if context.has_value(out) else "0")
    return context.emitter.assign(text if context.has_value(out) else "NO_VALUES")


def is_integer_scalar(aval: Any) -> bool:
    """True for scalars that generated code carries as Python ints or bools."""
    return getattr(aval, "shape", None) == () and (aval.dtype == np.bool_ or jnp.issubdtype(aval.dtype, jnp.integer))


def compile_scalar(context: Context, equation: Any) -> bool:
    """Compiles an equation over integer scalars. Returns False if the equation is not one that this file knows."""
    if len(equation.outvars) != 1 or not is_integer_scalar(equation.outvars[0].aval):
        return False
    if not all(is_integer_scalar(atom.aval) for atom in equation.invars):
        return False
    operands = [context.read(atom) for atom in equation.invars]
    out = equation.outvars[0]
    compiled = _compile(context, equation, operands, out.aval.dtype)
    if compiled is None:
        return False
    context.values[out] = compiled
    return True


def _compile(context: Context, equation: Any, operands: list[Any], dtype: Any) -> Known | Local | None:
    name = equation.primitive.name
    if name in _BINARY:
        return _binary(context, name, operands, dtype)
    if name == "convert_element_type":
        return _convert(context, operands[0], equation.invars[0].aval.dtype, dtype)
    if name in _SHIFTS:
        return _shift(context, name, operands, dtype)
    if name == "select_n":
        return _select(context, operands)
    if name == "not":
        return _not(context, operands[0], dtype)
    if name == "neg":
        return _unary(context, operands[0], "-({})", lambda a: -a)
    if name == "sign":
        return _unary(context, operands[0], "({0} > 0) - ({0} < 0)", lambda a: (a > 0) - (a < 0))
    if name == "clamp":
        low, x, high = operands
        return _binary(context, "min", [_binary(context, "max", [x, low], dtype), high], dtype)
    if name == "integer_pow":
        power = equation.params["y"]
        return _unary(context, operands[0], f"wrap(({{}}) ** {power}, {_layout(dtype)})", lambda a: _power(a, power))
    if name in ("copy", "copy_p", "stop_gradient", "reduce_precision", "multiple_of"):
        return operands[0]
    return None


def _not(context: Context, operand: Any, dtype: Any) -> Known | Local:
    if dtype == np.bool_:
        return _unary(context, operand, "not {}", lambda a: not a)
    bits, signed = _bits(dtype)
    if signed:
        return _unary(context, operand, "~{}", lambda a: ~a)
    mask = (1 << bits) - 1
    return _unary(context, operand, f"{{}} ^ {mask}", lambda a: a ^ mask)


def _binary(context: Context, name: str, operands: list[Any], dtype: Any) -> Known | Local:
    template, fold = _BINARY[name]
    wraps = name in _WRAPPING and dtype != np.bool_
    if all(isinstance(x, Known) for x in operands):
        value = fold(*(x.value for x in operands))
        return Known(wrap(value, *_bits(dtype)) if wraps else value)
    text = template.format(*(f"{context.expression(x)}" for x in operands))
    if name in ("div", "rem") and isinstance(operands[1], Known) and operands[1].value > 0:
        # Calls cost: most dividends are indices, for which Python's operators do what C's do.
        value, operator = context.expression(operands[0]), "//" if name == "div" else "%"
        by = operands[1].value
        text = f"{value} {operator} {by} if {value} >= 0 else -(-{value} {operator} {by})"
        wraps = False
    if wraps and not _cannot_overflow(name, operands, dtype):
        text = f"wrap({text}, {_layout(dtype)})"
    return Local(context.emitter.assign(text))


def _cannot_overflow(name: str, operands: list[Any], dtype: Any) -> bool:
    # A tile index is far below 2**31: adding a small literal to it needs no wrapping.
    signed_wide = np.dtype(dtype).kind == "i" and np.dtype(dtype).itemsize >= 4
    small = any(isinstance(x, Known) and abs(x.value) < _SMALL for x in operands)
    return name in ("add", "sub") and signed_wide and small


def _bits(dtype: Any) -> tuple[int, bool]:
    dtype = np.dtype(dtype)
    return dtype.itemsize * 8, dtype.kind == "i"


def _layout(dtype: Any) -> str:
    bits, signed = _bits(dtype)
    return f"{bits}, {signed}"


def _unary(context: Context, operand: Any, template: str, fold: Callable[[Any], Any]) -> Known | Local:
    if isinstance(operand, Known):
        return Known(fold(operand.value))
    return Local(context.emitter.assign(template.format(context.expression(operand))))


def _convert(context: Context, operand: Any, source: Any, dtype: Any) -> Known | Local:
    if dtype == np.bool_:
        return _unary(context, operand, "bool({})", bool)
    if source == np.bool_:
        return _unary(context, operand, "int({})", int)
    bits, signed = _bits(dtype)
    source_bits, source_signed = _bits(source)
    if bits >= source_bits and (signed == source_signed or (signed and bits > source_bits)):
        return operand
    return _unary(context, operand, f"wrap({{}}, {bits}, {signed})", lambda a: wrap(a, bits, signed))


def _shift(context: Context, name: str, operands: list[Any], dtype: Any) -> Known | Local:
    bits, signed = _bits(dtype)
    if all(isinstance(x, Known) for x in operands):
        known, places = (x.value for x in operands)
        return Known(_SHIFTS[name](known, places, bits, signed))
    value, count = (context.expression(x) for x in operands)
    is_inside = isinstance(operands[1], Known) and 0 <= operands[1].value < bits
    if is_inside and signed and name == "shift_right_arithmetic":
        return Local(context.emitter.assign(f"{value} >> {count}"))
    return Local(context.emitter.assign(f"{name}({value}, {count}, {bits}, {signed})"))


def _select(context: Context, operands: list[Any]) -> Known | Local:
    which, *cases = operands
    if isinstance(which, Known):
        return cases[int(which.value)]
    if len(cases) != 2:
        text = f"({', '.join(context.expression(case) for case in cases)})[{context.expression(which)}]"
    else:
        text = f"{context.expression(cases[1])} if {context.expression(which)} else {context.expression(cases[0])}"
    return Local(context.emitter.assign(text))
