"""Values of a tensor-core operation: `acc += a @ b` on carriers, for each pair of operand and accumulator types.

Products are exact and sums are in float32 (in another order than the hardware's, which is not documented); integer
operands are summed exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgpu.sim.values import rounding, to_carrier

MatmulFunction = Callable[[np.ndarray, np.ndarray, np.ndarray], None]

# tf32 keeps 10 of float32's 23 mantissa bits; the tensor core ignores the rest (PTX ISA, wgmma operand formats).
_TF32_MASK = np.uint32(0xFFFFE000)


def matmul_function(operand_dtype: Any, acc_dtype: Any, *, from_bytes: bool = False) -> MatmulFunction:
    """Returns a function (acc, a, b) that adds `a @ b` to `acc` in place, all in their carriers.

    Args:
      operand_dtype: element type of a and b.
      acc_dtype: element type of acc.
      from_bytes: whether a or b may come in its own dtype instead of its carrier.
    """
    multiply = _matmul_of_carriers(operand_dtype, acc_dtype)
    if not from_bytes:
        return multiply

    def convert_and_multiply(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        multiply(acc, to_carrier(a), to_carrier(b))

    return convert_and_multiply


def _matmul_of_carriers(operand_dtype: Any, acc_dtype: Any) -> MatmulFunction:
    operand = np.dtype(operand_dtype)
    if operand.kind in "iu":
        return _add_integer_product
    if operand == np.float32:
        return _add_tf32_product
    round_values = rounding(acc_dtype)
    if round_values is None:
        return add_product

    def add_rounded(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
        acc[...] = round_values(acc + a @ b)

    return add_rounded


def add_product(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Adds a product of float32 carriers."""
    acc += a @ b


def _add_tf32_product(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    acc += _to_tf32(a) @ _to_tf32(b)


def _to_tf32(x: np.ndarray) -> np.ndarray:
    return (np.ascontiguousarray(x).view(np.uint32) & _TF32_MASK).view(np.float32)


def _add_integer_product(acc: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    # float64 sums of 8-bit products are exact and use BLAS, which integer matmul does not.
    product = a.astype(np.float64) @ b.astype(np.float64)
    acc += product.astype(np.int64).astype(acc.dtype)
