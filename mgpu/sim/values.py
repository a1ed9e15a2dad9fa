"""Tile values: how elements of each dtype are carried in NumPy, and exact rounding between them.

Narrow floats (f16, bf16, fp8) are **carried** as float32 arrays that hold exactly representable values: NumPy has fast
float32 arithmetic and no fast narrow one. Arithmetic whose result type is narrow is done in float32 and rounded once;
for add, subtract, multiply, divide and square root that equals the correctly rounded narrow operation, because
24 bits >= 2*11 + 2 (Figueroa, "When is double rounding innocuous?", SIGNUM Newsletter 30(3), 1995).
Everything else is carried in its own dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from mgpu.sim.float16 import float16_to_float32, float32_to_float16, round_float16

_NARROW_FLOATS = frozenset(
    np.dtype(dtype)
    for dtype in (
        np.float16,
        ml_dtypes.bfloat16,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3,
        ml_dtypes.float8_e8m0fnu,
    )
)
_FLOAT32_EXPONENT = np.uint32(0x7F800000)


def is_narrow_float(dtype: Any) -> bool:
    """True if `dtype` is a float type that float32 carries."""
    return np.dtype(dtype) in _NARROW_FLOATS


def carrier_dtype(dtype: Any) -> np.dtype:
    """Returns the dtype of the NumPy arrays that carry elements of `dtype`."""
    return np.dtype(np.float32) if is_narrow_float(dtype) else np.dtype(dtype)


def to_carrier(array: np.ndarray) -> np.ndarray:
    """Returns the values of an array of a program's dtype in its carrier; a copy only if the dtype differs."""
    if array.dtype == np.dtype(ml_dtypes.bfloat16):
        bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32)
        bits <<= np.uint32(16)
        return bits.view(np.float32)
    if array.dtype == np.float16:
        return float16_to_float32(array)
    return array.astype(carrier_dtype(array.dtype), copy=False)


def from_carrier(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Returns carried values (exactly representable in `dtype`) as an array of `dtype`."""
    dtype = np.dtype(dtype)
    if dtype == np.dtype(ml_dtypes.bfloat16):
        high_half = np.ascontiguousarray(array).view(np.uint32) >> np.uint32(16)
        return high_half.astype(np.uint16).view(dtype)
    if dtype == np.float16 and array.dtype == np.float32:
        return float32_to_float16(array)
    return array.astype(dtype, copy=False)


def round_bfloat16(array: np.ndarray) -> np.ndarray:
    """Rounds float32 to the nearest bfloat16, ties to even; the result is carried in float32."""
    array = np.ascontiguousarray(array, dtype=np.float32)
    bits = array.view(np.uint32)
    rounded = bits >> np.uint32(16)
    rounded &= np.uint32(1)
    rounded += np.uint32(0x7FFF)
    rounded += bits
    rounded &= np.uint32(0xFFFF0000)
    result = rounded.view(np.float32)
    # The carry of a NaN's payload could turn it into infinity or zero.
    special = (bits & _FLOAT32_EXPONENT) == _FLOAT32_EXPONENT
    if special.any():
        result[special] = array[special].astype(ml_dtypes.bfloat16).astype(np.float32)
    return result


def _round_by_cast(dtype: np.dtype) -> Callable[[np.ndarray], np.ndarray]:
    def round_values(array: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):  # overflow to infinity is what the hardware does
            return np.asarray(array).astype(dtype).astype(np.float32)

    return round_values


_ROUNDING = {"bfloat16": round_bfloat16, "float16": round_float16}


def rounding(dtype: Any) -> Callable[[np.ndarray], np.ndarray] | None:
    """Returns the function that rounds float32 carriers to `dtype`, or None if `dtype` needs none."""
    if not is_narrow_float(dtype):
        return None
    dtype = np.dtype(dtype)
    return _ROUNDING.get(dtype.name) or _round_by_cast(dtype)


def convert(array: Any, source: Any, target: Any) -> np.ndarray:
    """Converts carried values from one program dtype to another, as XLA's ConvertElementType does.

    Floats become integers by truncation toward zero, saturating; NaN becomes 0.
    """
    source, target = np.dtype(source), np.dtype(target)
    values = np.asarray(array)
    round_values = rounding(target)
    if round_values is not None:
        return round_values(values.astype(np.float32, copy=False))
    if target.kind in "iu" and (source.kind == "f" or is_narrow_float(source)):
        return _saturate(values, target)
    return values.astype(carrier_dtype(target), copy=False)


def _saturate(values: np.ndarray, target: np.dtype) -> np.ndarray:
    limits = np.iinfo(target)
    wide = np.nan_to_num(
        np.trunc(values.astype(np.float64)), nan=0.0, posinf=float(limits.max), neginf=float(limits.min)
    )
    result = wide.clip(float(limits.min), float(limits.max))
    # float64 rounds the largest 64-bit integers up past the limit.
    return np.where(result >= float(limits.max), limits.max, result.astype(target)).astype(target)


def uninitialised(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Returns a buffer nobody has written: NaN for floats, the least value for integers, so that use of it shows."""
    carrier = carrier_dtype(dtype)
    if carrier.kind == "f":
        return np.full(shape, np.nan, carrier)
    if carrier.kind in "iu":
        return np.full(shape, np.iinfo(carrier).min, carrier)
    return np.zeros(shape, carrier)


def holds_uninitialised(array: np.ndarray) -> bool:
    """True if carried values may stem from a buffer nobody has written: NaN, or integers near the least one.

    Sums with such integers stay near it. Unsigned ones, whose least value is zero, do not show.
    """
    if array.dtype.kind == "i":
        return bool((array < np.iinfo(array.dtype).min // 2).any())
    is_float = array.dtype.kind == "f" or is_narrow_float(array.dtype)
    return is_float and bool(np.isnan(array).any())
