"""The grid of a pipeline: how many steps it has, the indices of the next step, and which steps move a block.

Sizes may be Python integers or traced scalars (a dynamic grid). The last axis varies fastest.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import current_source_line, hide_from_source_lines
from mgpu.lang.block_spec import Block

hide_from_source_lines(__file__)

Scalar = Any
Indices = tuple[Any, ...]


class Motion(enum.Enum):
    """When the block of an operand is another one than at the step before."""

    NEVER = "never"
    SOMETIMES = "sometimes"
    EVERY_STEP = "every step"


def check_grid(operation: str, grid: Any, *, least: int = 0) -> tuple[Scalar, ...]:
    """Returns the grid as a tuple, its static sizes as Python integers.

    Args:
      operation: whose grid it is, for errors.
      grid: the sizes.
      least: smallest Python integer; an array may always be 0.

    Raises:
      KernelTypeError: not a tuple of integers, static or traced, of at least `least`.
    """
    if not isinstance(grid, (tuple, list)):
        raise KernelTypeError(f"{current_source_line()} {operation}: grid must be a tuple of sizes, got {grid!r}.")
    return tuple(_check_size(operation, grid, size, least) for size in grid)


def _check_size(operation: str, grid: Any, size: Any, least: int) -> Scalar:
    if isinstance(size, Tracer):
        if size.shape == () and jnp.issubdtype(size.dtype, jnp.integer):
            return size.astype(jnp.int32)
    elif isinstance(size, (int, np.integer, jax.Array, np.ndarray)) and not isinstance(size, bool):
        array = np.asarray(size)
        smallest = least if isinstance(size, int) else 0
        if array.shape == () and array.dtype.kind in "iu" and int(array) >= smallest:
            return int(array)
    raise KernelTypeError(
        f"{current_source_line()} {operation}: grid={grid!r} holds {size!r}; each size is an integer of at least "
        f"{least}."
    )


def count_steps(grid: Sequence[Scalar]) -> Scalar:
    """Returns the number of steps: a Python integer if the grid is static."""
    static = math.prod(size for size in grid if isinstance(size, int))
    steps = static
    for size in grid:
        if not isinstance(size, int):
            steps = size * steps
    return steps


def first_indices(grid: Sequence[Scalar]) -> Indices:
    """Returns the indices of step 0."""
    return (jnp.int32(0),) * len(grid)


def next_indices(indices: Sequence[Any], grid: Sequence[Scalar]) -> Indices:
    """Returns the indices of the step after `indices`; after the last step come those of the first."""
    result: list[Any] = []
    carry: Any = None
    for index, size in zip(reversed(indices), reversed(grid), strict=True):
        advanced = index + 1 if carry is None else lax.select(carry, index + 1, index)
        carry = advanced == size
        result.append(lax.select(carry, jnp.zeros_like(advanced), advanced))
    return tuple(reversed(result))


def advance(indices: Indices, grid: Sequence[Scalar], steps: int) -> Indices:
    """Returns the indices `steps` (a small static number) after `indices`."""
    for _ in range(steps):
        indices = next_indices(indices, grid)
    return indices


def loop(steps: Scalar, body: Callable[[Any, Any], Any], init: Any, *, first: Scalar = 0) -> Any:
    """Runs `body(step, carry)` for the steps from `first` to `steps`; step numbers are 32 bits wide.

    A run of fewer than one step is no loop at all, so that it costs nothing.
    """
    if isinstance(first, int) and isinstance(steps, int):
        if first >= steps:
            return init
        return lax.fori_loop(first, steps, lambda step, carry: body(_in_32_bits(step), carry), init)
    return lax.fori_loop(jnp.int32(first), jnp.asarray(steps, jnp.int32), body, init)


def _in_32_bits(step: Any) -> Any:
    # With x64, JAX counts between constants in 64 bits, whatever their type. A cast that is not needed costs a cycle.
    return step if step.dtype == jnp.int32 else step.astype(jnp.int32)


def _is_dynamic(size: Scalar) -> bool:
    return not isinstance(size, int)


def motion_of(block: Block, grid: Sequence[Scalar]) -> Motion:
    """Finds out from its index map when a block moves. SOMETIMES if that depends on values."""
    closed = jax.make_jaxpr(lambda *indices: block.position(indices))(*first_indices(grid))
    jaxpr = closed.jaxpr
    # The axis that moves at every step: a size only known at run time might be 1.
    fastest = next((axis for axis in reversed(range(len(grid))) if _is_dynamic(grid[axis]) or grid[axis] != 1), None)
    if fastest is not None and _is_dynamic(grid[fastest]):
        fastest = None
    dependent = set(jaxpr.invars)
    for equation in jaxpr.eqns:
        # A literal is unhashable and depends on nothing.
        if any(not hasattr(atom, "val") and atom in dependent for atom in equation.invars):
            dependent.update(equation.outvars)
    outputs = [atom for atom in jaxpr.outvars if not hasattr(atom, "val")]
    if not any(atom in dependent for atom in outputs):
        return Motion.NEVER
    moves_with_fastest = fastest is not None and any(atom is jaxpr.invars[fastest] for atom in outputs)
    return Motion.EVERY_STEP if moves_with_fastest else Motion.SOMETIMES
