"""Values of the 32 lanes of a warp: 64 bits for each lane, looked at as the types of PTX."""

from __future__ import annotations

import ml_dtypes
import numpy as np

LANES = 32
FULL = np.ones(LANES, bool)

_TYPES = {
    **{f"{letter}{bits}": np.dtype(f"<u{bits // 8}") for letter in "bu" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": np.dtype(f"<i{bits // 8}") for bits in (8, 16, 32, 64)},
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype("<f4"),
    "f64": np.dtype("<f8"),
}


def dtype_of(name: str) -> np.dtype:
    """Returns the NumPy type of a PTX type such as "u32"."""
    return _TYPES[name]


def is_type(name: str) -> bool:
    """True for the name of a scalar type."""
    return name in _TYPES


def typed(bits: np.ndarray, name: str) -> np.ndarray:
    """Looks at the low bits of uint64 values as a type."""
    dtype = _TYPES[name]
    return bits.astype(np.dtype(f"<u{dtype.itemsize}")).view(dtype)


def untyped(values: np.ndarray, name: str) -> np.ndarray:
    """Returns the bits of values of a type, as uint64; the values are converted to the type first."""
    dtype = _TYPES[name]
    if values.dtype == bool:
        values = values.astype(np.uint8)
    return np.ascontiguousarray(values.astype(dtype)).view(np.dtype(f"<u{dtype.itemsize}")).astype(np.uint64)
