"""Whether what a ref's transforms select is one piece of memory, in order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax.experimental import pallas as pl

from mgpu.jax_internals import BitcastTransform, NDIndexer, ReshapeTransform, TransposeTransform
from mgpu.lang.primitive import View


def is_contiguous(view: View) -> bool:
    """True if the elements of a view lie side by side, row after row; False also if that cannot be told."""
    aval: Any = view.base
    strides: list[int] | None = _row_major(aval.shape)
    for transform in view.transforms:
        strides = _apply(transform, aval.shape, strides)
        if strides is None:
            return False
        aval = transform.transform_type(aval)
        if isinstance(transform, (ReshapeTransform, BitcastTransform)):
            strides = _row_major(aval.shape)
    return _is_row_major(aval.shape, strides)


def _apply(transform: Any, shape: Sequence[int], strides: list[int]) -> list[int] | None:
    """Returns the distances of neighbours along each dimension after a transform; None if there are no such."""
    if isinstance(transform, TransposeTransform):
        return [strides[axis] for axis in transform.permutation]
    if isinstance(transform, (ReshapeTransform, BitcastTransform)):
        return strides if _is_row_major(shape, strides) else None
    if not isinstance(transform, NDIndexer):
        return None
    kept = []
    for index, stride in zip(transform.indices, strides, strict=True):
        if isinstance(index, pl.Slice):
            kept.append(stride * int(index.stride))
        elif getattr(getattr(index, "aval", index), "shape", ()):
            return None  # rows given by an array
    return kept


def _row_major(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]


def _is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    pairs = zip(shape, strides, _row_major(shape), strict=True)
    return all(size == 1 or stride == expected for size, stride, expected in pairs)
