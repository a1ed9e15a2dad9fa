"""mbarriers: their type, arriving, waiting, and the register hand-over that waits like one.

A barrier counts arrivals, and bytes that copies still owe it. When both are complete its **phase** completes: waiters
of that phase go on and counting starts over. Each warpgroup remembers, for each barrier, which phase it waits for next:
its n-th wait on a barrier waits for the n-th phase (the hardware compares one parity bit, so a warpgroup may lag one
phase behind, not two).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import AbstractRef, hide_from_source_lines
from mgpu.lang.primitive import View, bind, define_operation, describe, type_error

hide_from_source_lines(__file__)

MAX_ARRIVALS = 2**20 - 1  # PTX ISA, mbarrier: range of the pending count
MAX_BARRIERS = 32  # of an array: Mosaic GPU keeps the parities of its phases in one 32-bit register


@dataclasses.dataclass(frozen=True)
class BarrierSpace:
    """What the memory space of a barrier ref holds: how many arrivals complete a phase."""

    num_arrivals: int
    orders_tensor_core: bool = False
    collective_axes: tuple[tuple[str, ...], ...] = ()
    leader_tracked: bool = False

    def __str__(self) -> str:
        axes = f", {self.collective_axes}" if self.collective_axes else ""
        return f"barrier({self.num_arrivals}{axes})"


def arrivals_per_phase(space: BarrierSpace, cluster: Mapping[str, int]) -> int:
    """Returns how many arrivals complete one phase of a barrier: `num_arrivals` of each CTA that arrives on it.

    Args:
      space: memory space of the barrier's ref.
      cluster: size of each cluster axis.
    """
    if not space.collective_axes:
        return space.num_arrivals
    # CTAs along each entry; one's own CTA belongs to all entries and counts once.
    groups = [math.prod(cluster[axis] for axis in axes) for axes in space.collective_axes]
    return space.num_arrivals * (sum(groups) - len(groups) + 1)


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
        name = type(self).__name__
        arrivals: Any = self.num_arrivals
        if isinstance(arrivals, bool) or not isinstance(arrivals, int) or not 1 <= arrivals <= MAX_ARRIVALS:
            raise KernelTypeError(
                f"{name}: num_arrivals must be an integer from 1 to {MAX_ARRIVALS}, got {arrivals!r}. "
                "Count one for each warpgroup that arrives and one for each copy that signals the barrier."
            )
        if any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in self.shape):
            raise KernelTypeError(f"{name}: num_barriers must be positive, got {self.num_barriers!r}.")
        if math.prod(self.shape) > MAX_BARRIERS:
            raise KernelTypeError(
                f"{name}: num_barriers is {self.num_barriers!r}, but an array has at most {MAX_BARRIERS} barriers: a "
                "warpgroup keeps their phases in the bits of one register. Use several arrays."
            )
        if not isinstance(self.num_barriers, int):
            object.__setattr__(self, "num_barriers", self.shape)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the barrier array."""
        return (self.num_barriers,) if isinstance(self.num_barriers, int) else tuple(self.num_barriers)

    def get_array_aval(self) -> ShapedArray:
        """Returns the aval that stands for the barriers' state."""
        return ShapedArray(self.shape, jnp.int32)

    def get_ref_aval(self) -> AbstractRef:
        """Returns the aval of a ref to the barriers: what the kernel body gets."""
        space = BarrierSpace(self.num_arrivals, self.orders_tensor_core)
        return AbstractRef(self.get_array_aval(), memory_space=space)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ClusterBarrier(Barrier):
    """Type of an mbarrier in each CTA of a cluster on which the CTAs arrive together.

    `barrier_arrive` arrives on the barrier of every CTA along the collective axes, one's own included; `barrier_wait`
    waits on one's own.

    Attributes:
      collective_axes: cluster axes along which CTAs arrive on each other's barriers. Each entry is an axis or a tuple
        of axes (all CTAs that differ along any of them); with several entries, arrivals go along each one. With
        none, it is a barrier of one's own CTA.
      num_barriers: as of `Barrier`.
      num_arrivals: arrivals of each CTA that complete a phase.
      leader_tracked: arrive only on the barrier of the first CTA along the axes.
    """

    collective_axes: tuple[str | tuple[str, ...], ...]
    leader_tracked: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        axes: Any = self.collective_axes
        if isinstance(axes, str) or not isinstance(axes, Sequence):
            raise KernelTypeError(
                f"ClusterBarrier: collective_axes must be a tuple of cluster axis names, got {axes!r}. "
                "Write collective_axes=('cluster',)."
            )
        entries = tuple((axis,) if isinstance(axis, str) else tuple(axis) for axis in axes)
        object.__setattr__(self, "collective_axes", entries)

    def get_ref_aval(self) -> AbstractRef:
        """Returns the aval of a ref to the barriers: what the kernel body gets."""
        axes: Any = self.collective_axes
        space = BarrierSpace(self.num_arrivals, self.orders_tensor_core, axes, self.leader_tracked)
        return AbstractRef(self.get_array_aval(), memory_space=space)


