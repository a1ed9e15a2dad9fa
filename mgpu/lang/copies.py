"""Asynchronous copies between global and shared memory by the TMA engine, and the fence that they need."""

from __future__ import annotations

from typing import Any

import jax

from mgpu.errors import Unsupported
from mgpu.jax_internals import current_source_line, hide_from_source_lines
from mgpu.lang.barriers import require_barrier
from mgpu.lang.memory import GMEM, SMEM
from mgpu.lang.primitive import View, bind, define_operation, describe, require_ref, type_error
from mgpu.lang.transforms import bits_of

hide_from_source_lines(__file__)


def _check_box(operation: str, src: View, dst: View) -> None:
    if src.shape != dst.shape or src.dtype != dst.dtype:
        raise type_error(
            operation, f"dst is {dst} but src is {src}. A TMA copy moves one whole box; slice or widen one of them."
        )
    row_bits = (src.shape[-1] if src.shape else 1) * bits_of(src.dtype)
    if row_bits % 128:
        raise type_error(
            operation,
            f"a row of {describe(src)} is {row_bits / 8:g} bytes; TMA moves multiples of 16 bytes. Widen the minor dimension.",
        )
    if not src.shape or len(src.shape) > 5:
        raise type_error(operation, f"a TMA box has 1 to 5 dimensions, got {list(src.shape)}.")


def _check_load(src: Any, dst: Any, barrier: Any) -> list[jax.core.ShapedArray]:
    operation = "copy_gmem_to_smem"
    src = require_ref(operation, "src", src, GMEM)
    dst = require_ref(operation, "dst", dst, SMEM)
    require_barrier(operation, barrier)
    _check_box(operation, src, dst)
    return []


def _check_store(src: Any, dst: Any, predicate: Any, *, commit_group: bool) -> list[jax.core.ShapedArray]:
    del commit_group
    operation = "copy_smem_to_gmem"
    src = require_ref(operation, "src", src, SMEM)
    dst = require_ref(operation, "dst", dst, GMEM)
    _check_box(operation, src, dst)
    if predicate is not None and (isinstance(predicate, View) or predicate.shape != () or predicate.dtype != bool):
        raise type_error(operation, f"predicate must be a scalar boolean, got {describe(predicate)}.")
    return []


def _check_store_wait(*, n: int, wait_read_only: bool) -> list[jax.core.ShapedArray]:
    del wait_read_only
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise type_error("wait_smem_to_gmem", f"n must be an integer of at least 0, known while tracing; got {n!r}.")
    return []


copy_gmem_to_smem_p = define_operation("copy_gmem_to_smem", _check_load)
copy_smem_to_gmem_p = define_operation("copy_smem_to_gmem", _check_store)
wait_smem_to_gmem_p = define_operation("wait_smem_to_gmem", _check_store_wait)
commit_smem_p = define_operation("commit_smem", lambda: [])
commit_smem_to_gmem_group_p = define_operation("commit_smem_to_gmem_group", lambda: [])


def copy_gmem_to_smem(
    src: Any, dst: Any, barrier: Any, *, collective_axes: Any = None, leader_tracked: Any = None
) -> None:
    """Starts copying a box of global memory into shared memory; the barrier tells when it has landed.

    The copy counts as one arrival on `barrier` and completes the phase only when its bytes are there.

    Args:
      src: ref in GMEM, of the box's shape after slicing.
      dst: ref in SMEM, same shape and dtype as `src`.
      barrier: ref to one barrier.
      collective_axes: cluster axes over which the copy is multicast; not available yet.
      leader_tracked: how a collective copy is partitioned; not available yet.

    Raises:
      KernelTypeError: wrong memory space, or shapes or dtypes that differ.
      Unsupported: a collective copy.
    """
    if collective_axes is not None or leader_tracked is not None:
        raise Unsupported(
            f"{current_source_line()} copy_gmem_to_smem: collective_axes and leader_tracked (multicast over a cluster) are "
            "not available yet. Let each CTA load its own copy: drop the argument."
        )
    bind(copy_gmem_to_smem_p, src, dst, barrier)


def copy_smem_to_gmem(
    src: Any, dst: Any, predicate: jax.Array | None = None, *, commit_group: bool = True, reduction_op: Any = None
) -> None:
    """Starts copying shared memory into a box of global memory.

    Values stored to `src` by this warpgroup need a `commit_smem()` first.

    Args:
      src: ref in SMEM.
      dst: ref in GMEM, same shape and dtype as `src` after slicing.
      predicate: scalar boolean array; False skips the copy.
      commit_group: close a group with this copy, so that `wait_smem_to_gmem` counts it.
      reduction_op: combine with what is in GMEM instead of overwriting; not available yet.

    Raises:
      KernelTypeError: wrong memory space, or shapes or dtypes that differ.
      Unsupported: a reduction.
    """
    if reduction_op is not None:
        raise Unsupported(
            f"{current_source_line()} copy_smem_to_gmem: reduction_op={reduction_op!r} is not available yet. "
            "Reduce in registers and store the result."
        )
    bind(copy_smem_to_gmem_p, src, dst, predicate, commit_group=commit_group)


def commit_smem_to_gmem_group() -> None:
    """Closes a group of the SMEM to GMEM copies that this warpgroup started with `commit_group=False`."""
    bind(commit_smem_to_gmem_group_p)


def wait_smem_to_gmem(n: int, wait_read_only: bool = False) -> None:
    """Waits until at most the `n` most recent groups of this warpgroup's SMEM to GMEM copies are in flight.

    Args:
      n: groups that may stay in flight.
      wait_read_only: wait only until the copies have read SMEM, so that it may be overwritten.

    Raises:
      KernelTypeError: `n` is negative or not static.
    """
    bind(wait_smem_to_gmem_p, n=n, wait_read_only=wait_read_only)


def commit_smem() -> None:
    """Makes this warpgroup's stores to SMEM visible to TMA and the tensor core (the async proxy)."""
    bind(commit_smem_p)
