"""Reductions of arrays in registers, with the newer language's hint on instruction-level parallelism."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp

from mgpu.jax_internals import hide_from_source_lines
from mgpu.lang.primitive import type_error

hide_from_source_lines(__file__)


def _reduce(
    name: str, function: Callable[..., Any], x: Any, axis: Any, keepdims: bool, accumulator_ilp: int | None
) -> Any:
    if accumulator_ilp is not None and (not isinstance(accumulator_ilp, int) or accumulator_ilp < 1):
        raise type_error(name, f"accumulator_ilp must be a positive integer or None, got {accumulator_ilp!r}.")
    return function(x, axis=axis, keepdims=keepdims)


def sum(  # the name that kernels use, as mgpu.sum
    x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, accumulator_ilp: int | None = None
) -> Any:
    """Returns the sum of an array along axes.

    Args:
      x: array in registers.
      axis: reduced axes; None for all.
      keepdims: keep reduced axes with size 1.
      accumulator_ilp: independent partial results per lane. Hides latency on the device; the simulator charges
        throughput, which it does not change.

    Raises:
      KernelTypeError: `accumulator_ilp` is not positive.
    """
    return _reduce("sum", jnp.sum, x, axis, keepdims, accumulator_ilp)


def prod(
    x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, accumulator_ilp: int | None = None
) -> Any:
    """Returns the product of an array along axes; arguments as `sum`."""
    return _reduce("prod", jnp.prod, x, axis, keepdims, accumulator_ilp)


def max(
    x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, accumulator_ilp: int | None = None
) -> Any:
    """Returns the largest element of an array along axes; arguments as `sum`."""
    return _reduce("max", jnp.max, x, axis, keepdims, accumulator_ilp)


def min(
    x: Any, axis: int | Sequence[int] | None = None, keepdims: bool = False, *, accumulator_ilp: int | None = None
) -> Any:
    """Returns the smallest element of an array along axes; arguments as `sum`."""
    return _reduce("min", jnp.min, x, axis, keepdims, accumulator_ilp)
