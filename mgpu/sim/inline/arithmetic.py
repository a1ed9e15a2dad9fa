"""What the operations on numbers do: functions of NumPy arrays whose first dimension is the lane."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mgpu.errors import Unsupported
from mgpu.frontend.inline_code import Step

Operation = Callable[..., Any]


def _unsigned(array: np.ndarray) -> np.ndarray:
    return array.view(np.dtype(f"u{array.dtype.itemsize}")) if array.dtype.kind == "i" else array


def _as_signless(apply: Operation) -> Operation:
    """Makes an operation of unsigned numbers one of the IR's integers, which have no sign of their own."""

    def run(step: Step, *operands: np.ndarray) -> np.ndarray:
        result = apply(*map(_unsigned, operands))
        return result.astype(operands[0].dtype, copy=False)

    return run


def _plain(apply: Operation) -> Operation:
    return lambda step, *operands: apply(*operands)


def _divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Divides toward zero; what the hardware makes of a division by zero is not specified, and is 0 here."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    quotient = np.where(b == 0, 0, np.abs(a) // np.abs(safe) * np.sign(a) * np.sign(safe))
    return quotient.astype(a.dtype)


def _remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a - _divide(a, b) * b).astype(a.dtype)


_COMPARE = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)


def _compare_integers(step: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    predicate = step.attributes["predicate"]  # eq, ne, then lt, le, gt, ge: signed, then unsigned
    if predicate < len(_COMPARE):
        return _COMPARE[predicate](a, b)
    return _COMPARE[predicate - 4](_unsigned(a), _unsigned(b))


def _compare_floats(step: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    # false, ordered eq gt ge lt le ne ord, unordered eq gt ge lt le ne uno, true (the IR's numbering)
    predicate = step.attributes["predicate"]
    unordered = np.isnan(a) | np.isnan(b)
    if predicate in (0, 15):
        return np.full(unordered.shape, predicate == 15)
    if predicate in (7, 14):
        return unordered if predicate == 14 else ~unordered
    compare = (operator.eq, operator.gt, operator.ge, operator.lt, operator.le, operator.ne)[(predicate - 1) % 7]
    return compare(a, b) | unordered if predicate > 7 else compare(a, b) & ~unordered


def _constant(step: Step) -> np.ndarray:
    kind = step.types[0]
    value = np.asarray(step.attributes["value"])
    if kind.dtype is not None and kind.dtype.kind in "iu":
        value = value.astype(np.int64)
    return np.broadcast_to(value.astype(kind.dtype), (1, *kind.shape))


def _convert(step: Step, operand: np.ndarray) -> np.ndarray:
    dtype = step.types[0].dtype
    if step.name == "arith.trunci" and dtype == np.bool_:
        return (operand & 1).astype(np.bool_)
    if step.name == "arith.extsi" and operand.dtype == np.bool_:
        return -operand.astype(dtype)  # a bit of its own is the sign
    return operand.astype(dtype)


def _widen_unsigned(step: Step, operand: np.ndarray) -> np.ndarray:
    return _unsigned(operand).astype(step.types[0].dtype)


def _to_integer(step: Step, operand: np.ndarray) -> np.ndarray:
    kind = np.iinfo(step.types[0].dtype)
    return np.nan_to_num(np.trunc(operand.astype(np.float64))).clip(kind.min, kind.max).astype(kind.dtype)


def _bitcast(step: Step, operand: np.ndarray) -> np.ndarray:
    kind = step.types[0]
    array = np.ascontiguousarray(operand)
    if array.dtype.itemsize == kind.dtype.itemsize:
        return array.view(kind.dtype)
    return array.view(kind.dtype).reshape(len(array), *kind.shape)


def _shift(apply: Operation) -> Operation:
    def run(step: Step, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        shifted = apply(a, np.minimum(_unsigned(b), 8 * a.dtype.itemsize - 1).astype(a.dtype))
        return shifted.astype(a.dtype, copy=False)

    return run


def _fused(step: Step, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    if a.dtype.itemsize > 4:
        return a * b + c
    # The product of two float32 is exact in float64, so only the sum is rounded before the result is.
    return (a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)).astype(a.dtype)


def _ignoring_nan(apply: Operation) -> Operation:
    return lambda step, a, b: np.where(np.isnan(a), b, np.where(np.isnan(b), a, apply(a, b)))


def _function(apply: Operation) -> Operation:
    def run(step: Step, operand: np.ndarray) -> np.ndarray:
        wide = operand if operand.dtype.itemsize > 4 else operand.astype(np.float32)
        return apply(wide).astype(operand.dtype, copy=False)

    return run


def _position(step: Step, dynamic: tuple[np.ndarray, ...]) -> tuple[Any, ...]:
    if dynamic:
        raise Unsupported(
            "inline_mgpu: an element of a vector at a position that is not a constant. Make it one, or load from a ref."
        )
    return tuple(step.attributes["static_position"])


def _extract(step: Step, vector: np.ndarray, *dynamic: np.ndarray) -> np.ndarray:
    return vector[(slice(None), *_position(step, dynamic))]


def _insert(step: Step, value: np.ndarray, vector: np.ndarray, *dynamic: np.ndarray) -> np.ndarray:
    lanes = max(len(value), len(vector))
    result = np.array(np.broadcast_to(vector, (lanes, *vector.shape[1:])))
    result[(slice(None), *_position(step, dynamic))] = value
    return result


def _broadcast(step: Step, operand: np.ndarray) -> np.ndarray:
    shape = step.types[0].shape
    padded = operand.reshape(len(operand), *[1] * (len(shape) - operand.ndim + 1), *operand.shape[1:])
    return np.broadcast_to(padded, (len(operand), *shape))


def _from_elements(step: Step, *operands: np.ndarray) -> np.ndarray:
    return np.stack(np.broadcast_arrays(*operands), axis=-1).reshape(-1, *step.types[0].shape)


def _reshape(step: Step, operand: np.ndarray) -> np.ndarray:
    return operand.reshape(len(operand), *step.types[0].shape)


_BINARY: Mapping[str, Operation] = {
    **dict.fromkeys(("addf", "addi"), operator.add),
    **dict.fromkeys(("subf", "subi"), operator.sub),
    **dict.fromkeys(("mulf", "muli"), operator.mul),
    "divf": operator.truediv,
    "divsi": _divide,
    "remsi": _remainder,
    "andi": operator.and_,
    "ori": operator.or_,
    "xori": operator.xor,
    "maximumf": np.maximum,
    "minimumf": np.minimum,
    "maxsi": np.maximum,
    "minsi": np.minimum,
}

OPERATIONS: Mapping[str, Operation] = {
    **{f"arith.{name}": _plain(apply) for name, apply in _BINARY.items()},
    "arith.constant": _constant,
    "arith.divui": _as_signless(lambda a, b: np.where(b == 0, 0, a // np.where(b == 0, 1, b)).astype(a.dtype)),
    "arith.remui": _as_signless(lambda a, b: np.where(b == 0, 0, a % np.where(b == 0, 1, b)).astype(a.dtype)),
    "arith.maxui": _as_signless(np.maximum),
    "arith.minui": _as_signless(np.minimum),
    "arith.shli": _shift(operator.lshift),
    "arith.shrsi": _shift(operator.rshift),
    "arith.shrui": _shift(lambda a, b: _unsigned(a) >> _unsigned(b)),
    "arith.maxnumf": _ignoring_nan(np.maximum),
    "arith.minnumf": _ignoring_nan(np.minimum),
    "arith.negf": _plain(operator.neg),
    "arith.cmpi": _compare_integers,
    "arith.cmpf": _compare_floats,
    "arith.select": lambda step, c, a, b: np.where(c.reshape(*c.shape, *[1] * (a.ndim - c.ndim)), a, b),
    **dict.fromkeys(
        ("arith.index_cast", "arith.extsi", "arith.trunci", "arith.extf", "arith.truncf", "arith.sitofp"), _convert
    ),
    **dict.fromkeys(("arith.index_castui", "arith.extui", "arith.uitofp"), _widen_unsigned),
    **dict.fromkeys(("arith.fptosi", "arith.fptoui"), _to_integer),
    **dict.fromkeys(("arith.bitcast", "vector.bitcast"), _bitcast),
    "math.fma": _fused,
    "math.absf": _plain(np.abs),
    "math.absi": _plain(np.abs),
    "math.exp": _function(np.exp),
    "math.exp2": _function(np.exp2),
    "math.log": _function(np.log),
    "math.log2": _function(np.log2),
    "math.sqrt": _function(np.sqrt),
    "math.rsqrt": _function(lambda x: 1 / np.sqrt(x)),
    "math.tanh": _function(np.tanh),
    "math.sin": _function(np.sin),
    "math.cos": _function(np.cos),
    "vector.extract": _extract,
    "vector.insert": _insert,
    "vector.broadcast": _broadcast,
    "vector.splat": _broadcast,
    "vector.from_elements": _from_elements,
    "vector.shape_cast": _reshape,
    "llvm.add": _plain(operator.add),
    "llvm.mul": _plain(operator.mul),
    "llvm.sub": _plain(operator.sub),
    "llvm.mlir.constant": _constant,
}
"""For the operation, what computes its result from the step and its operands."""
