"""Semaphores: counters in GMEM through which warpgroups and CTAs tell each other something. Zero at the kernel's start.

In `scratch_types` and `pl.run_scoped` they belong to one CTA; `pl.get_global(SemaphoreType.REGULAR)` gives one that all
CTAs of the launch share. `jax.experimental.pallas.semaphore_signal`, `semaphore_wait` and `semaphore_read` work on them
too.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, Literal, NoReturn

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from mgpu.errors import KernelTypeError, Unsupported
from mgpu.jax_internals import AbstractRef, Semaphore, current_source_line, hide_from_source_lines
from mgpu.lang.primitive import View, bind, define_operation, describe, type_error

hide_from_source_lines(__file__)


@dataclasses.dataclass(frozen=True)
class SemaphoreSpace:
    """Memory space of a semaphore ref: GMEM."""

    def __str__(self) -> str:
        return "semaphore"


@dataclasses.dataclass(frozen=True)
class SemaphoreArray:
    """Type of an array of semaphores, for `scratch_types`, `pl.run_scoped` or `pl.get_global`."""

    shape: tuple[int, ...]

    def get_array_aval(self) -> ShapedArray:
        """Returns the aval that stands for the counters."""
        dtype: Any = Semaphore()
        return ShapedArray(self.shape, dtype)

    def get_ref_aval(self) -> AbstractRef:
        """Returns the aval of a ref to the counters: what the kernel body gets."""
        return AbstractRef(self.get_array_aval(), memory_space=SemaphoreSpace())


class SemaphoreType(enum.Enum):
    """Kinds of semaphores. A member is the type of one; call it with a shape for an array."""

    REGULAR = "regular"
    BARRIER = "barrier"

    def __call__(self, shape: Sequence[int]) -> SemaphoreArray:
        """Returns the type of an array of semaphores.

        Raises:
          Unsupported: a barrier semaphore, which joins several GPUs.
        """
        if self is SemaphoreType.BARRIER:
            raise Unsupported(
                f"{current_source_line()} SemaphoreType.BARRIER: barrier semaphores join several GPUs, and one is "
                "simulated. Use SemaphoreType.REGULAR."
            )
        return SemaphoreArray(tuple(int(size) for size in shape))

    def get_array_aval(self) -> ShapedArray:
        """Returns the aval that stands for one counter."""
        return self(()).get_array_aval()

    def get_ref_aval(self) -> AbstractRef:
        """Returns the aval of a ref to one counter."""
        return self(()).get_ref_aval()


@dataclasses.dataclass(frozen=True)
class SemaphoreSignal:
    """One signal of `semaphore_signal_parallel`.

    Attributes:
      ref: ref to one semaphore.
      device_id: another device; None for this one.
      inc: what is added.
    """

    ref: Any
    _: dataclasses.KW_ONLY
    device_id: Any
    inc: int | jax.Array = 1


def _require_semaphore(operation: str, value: Any) -> None:
    if not isinstance(value, View) or not isinstance(value.base.memory_space, SemaphoreSpace) or value.shape != ():
        what = f"{list(value.shape)} semaphores" if isinstance(value, View) else describe(value)
        raise type_error(operation, f"semaphore must be a ref to one semaphore, got {what}. Select it with .at[index].")


def _check_signal(semaphore: Any, increment: Any, *, memory_scope: str) -> list[ShapedArray]:
    _check_scope("semaphore_signal", memory_scope)
    _require_semaphore("semaphore_signal", semaphore)
    if increment.shape != ():
        raise type_error("semaphore_signal", f"inc must be a scalar integer, got {describe(increment)}.")
    return []


def _check_wait(semaphore: Any, value: Any, *, decrement: bool, memory_scope: str) -> list[ShapedArray]:
    del decrement
    _check_scope("semaphore_wait", memory_scope)
    _require_semaphore("semaphore_wait", semaphore)
    if value.shape != ():
        raise type_error("semaphore_wait", f"value must be a scalar integer, got {describe(value)}.")
    return []


semaphore_signal_p = define_operation("mgpu_semaphore_signal", _check_signal)
semaphore_wait_p = define_operation("mgpu_semaphore_wait", _check_wait)


def _refuse_device(operation: str, device_id: Any) -> None:
    if device_id is not None:
        raise Unsupported(
            f"{current_source_line()} {operation}: device_id={device_id!r} names another GPU, and one is simulated. "
            "Leave device_id out."
        )


def _check_scope(operation: str, memory_scope: str) -> None:
    if memory_scope not in ("sys", "gpu"):
        raise type_error(operation, f"memory_scope must be 'sys' or 'gpu', got {memory_scope!r}.")


def semaphore_signal(
    semaphore: Any,
    inc: int | jax.Array = 1,
    *,
    device_id: Any = None,
    memory_scope: Literal["sys", "gpu"] = "sys",
) -> None:
    """Adds to a semaphore. What this warpgroup wrote before is visible to those who see the signal.

    Args:
      semaphore: ref to one semaphore.
      inc: scalar integer, what is added.
      device_id: another device; only None here.
      memory_scope: who has to see it: the whole system or this GPU; the cost is the GPU's.

    Raises:
      KernelTypeError: not a single semaphore, or an unknown scope.
      Unsupported: another device.
    """
    _refuse_device("semaphore_signal", device_id)
    bind(semaphore_signal_p, semaphore, jnp.asarray(inc, jnp.int32), memory_scope=memory_scope)


def semaphore_wait(
    semaphore: Any,
    value: int | jax.Array = 1,
    *,
    decrement: bool = True,
    memory_scope: Literal["sys", "gpu"] = "sys",
) -> None:
    """Waits until a semaphore has reached `value`.

    Args:
      semaphore: ref to one semaphore.
      value: scalar integer.
      decrement: subtract `value` when it is reached.
      memory_scope: as of `semaphore_signal`.

    Raises:
      KernelTypeError: not a single semaphore, or an unknown scope.
    """
    bind(
        semaphore_wait_p,
        semaphore,
        jnp.asarray(value, jnp.int32),
        decrement=bool(decrement),
        memory_scope=memory_scope,
    )


def semaphore_signal_parallel(*signals: SemaphoreSignal) -> None:
    """Signals several semaphores, in no particular order for those who watch.

    Raises:
      KernelTypeError: something else than `SemaphoreSignal`s.
      Unsupported: another device.
    """
    for signal in signals:
        if not isinstance(signal, SemaphoreSignal):
            raise KernelTypeError(
                f"{current_source_line()} semaphore_signal_parallel: takes SemaphoreSignal(ref, device_id=...), "
                f"got {type(signal).__name__}."
            )
        semaphore_signal(signal.ref, signal.inc, device_id=signal.device_id)


def semaphore_signal_multicast(semaphore: Any, value: int | jax.Array = 1, *, collective_axes: Any) -> NoReturn:
    """Would signal a semaphore on every device along mesh axes.

    Raises:
      Unsupported: always: one GPU is simulated.
    """
    del semaphore, value
    raise Unsupported(
        f"{current_source_line()} semaphore_signal_multicast: collective_axes={collective_axes!r} names devices, and "
        "one GPU is simulated. Use semaphore_signal."
    )
