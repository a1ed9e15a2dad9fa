"""Accesses by the warpgroup itself that say more than `ref[...]`: layouts, atomics, stores to other CTAs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax.core import ShapedArray

from mgpu.jax_internals import TransformedRef, TransposeTransform, hide_from_source_lines
from mgpu.lang.barriers import require_barrier
from mgpu.lang.cluster_refs import cluster_ref, with_transform
from mgpu.lang.layouts import check_layout
from mgpu.lang.memory import GMEM, SMEM
from mgpu.lang.primitive import View, bind, define_operation, describe, is_ref, require_ref, type_error

hide_from_source_lines(__file__)

ATOMICS = ("add", "max", "min", "and", "or", "xor")


def _require_memory(operation: str, ref: Any) -> View:
    if not isinstance(ref, View) or ref.space not in (SMEM, GMEM):
        raise type_error(operation, f"ref must be a ref in SMEM or GMEM, got {describe(ref)}.")
    return ref


def _require_value(operation: str, ref: View, value: Any) -> None:
    if isinstance(value, View) or value.shape != ref.shape or value.dtype != ref.dtype:
        raise type_error(
            operation, f"value is {describe(value)} but ref is {ref}. Convert or broadcast the value to the ref's type."
        )


def _check_load(ref: Any, *, layout: Any, optimized: bool) -> ShapedArray:
    del optimized
    ref = _require_memory("load", ref)
    check_layout("load", layout, ref.shape)
    return ShapedArray(ref.shape, ref.dtype)


def _check_store(ref: Any, value: Any, *, optimized: bool) -> list[ShapedArray]:
    ref = _require_memory("store", ref)
    _require_value("store", ref, value)
    if optimized and ref.space is GMEM:
        raise type_error("store", f"no optimized store to GMEM exists, got {ref}. Pass optimized=False.")
    return []


def _check_atomic(ref: Any, value: Any, *, operation: str) -> list[ShapedArray]:
    name = f"atomic_{operation}"
    ref = _require_memory(name, ref)
    _require_value(name, ref, value)
    if operation in ("and", "or", "xor") and not jnp.issubdtype(ref.dtype, jnp.integer):
        raise type_error(name, f"works on integers, and ref is {ref}.")
    if ref.dtype.itemsize < 2:
        raise type_error(name, f"works on elements of at least 16 bits, and ref is {ref}. Widen the elements.")
    return []


def _check_async_store(value: Any, ref: Any, barrier: Any, *, atomic: str | None) -> list[ShapedArray]:
    operation = "async_store_smem"
    ref = require_ref(operation, "ref", ref, SMEM)
    require_barrier(operation, barrier)
    _require_value(operation, ref, value)
    if atomic is not None and atomic not in ATOMICS:
        raise type_error(operation, f"atomic must be one of {', '.join(ATOMICS)} or None, got {atomic!r}.")
    return []


load_p = define_operation("load", _check_load, multiple_results=False)
store_p = define_operation("store", _check_store)
atomic_p = define_operation("atomic", _check_atomic)
async_store_smem_p = define_operation("async_store_smem", _check_async_store)


def load(src: Any, idx: Any = (), *, layout: Any = None, optimized: bool = True) -> jax.Array:
    """Reads a ref into an array.

    Args:
      src: ref in SMEM or GMEM.
      idx: index or tuple of indices, as in `src[idx]`; `()` or `...` for all.
      layout: register layout of the result.
      optimized: insist on vector loads without bank conflicts. Costs are those of such loads either way.

    Raises:
      KernelTypeError: not a ref in memory, or a layout that does not divide the shape.
    """
    if not is_ref(src):
        raise type_error("load", f"src must be a ref in SMEM or GMEM, got {describe(src)}.")
    whole = idx is ... or (isinstance(idx, tuple) and (idx in ((), (...,))))
    return bind(load_p, src if whole else src.at[idx], layout=layout, optimized=bool(optimized))


def store(dst: Any, value: Any, *, optimized: bool = True) -> None:
    """Writes an array to a ref.

    Args:
      dst: ref in SMEM or GMEM.
      value: array of the ref's shape and dtype.
      optimized: insist on vector stores without bank conflicts; GMEM has none.

    Raises:
      KernelTypeError: not a ref in memory, a value of another type, or an optimized store to GMEM.
    """
    bind(store_p, dst, jnp.asarray(value), optimized=bool(optimized))


def _atomic(operation: str, ref: Any, value: Any) -> None:
    dtype = getattr(ref, "dtype", None)
    array = jnp.asarray(value) if hasattr(value, "dtype") else jnp.asarray(value, dtype)
    shape = getattr(ref, "shape", None)
    if array.shape == () and shape:
        array = jnp.broadcast_to(array, shape)
    bind(atomic_p, ref, array, operation=operation)


def atomic_add(ref: Any, val: Any, *, optimized: bool = True) -> None:
    """Adds `val` to each element of a ref, each as one atomic operation; nothing is returned.

    Args:
      ref: ref in SMEM or GMEM, elements of at least 16 bits.
      val: array of the ref's shape, or a scalar, of its dtype.
      optimized: insist on vector instructions; the cost is the same.

    Raises:
      KernelTypeError: not a ref in memory, or a value of another type.
    """
    del optimized
    _atomic("add", ref, val)


def atomic_max(ref: Any, val: Any, *, optimized: bool = True) -> None:
    """Replaces each element of a ref by the larger of itself and `val`; arguments as `atomic_add`."""
    del optimized
    _atomic("max", ref, val)


def atomic_min(ref: Any, val: Any, *, optimized: bool = True) -> None:
    """Replaces each element of a ref by the smaller of itself and `val`; arguments as `atomic_add`."""
    del optimized
    _atomic("min", ref, val)


def atomic_and(ref: Any, val: Any, *, optimized: bool = True) -> None:
    """Combines each integer element of a ref with `val` by bitwise and; arguments as `atomic_add`."""
    del optimized
    _atomic("and", ref, val)


def atomic_or(ref: Any, val: Any, *, optimized: bool = True) -> None:
    """Combines each integer element of a ref with `val` by bitwise or; arguments as `atomic_add`."""
    del optimized
    _atomic("or", ref, val)


def atomic_xor(ref: Any, val: Any, *, optimized: bool = True) -> None:
    """Combines each integer element of a ref with `val` by bitwise exclusive or; arguments as `atomic_add`."""
    del optimized
    _atomic("xor", ref, val)


def async_store_smem(
    src: jax.Array,
    ref: Any,
    barrier: Any,
    *,
    cluster_idx: Any,
    cluster_dim: Hashable,
    optimized: bool = True,
    atomic: Literal["add", "max", "min", "and", "or", "xor"] | None = None,
) -> None:
    """Starts storing an array to the SMEM of a CTA of the cluster; a barrier of that CTA tells when it has landed.

    The store counts as one arrival on the barrier, together with its bytes.

    Args:
      src: array of the ref's shape and dtype.
      ref: ref to one's own SMEM buffer; the same buffer of the other CTA is written.
      barrier: ref to one's own barrier; the same barrier of the other CTA is signalled.
      cluster_idx: index of the other CTA along `cluster_dim`.
      cluster_dim: name of the cluster axis.
      optimized: insist on stores without bank conflicts; the cost is the same.
      atomic: combine with what is there instead of overwriting it.

    Raises:
      KernelTypeError: wrong memory space, or types that differ.
    """
    del optimized
    there = {cluster_dim: cluster_idx}
    bind(async_store_smem_p, jnp.asarray(src), at_peer(ref, there), at_peer(barrier, there), atomic=atomic)


def at_peer(ref: Any, block_id: Any) -> TransformedRef:
    """Returns the same view of the same buffer in another CTA: `cluster_ref` beneath the transforms of `ref`."""
    if not isinstance(ref, TransformedRef):
        return cluster_ref(ref, block_id)
    base = cluster_ref(ref.ref, block_id)
    return TransformedRef(base.ref, (*base.transforms, *ref.transforms))


def transform_ref(ref: Any, transform: Any) -> TransformedRef:
    """Returns a ref with one more transform on it.

    Args:
      ref: a ref, or a slice of one.
      transform: what `ref.at[...]`, `ref.reshape` and the like would add.

    Raises:
      KernelTypeError: not a ref, or not a transform.
    """
    if not is_ref(ref) or not hasattr(transform, "transform_type"):
        raise type_error("transform_ref", f"takes a ref and a transform of it, got {ref!r} and {transform!r}.")
    return with_transform(ref, transform)


def transpose_ref(ref: Any, permutation: tuple[int, ...]) -> TransformedRef:
    """Returns a ref with its dimensions exchanged; nothing is moved.

    Args:
      ref: a ref, or a slice of one.
      permutation: for each dimension of the result, which one of `ref` it is.

    Raises:
      KernelTypeError: not a ref, or not a permutation of its dimensions.
    """
    if not is_ref(ref):
        raise type_error("transpose_ref", f"ref must be a ref, got {type(ref).__name__}.")
    permutation = tuple(int(axis) for axis in permutation)
    if sorted(permutation) != list(range(len(ref.shape))):
        raise type_error(
            "transpose_ref", f"permutation {permutation} does not order the {len(ref.shape)} dimensions of the ref."
        )
    return with_transform(ref, TransposeTransform(permutation))
