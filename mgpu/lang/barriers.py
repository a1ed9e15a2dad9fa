"""mbarriers: their type, arriving, waiting, and the register hand-over that waits like one.

A barrier counts arrivals, and bytes that copies still owe it. When both are complete its **phase** completes: waiters of
that phase go on and counting starts over. Each warpgroup remembers, for each barrier, which phase it waits for next:
its n-th wait on a barrier waits for the n-th phase (the hardware compares one parity bit, so a warpgroup may lag one
phase behind, not two).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import AbstractRef, hide_from_source_lines
from mgpu.lang.primitive import View, bind, define_operation, describe, type_error

hide_from_source_lines(__file__)

MAX_ARRIVALS = 2**20 - 1  # PTX ISA, mbarrier: range of the pending count


@dataclasses.dataclass(frozen=True)
class BarrierSpace:
    """What the memory space of a barrier ref holds: how many arrivals complete a phase."""

    num_arrivals: int
    orders_tensor_core: bool = False

    def __str__(self) -> str:
        return f"barrier({self.num_arrivals})"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Barrier:
    """Type of an mbarrier, or an array of them, for scratch.

    Attributes:
      num_arrivals: arrivals that complete a phase. `barrier_arrive` by a warpgroup and a copy that signals the barrier
        each count as one.
      num_barriers: how many barriers, or the shape of an array of them; index with `.at[slot]`.
      orders_tensor_core: whether a wait also orders tensor-core work of the Blackwell family.
    """

    num_arrivals: int = 1
    num_barriers: int | Sequence[int] = 1
    orders_tensor_core: bool = False

    def __post_init__(self) -> None:
        arrivals: Any = self.num_arrivals
        if isinstance(arrivals, bool) or not isinstance(arrivals, int) or not 1 <= arrivals <= MAX_ARRIVALS:
            raise KernelTypeError(
                f"Barrier: num_arrivals must be an integer from 1 to {MAX_ARRIVALS}, got {arrivals!r}. "
                "Count one for each warpgroup that arrives and one for each copy that signals the barrier."
            )
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in self.shape):
            raise KernelTypeError(f"Barrier: num_barriers must be positive, got {self.num_barriers!r}.")
        if not isinstance(self.num_barriers, int):
            object.__setattr__(self, "num_barriers", self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the barrier array."""
        return (self.num_barriers,) if isinstance(self.num_barriers, int) else tuple(self.num_barriers)

    def get_array_aval(self) -> jax.core.ShapedArray:
        """Returns the aval that stands for the barriers' state."""
        return jax.core.ShapedArray(self.shape, jnp.int32)

    def get_ref_aval(self) -> AbstractRef:
        """Returns the aval of a ref to the barriers: what the kernel body gets."""
        space = BarrierSpace(self.num_arrivals, self.orders_tensor_core)
        return AbstractRef(self.get_array_aval(), memory_space=space)


def require_barrier(operation: str, value: Any, argument: str = "barrier") -> View:
    """Returns `value` as a View of exactly one barrier, or raises what is wrong with it."""
    if not isinstance(value, View) or not isinstance(value.base.memory_space, BarrierSpace):
        raise type_error(
            operation, f"{argument} must be a Barrier, got {describe(value)}. Allocate mgpu.Barrier(...) in scratch_types."
        )
    if math.prod(value.shape) != 1:
        raise type_error(
            operation,
            f"{argument} is an array of {list(value.shape)} barriers; the operation takes one. Select it with .at[slot].",
        )
    return value


def _check_barrier(barrier: Any, *, operation: str) -> list[jax.core.ShapedArray]:
    require_barrier(operation, barrier)
    return []


barrier_arrive_p = define_operation("barrier_arrive", lambda b: _check_barrier(b, operation="barrier_arrive"))
barrier_wait_p = define_operation("barrier_wait", lambda b: _check_barrier(b, operation="barrier_wait"))


def barrier_arrive(barrier: Any) -> None:
    """Arrives at `barrier`: one of the `num_arrivals` that complete its phase. Does not wait.

    Args:
      barrier: ref to one barrier.

    Raises:
      KernelTypeError: not a single barrier.
    """
    bind(barrier_arrive_p, barrier)


def barrier_wait(barrier: Any) -> None:
    """Waits until the next phase of `barrier` that this warpgroup has not waited for completes.

    Args:
      barrier: ref to one barrier.

    Raises:
      KernelTypeError: not a single barrier.
    """
    bind(barrier_wait_p, barrier)


def _check_registers(*, n: int, action: str) -> list[jax.core.ShapedArray]:
    operation = "set_max_registers"
    if action not in ("increase", "decrease"):
        raise type_error(operation, f"action must be 'increase' or 'decrease', got {action!r}.")
    if isinstance(n, bool) or not isinstance(n, int) or n % 8 or not 24 <= n <= 256:
        raise type_error(operation, f"n must be a multiple of 8 from 24 to 256 (PTX ISA, setmaxnreg), got {n!r}.")
    return []


set_max_registers_p = define_operation("set_max_registers", _check_registers)


def set_max_registers(n: int, *, action: Literal["increase", "decrease"]) -> None:
    """Sets how many registers each thread of this warpgroup owns.

    Args:
      n: registers per thread; a multiple of 8 from 24 to 256.
      action: "decrease" gives registers back; "increase" waits until other warpgroups have given enough back.

    Raises:
      KernelTypeError: `n` or `action` is not allowed.
    """
    bind(set_max_registers_p, n=n, action=action)
