"""Hopper's tensor core: the wgmma accumulator, issuing and awaiting wgmma."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import ShapedArray

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import AbstractRef, current_source_line, hide_from_source_lines, register_state_type
from mgpu.lang.memory import SMEM, MemorySpace
from mgpu.lang.primitive import View, bind, define_operation, describe, type_error

hide_from_source_lines(__file__)

# PTX ISA, wgmma.mma_async: operand types, K of one instruction in elements, accumulator types.
_K_OF_BITS = {32: 8, 16: 16, 8: 32}
_ACCUMULATORS = {
    "float16": ("float32", "float16"),
    "bfloat16": ("float32",),
    "float32": ("float32",),  # read as tf32
    "float8_e4m3fn": ("float32", "float16"),
    "float8_e5m2": ("float32", "float16"),
    "int8": ("int32",),
    "uint8": ("int32",),
}

_MIXABLE = {
    "float8_e4m3fn",
    "float8_e5m2",
}  # PTX ISA, wgmma.mma_async: .atype and .btype of the fp8 forms are independent


@dataclasses.dataclass(frozen=True)
class AccumulatorSpace:
    """Memory space of a wgmma accumulator ref: registers that the tensor core writes."""

    kind: MemorySpace = MemorySpace.REGS

    def __str__(self) -> str:
        return "acc"


class AccumulatorRef(AbstractRef):
    """Aval of a ref to a wgmma accumulator. Accessing it (`acc[...]`) waits for the wgmmas that write it."""

    def __init__(self, inner_aval: Any, memory_space: Any = None, kind: Any = None) -> None:
        super().__init__(inner_aval, memory_space or AccumulatorSpace(), kind)

    def update(self, inner_aval: Any = None, memory_space: Any = None, kind: Any = None) -> AccumulatorRef:
        """Returns the aval with some parts replaced, as JAX asks of every ref aval."""
        return AccumulatorRef(inner_aval or self.inner_aval, memory_space or self.memory_space, kind or self.kind)

    def _getitem(self, tracer: Any, idx: Any) -> jax.Array:
        return wgmma_accumulator_load(tracer)[idx]

    def _setitem(self, tracer: Any, idx: Any, value: Any) -> None:
        if not _selects_all(idx, tracer.shape):
            raise type_error(
                "ACC",
                f"a part of the accumulator {list(tracer.shape)} is assigned; registers are replaced as a whole. "
                "Assign acc[...], or compute on the array after reading it.",
            )
        value = jnp.asarray(value)
        if value.shape != tracer.shape or value.dtype != tracer.dtype:
            raise type_error(
                "ACC",
                f"{describe(value)} is assigned to an accumulator {tracer.dtype.name}{list(tracer.shape)}. "
                "Convert it with astype and jnp.broadcast_to.",
            )
        super()._setitem(tracer, ..., value)


def _selects_all(idx: Any, shape: tuple[int, ...]) -> bool:
    indices = idx if isinstance(idx, tuple) else (idx,)
    return all(
        index is Ellipsis or (isinstance(index, slice) and index.indices(size) == (0, size, 1))
        for index, size in zip(indices, shape, strict=False)
    )


@dataclasses.dataclass(frozen=True)
class WGMMAAccumulatorRef:
    """Type of a wgmma accumulator, for `pl.run_scoped` in the warpgroup that owns it. Starts at zero.

    `acc[...]` reads it and `acc[...] = x` assigns it, as a whole; both wait for the wgmmas in flight.

    Attributes:
      shape: (m, n): m a multiple of 64, n a multiple of 8 up to 256.
      dtype: float32, float16 or int32.
    """

    shape: tuple[int, int]
    dtype: Any = jnp.float32
    _init: Any = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        shape = tuple(int(size) for size in self.shape)
        if len(shape) != 2 or shape[0] % 64 or shape[0] < 64 or shape[1] % 8 or not 8 <= shape[1] <= 256:
            raise KernelTypeError(
                f"ACC: shape must be (m, n) with m a multiple of 64 and n a multiple of 8 up to 256, got {self.shape}. "
                "Use several accumulators for wider tiles."
            )
        if jnp.dtype(self.dtype).name not in ("float32", "float16", "int32"):
            raise KernelTypeError(f"ACC: dtype must be float32, float16 or int32, got {jnp.dtype(self.dtype).name}.")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "dtype", jnp.dtype(self.dtype))

    @staticmethod
    def init(array: Any) -> WGMMAAccumulatorRef:
        """Returns the type of an accumulator that starts from `array`, for `jax.experimental.pallas.run_state`.

        Args:
          array: (m, n) float32, float16 or int32 array in registers.
        """
        array = jnp.asarray(array)
        shape: Any = array.shape
        return WGMMAAccumulatorRef(shape, array.dtype, _init=array)

    def get_array_aval(self) -> ShapedArray:
        """Returns the aval of the accumulator's contents."""
        return ShapedArray(self.shape, self.dtype)

    def get_ref_aval(self) -> AccumulatorRef:
        """Returns the aval of a ref to the accumulator.

        Raises:
          KernelTypeError: it has a value to start from, which only `run_state` gives it.
        """
        if self._init is not None:
            raise type_error(
                "ACC",
                "ACC.init(array) is allocated by run_scoped, which would forget the array. Use "
                "pl.run_state(f)(ACC.init(array)), or pl.run_scoped(f, ACC(shape)) and assign acc[...] first.",
            )
        return AccumulatorRef(self.get_array_aval())


