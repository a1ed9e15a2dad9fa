"""Refs while a program is replayed: `.at[...]`, transposes and the like, applied to JAX's own refs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu

from mgpu.errors import Unsupported
from mgpu.gpu.allocations import is_member
from mgpu.jax_internals import BitcastTransform, NDIndexer, ReshapeTransform, TransformedRef, TransposeTransform
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.cluster_refs import PeerCtaTransform
from mgpu.lang.primitive import View
from mgpu.lang.ref_union import UnionMemberTransform


class UnionRefs:
    """A ref to a union of buffers, unpacked: JAX's ref for each member.

    Args:
      groups: groups of members, as our aval of the union tells them.
      ref: JAX's ref to the union.
    """

    def __init__(self, groups: Any, ref: Any) -> None:
        members = jax.tree.leaves(tuple(groups), is_leaf=is_member)
        refs = jax.tree.leaves(tuple(ref), is_leaf=lambda x: isinstance(x, TransformedRef))
        self._members = list(zip(members, refs, strict=True))

    def select(self, member: Any) -> Any:
        """Returns JAX's ref for a member."""
        return next(ref for each, ref in self._members if each == member)


def apply_transforms(ref: Any, transforms: Sequence[Any]) -> Any:
    """Returns `ref` (of JAX's module) with the transforms of a View on it.

    Raises:
      Unsupported: a transform that JAX's module has no counterpart of.
    """
    for transform in transforms:
        apply = _APPLY.get(type(transform))
        if apply is None:
            raise Unsupported(
                f"{type(transform).__name__} on a ref: not available on the GPU. Use slices, transposes and reshapes."
            )
        ref = apply(ref, transform)
    return ref


_APPLY: Mapping[type, Callable[[Any, Any], Any]] = {
    NDIndexer: lambda ref, transform: ref.at[tuple(transform.indices)],
    TransposeTransform: lambda ref, transform: ref.transpose(tuple(transform.permutation)),
    ReshapeTransform: lambda ref, transform: ref.reshape(tuple(transform.shape)),
    BitcastTransform: lambda ref, transform: ref.bitcast(transform.dtype),
    UnionMemberTransform: lambda ref, transform: ref.select(transform),
    PeerCtaTransform: lambda ref, transform: mosaic_gpu.cluster_ref(
        ref, dict(zip(transform.axes, transform.indices, strict=True))
    ),
}


def single_barrier(ref: Any) -> Any:
    """Returns the one barrier that `ref` selects: JAX's operations take no array, not even one of a single barrier."""
    return ref.at[(0,) * len(ref.shape)] if ref.shape else ref


def is_barrier(view: Any) -> bool:
    """True if a View is of barriers."""
    return isinstance(view, View) and isinstance(view.base.memory_space, BarrierSpace)


def slot_terms(shape: Sequence[int], transforms: Sequence[Any]) -> list[tuple[Any, int]]:
    """Returns which slot of a barrier array is selected, as terms whose sum it is: (index, stride in slots).

    Args:
      shape: shape of the array.
      transforms: what selects the barrier. Indices may be ints, arrays or jaxpr atoms; they are passed on as they are.
    """
    terms: list[tuple[Any, int]] = []
    indices: list[tuple[int, Any]]
    remaining = list(range(len(shape)))  # dimensions that no integer has indexed yet
    for transform in transforms:
        if not isinstance(transform, NDIndexer):
            continue  # the same slot of another CTA's array
        indices = list(zip(remaining, transform.indices, strict=True))
        remaining = [number for number, index in indices if isinstance(index, (pl.Slice, slice))]
        for number, index in indices:
            start = index.start if number in remaining else index
            if not (isinstance(start, (int, np.integer)) and start == 0):
                terms.append((start, math.prod(shape[number + 1 :])))
    return terms


def slot_number(terms: Sequence[tuple[Any, int]]) -> Any:
    """Returns the sum of slot terms, an int or a scalar array, without adding what changes nothing."""
    slot: Any = 0
    for index, stride in terms:
        scaled = index if stride == 1 else index * stride
        slot = scaled if isinstance(slot, int) and slot == 0 else slot + scaled
    return slot
