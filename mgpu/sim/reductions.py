"""Combining values with what is in memory: TMA reduction stores and atomics."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgpu.sim.values import carrier_dtype, rounding

Combine = Callable[[Any, Any], Any]

_FUNCTIONS: dict[str, Combine] = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "umin": np.minimum,
    "umax": np.maximum,
    "smin": np.minimum,
    "smax": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": lambda old, limit: np.where(old >= limit, 0, old + 1),
    "dec": lambda old, limit: np.where((old == 0) | (old > limit), limit, old - 1),
}


def combine_function(operation: str, dtype: Any) -> Combine:
    """Returns a function (old, value) that combines carried values as memory does, rounded to `dtype`."""
    function, round_values = _FUNCTIONS[operation], rounding(dtype)
    carrier = carrier_dtype(dtype)

    def combine(old: Any, value: Any) -> Any:
        with np.errstate(over="ignore"):  # integers wrap, floats overflow to infinity, as in memory
            result = np.asarray(function(np.asarray(old, carrier), np.asarray(value, carrier)), carrier)
        return result if round_values is None else round_values(result)

    return combine
