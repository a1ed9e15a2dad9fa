"""Asynchronous copies between global and shared memory by the TMA engine, and the fence that they need."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
from jax import lax
from jax.core import ShapedArray

from mgpu.jax_internals import hide_from_source_lines
from mgpu.lang.barriers import as_predicate, require_barrier, require_predicate
from mgpu.lang.memory import GMEM, SMEM
from mgpu.lang.primitive import View, bind, define_operation, describe, require_ref, type_error
from mgpu.lang.transforms import bits_of

hide_from_source_lines(__file__)

# PTX ISA, cp.reduce.async.bulk.tensor: operations; signedness is the element type's.
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor", "umin", "umax", "smin", "smax")
_BITWISE_REDUCTIONS = ("and", "or", "xor")


class OOBFillMode(enum.Enum):
    """What a load puts where its box leaves the array."""

    UNDEFINED = 0
    PROMISE_IN_BOUNDS = 1
    ZEROS = 2


class CopyPartition:
    """How the CTAs of a collective load share the work, when only the first of them keeps track of it."""

    @dataclasses.dataclass(frozen=True)
    class PARTITIONED:  # the name that kernels use
        """Each CTA gets its own part of the source.

        Attributes:
          axis: dimension of the source that is divided.
        """

        axis: int

    @dataclasses.dataclass(frozen=True)
    class _Replicated:
        """Each CTA gets the whole source."""

    REPLICATED: ClassVar[_Replicated] = _Replicated()


def _check_box(operation: str, src: View, dst: View, *, parts: tuple[int, int] = (0, 1)) -> None:
    """Checks that source and target are one box; `parts` is (axis, count) if the target is a part of the source."""
    axis, count = parts
    shape = tuple(size // count if i == axis else size for i, size in enumerate(src.shape))
    if src.dtype != dst.dtype:
        raise type_error(
            operation,
            f"dst is {dst} but src is {src}. A copy moves bytes as they are: give both one dtype, and convert the "
            "values in registers.",
        )
    if shape != dst.shape:
        part = f", of which each CTA gets {list(shape)}" if count > 1 else ""
        raise type_error(
            operation,
            f"dst is {dst} but src is {src}{part}. A TMA copy moves one whole box; slice or widen one of them.",
        )
    row_bits = (src.shape[-1] if src.shape else 1) * bits_of(src.dtype)
    if row_bits % 128:
        raise type_error(
            operation,
            f"a row of {describe(src)} is {row_bits / 8:g} bytes; TMA moves multiples of 16 bytes. "
            "Widen the minor dimension.",
        )
    if not src.shape or sum(size > 1 for size in src.shape) > 5:
        raise type_error(operation, f"a TMA box has 1 to 5 dimensions besides those of 1, got {list(src.shape)}.")


def _check_load(
    src: Any,
    dst: Any,
    barrier: Any,
    predicate: Any,
    *,
    collective_axes: tuple[str, ...],
    group_size: int,
    partition: str | None,
    axis: int | None,
    oob_mode: str,
) -> list[ShapedArray]:
    del oob_mode
    operation = "copy_gmem_to_smem"
    src = require_ref(operation, "src", src, GMEM)
    dst = require_ref(operation, "dst", dst, SMEM)
    require_barrier(operation, barrier)
    require_predicate(operation, predicate)
    if predicate is not None and collective_axes:
        raise type_error(operation, "a collective copy takes no predicate: all CTAs have to issue it. Use pl.when.")
    if partition == "partitioned":
        assert axis is not None
        if not 0 <= axis < len(src.shape) or src.shape[axis] % group_size:
            raise type_error(
                operation,
                f"PARTITIONED({axis}) does not divide src {src} over {group_size} CTAs; dst {dst} takes a part of it. "
                "Choose another axis, or another size of src.",
            )
        _check_box(operation, src, dst, parts=(axis, group_size))
    else:
        _check_box(operation, src, dst)
    return []


def _check_store(
    src: Any, dst: Any, predicate: Any, *, commit_group: bool, reduction_op: str | None
) -> list[ShapedArray]:
    del commit_group
    operation = "copy_smem_to_gmem"
    src = require_ref(operation, "src", src, SMEM)
    dst = require_ref(operation, "dst", dst, GMEM)
    _check_box(operation, src, dst)
    require_predicate(operation, predicate)
    if reduction_op is not None and reduction_op not in REDUCTIONS:
        raise type_error(operation, f"reduction_op must be one of {', '.join(REDUCTIONS)}, got {reduction_op!r}.")
    if reduction_op in _BITWISE_REDUCTIONS and jax.numpy.issubdtype(src.dtype, jax.numpy.floating):
        raise type_error(operation, f"reduction_op={reduction_op!r} works on integers, and src is {src}.")
    return []


def _check_store_wait(*, n: int, wait_read_only: bool) -> list[ShapedArray]:
    del wait_read_only
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise type_error("wait_smem_to_gmem", f"n must be an integer of at least 0, known while tracing; got {n!r}.")
    return []


def _check_prefetch(
    ref: Any, predicate: Any, *, collective_axes: tuple[str, ...], group_size: int
) -> list[ShapedArray]:
    del collective_axes, group_size
    ref = require_ref("async_prefetch", "ref", ref, GMEM)
    require_predicate("async_prefetch", predicate)
    _check_box("async_prefetch", ref, ref)
    return []


copy_gmem_to_smem_p = define_operation("copy_gmem_to_smem", _check_load)
copy_smem_to_gmem_p = define_operation("copy_smem_to_gmem", _check_store)
async_prefetch_p = define_operation("async_prefetch", _check_prefetch)
wait_smem_to_gmem_p = define_operation("wait_smem_to_gmem", _check_store_wait)
commit_smem_p = define_operation("commit_smem", list)
commit_smem_to_gmem_group_p = define_operation("commit_smem_to_gmem_group", list)


def _group_of(operation: str, axes: str | Sequence[str] | None) -> tuple[tuple[str, ...], int]:
    """Returns the cluster axes of a collective operation and how many CTAs they join; none if it is just one."""
    if axes is None:
        return (), 1
    names = (axes,) if isinstance(axes, str) else tuple(axes)
    try:
        count = int(lax.psum(1, names)) if names else 1
    except NameError as error:
        raise type_error(
            operation, f"collective_axes={axes!r} is no axis of the kernel. Name axes in cluster_names."
        ) from error
    return (names, count) if count > 1 else ((), 1)


def copy_gmem_to_smem(
    src: Any,
    dst: Any,
    barrier: Any = None,
    *,
    collective_axes: str | tuple[str, ...] | None = None,
    leader_tracked: Any = None,
    oob_mode: OOBFillMode | None = OOBFillMode.ZEROS,
    predicate: bool | jax.Array | None = None,
) -> None:
    """Starts copying a box of global memory into shared memory; the barrier tells when it has landed.

    The copy counts as one arrival on `barrier` and completes the phase only when its bytes are there.

    Args:
      src: ref in GMEM, of the box's shape after slicing. One dimension may be indexed by an array: a gather of rows.
      dst: ref in SMEM, same shape and dtype as `src`.
      barrier: ref to one barrier.
      collective_axes: cluster axes; all CTAs along them issue the copy with the same `src`, each fetches a part of it,
        and all receive all of it, each on its own barrier.
      leader_tracked: `CopyPartition.PARTITIONED(axis)` gives each CTA only its own part of `src` along `axis`,
        `CopyPartition.REPLICATED` lets each load all of it; only the first CTA's barrier tells when all has landed.
      oob_mode: what lands where the box leaves the array.
      predicate: scalar boolean; False skips the copy, its arrival included.

    Raises:
      KernelTypeError: wrong memory space, shapes or dtypes that differ, an axis that is not the cluster's.
    """
    operation = "copy_gmem_to_smem"
    if barrier is None:
        raise type_error(
            operation, "barrier is missing: a TMA copy signals a barrier when it has landed. Give mgpu.Barrier(...)."
        )
    if not isinstance(oob_mode, (OOBFillMode, type(None))):
        raise type_error(operation, f"oob_mode must be an OOBFillMode, got {oob_mode!r}.")
    partition, axis = _partition(operation, leader_tracked, collective_axes)
    axes, count = _group_of(operation, collective_axes)
    bind(
        copy_gmem_to_smem_p,
        src,
        dst,
        barrier,
        as_predicate(predicate),
        collective_axes=axes,
        group_size=count,
        partition=partition if axes else None,
        axis=axis if axes else None,
        oob_mode=(oob_mode or OOBFillMode.ZEROS).name,
    )


def _partition(operation: str, leader_tracked: Any, collective_axes: Any) -> tuple[str | None, int | None]:
    if leader_tracked is None:
        return None, None
    if collective_axes is None:
        raise type_error(
            operation, "leader_tracked needs collective_axes: name the cluster axes whose CTAs copy together."
        )
    # By name, so that the enumerations of other implementations of the language are taken too.
    if type(leader_tracked).__name__ == "PARTITIONED":
        return "partitioned", int(leader_tracked.axis)
    if leader_tracked == CopyPartition.REPLICATED or "REPLICATED" in type(leader_tracked).__name__.upper():
        return "replicated", None
    raise type_error(
        operation,
        f"leader_tracked must be CopyPartition.PARTITIONED(axis) or CopyPartition.REPLICATED, got {leader_tracked!r}.",
    )


def copy_smem_to_gmem(
    src: Any,
    dst: Any,
    predicate: bool | jax.Array | None = None,
    *,
    commit_group: bool = True,
    reduction_op: str | None = None,
) -> None:
    """Starts copying shared memory into a box of global memory.

    Values stored to `src` by this warpgroup need a `commit_smem()` first.

    Args:
      src: ref in SMEM.
      dst: ref in GMEM, same shape and dtype as `src` after slicing.
      predicate: scalar boolean; False skips the copy.
      commit_group: close a group with this copy, so that `wait_smem_to_gmem` counts it.
      reduction_op: combine with what is in GMEM instead of overwriting it: "add", "min", "max", "and", "or", "xor",
        "inc" or "dec".

    Raises:
      KernelTypeError: wrong memory space, shapes or dtypes that differ, or an unknown reduction.
    """
    name = getattr(reduction_op, "name", reduction_op)
    operation = name.lower() if isinstance(name, str) else name
    bind(
        copy_smem_to_gmem_p,
        src,
        dst,
        as_predicate(predicate),
        commit_group=bool(commit_group),
        reduction_op=operation,
    )


def async_prefetch(
    ref: Any,
    *,
    collective_axes: str | tuple[str, ...] | None = None,
    leader_tracked: Any = None,
    predicate: bool | jax.Array | None = None,
) -> None:
    """Starts bringing a box of global memory into L2.

    Args:
      ref: ref in GMEM.
      collective_axes: cluster axes; each CTA along them prefetches a part.
      leader_tracked: as of `copy_gmem_to_smem`; it does not change what is prefetched.
      predicate: scalar boolean; False skips it.

    Raises:
      KernelTypeError: not a ref in GMEM.
    """
    _partition("async_prefetch", leader_tracked, collective_axes)
    axes, count = _group_of("async_prefetch", collective_axes)
    bind(async_prefetch_p, ref, as_predicate(predicate), collective_axes=axes, group_size=count)


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
    bind(wait_smem_to_gmem_p, n=n, wait_read_only=bool(wait_read_only))


def commit_smem() -> None:
    """Makes this warpgroup's stores to SMEM visible to TMA and the tensor core (the async proxy)."""
    bind(commit_smem_p)