ACC = WGMMAAccumulatorRef


def _state_of(accumulator: WGMMAAccumulatorRef) -> tuple[AccumulatorRef, Any]:
    if accumulator._init is None:
        raise KernelTypeError(
            f"{current_source_line()} run_state: the accumulator has no value to start from. "
            "Use ACC.init(array), or pl.run_scoped(f, ACC(shape))."
        )
    return AccumulatorRef(accumulator.get_array_aval()), accumulator._init


register_state_type(WGMMAAccumulatorRef, _state_of)


def is_accumulator(value: Any) -> bool:
    """True if `value` is a View of a wgmma accumulator."""
    return isinstance(value, View) and isinstance(value.base.memory_space, AccumulatorSpace)


def _require_accumulator(operation: str, acc: Any) -> View:
    if not is_accumulator(acc):
        raise type_error(
            operation, f"acc must be an accumulator, got {describe(acc)}. Allocate mgpu.ACC((m, n)) with pl.run_scoped."
        )
    return acc


def instruction_k(dtype: Any) -> int:
    """Returns K of one wgmma instruction for operands of `dtype`, in elements."""
    return _K_OF_BITS[np.dtype(dtype).itemsize * 8]


def _check_wgmma(acc: Any, a: Any, b: Any) -> list[ShapedArray]:
    operation = "wgmma"
    acc = _require_accumulator(operation, acc)
    if not isinstance(b, View) or b.space is not SMEM:
        raise type_error(
            operation,
            f"operand b must be in SMEM, got {describe(b)}. "
            "Store it to an SMEM ref and commit_smem() first (a may stay in registers).",
        )
    if isinstance(a, View) and a.space is not SMEM:
        raise type_error(operation, f"operand a must be in SMEM or an array in registers, got {describe(a)}.")
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or acc.shape != (a.shape[0], b.shape[1]):
        raise type_error(
            operation,
            f"acc {list(acc.shape)} += a {list(a.shape)} @ b {list(b.shape)} does not fit: "
            "need acc (m, n), a (m, k), b (k, n).",
        )
    if acc.shape[0] % 64 or acc.shape[1] % 8 or acc.shape[1] > 256:
        raise type_error(
            operation,
            f"acc is {list(acc.shape)}: m must be a multiple of 64, n a multiple of 8 up to 256. Resize the slice.",
        )
    _check_wgmma_types(acc, a, b)
    return []


def _check_wgmma_types(acc: View, a: Any, b: View) -> None:
    operation = "wgmma"
    if a.dtype != b.dtype and not {a.dtype.name, b.dtype.name} <= _MIXABLE:
        raise type_error(
            operation,
            f"a is {a.dtype.name} but b is {b.dtype.name}; both must have one dtype, except that "
            f"{' and '.join(sorted(_MIXABLE))} may be mixed. Convert one of them.",
        )
    allowed = _ACCUMULATORS.get(a.dtype.name)
    if allowed is None:
        raise type_error(
            operation, f"operands of {a.dtype.name} are not supported; use one of {', '.join(_ACCUMULATORS)}."
        )
    if acc.dtype.name not in allowed:
        raise type_error(
            operation, f"{a.dtype.name} operands accumulate in {' or '.join(allowed)}, but acc is {acc.dtype.name}."
        )
    step = instruction_k(a.dtype)
    if a.shape[1] % step:
        raise type_error(operation, f"k is {a.shape[1]}, but {a.dtype.name} instructions take k in steps of {step}.")


def _check_accumulator_load(acc: Any, *, wait_n: int | None) -> ShapedArray:
    del wait_n
    view = _require_accumulator("wgmma_accumulator_load", acc)
    return ShapedArray(view.shape, view.dtype)


def _check_wgmma_wait(*, n: int) -> list[ShapedArray]:
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise type_error("wgmma_wait", f"n must be an integer of at least 0, known while tracing; got {n!r}.")
    return []


wgmma_p = define_operation("wgmma", _check_wgmma)
wgmma_wait_p = define_operation("wgmma_wait", _check_wgmma_wait)
wgmma_accumulator_load_p = define_operation("wgmma_accumulator_load", _check_accumulator_load, multiple_results=False)


def wgmma(acc: Any, a: Any, b: Any) -> None:
    """Starts `acc += a @ b` on the tensor core; `wgmma_wait` or reading `acc` waits for it.

    Args:
      acc: ref to an accumulator (m, n).
      a: (m, k): ref in SMEM, or an array in registers.
      b: (k, n): ref in SMEM, of the dtype of `a`; the two kinds of 8-bit floats may be mixed.

    Raises:
      KernelTypeError: shapes that do not fit, a dtype that the tensor core does not take, an operand in the wrong
        space.
    """
    bind(wgmma_p, acc, a, b)


def wgmma_wait(n: int) -> None:
    """Waits until at most the `n` most recent wgmmas of this warpgroup are in flight.

    Args:
      n: operations that may stay in flight.

    Raises:
      KernelTypeError: `n` is negative or not static.
    """
    bind(wgmma_wait_p, n=n)


def wgmma_accumulator_load(acc: Any, *, wait_n: int | None = 0) -> jax.Array:
    """Reads an accumulator into an array.

    Args:
      acc: ref to an accumulator.
      wait_n: wgmmas that may stay in flight while it is read; None does not wait at all.

    Returns:
      Array of the accumulator's shape and dtype.
    """
    return bind(wgmma_accumulator_load_p, acc, wait_n=wait_n)