def require_barrier(operation: str, value: Any, argument: str = "barrier") -> View:
    """Returns `value` as a View of exactly one barrier, or raises what is wrong with it."""
    if not isinstance(value, View) or not isinstance(value.base.memory_space, BarrierSpace):
        raise type_error(
            operation,
            f"{argument} must be a Barrier, got {describe(value)}. Allocate mgpu.Barrier(...) in scratch_types.",
        )
    if math.prod(value.shape) != 1:
        raise type_error(
            operation,
            f"{argument} is an array of {list(value.shape)} barriers; the operation takes one. "
            "Select it with .at[slot].",
        )
    return value


def require_predicate(operation: str, value: Any) -> None:
    """Refuses a predicate that is not a scalar boolean."""
    if value is not None and (isinstance(value, View) or value.shape != () or value.dtype != bool):
        raise type_error(operation, f"predicate must be a scalar boolean, got {describe(value)}.")


def _check_arrive(barrier: Any, predicate: Any) -> list[ShapedArray]:
    require_barrier("barrier_arrive", barrier)
    require_predicate("barrier_arrive", predicate)
    return []


def _check_wait(barrier: Any) -> list[ShapedArray]:
    require_barrier("barrier_wait", barrier)
    return []


def _check_test(barrier: Any) -> ShapedArray:
    require_barrier("barrier_test", barrier)
    return ShapedArray((), jnp.bool_)


barrier_arrive_p = define_operation("barrier_arrive", _check_arrive)
barrier_wait_p = define_operation("barrier_wait", _check_wait)
barrier_test_p = define_operation("barrier_test", _check_test, multiple_results=False)


def barrier_arrive(barrier: Any, *, predicate: bool | jax.Array | None = None) -> None:
    """Arrives at `barrier`: one of the `num_arrivals` that complete its phase. Does not wait.

    Args:
      barrier: ref to one barrier. A `ClusterBarrier` is arrived at in every CTA that it joins.
      predicate: scalar boolean; False arrives nowhere.

    Raises:
      KernelTypeError: not a single barrier, or not a scalar boolean.
    """
    bind(barrier_arrive_p, barrier, as_predicate(predicate))


def as_predicate(predicate: bool | jax.Array | None) -> jax.Array | None:
    """Returns a predicate as an array; None stays None."""
    return None if predicate is None else jnp.asarray(predicate)


def barrier_arrive_and_wait(barrier: Any) -> None:
    """Arrives at `barrier` and waits until its phase completes.

    Args:
      barrier: ref to one barrier.

    Raises:
      KernelTypeError: not a single barrier.
    """
    barrier_arrive(barrier)
    barrier_wait(barrier)


def barrier_test(barrier: Any) -> jax.Array:
    """Tells whether the phase that a `barrier_wait` would wait for is complete; if so, it counts as waited for.

    Only for code of one warp, inside `warp_map`: the warps of a warpgroup might get different answers.

    Args:
      barrier: ref to one barrier.

    Returns:
      Scalar boolean.

    Raises:
      KernelTypeError: not a single barrier, or not inside a warp-level region.
    """
    return bind(barrier_test_p, barrier)


def barrier_wait(barrier: Any) -> None:
    """Waits until the next phase of `barrier` that this warpgroup has not waited for completes.

    Args:
      barrier: ref to one barrier.

    Raises:
      KernelTypeError: not a single barrier.
    """
    bind(barrier_wait_p, barrier)


def _check_registers(*, n: int, action: str) -> list[ShapedArray]:
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
