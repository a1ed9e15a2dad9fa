"""Layout transforms of SMEM: tiling and swizzle, as TMA and the tensor core want them.

A ref keeps its logical shape; the transforms say how bytes lie. TMA and wgmma need tiles of 8 rows by one swizzle
span (128, 64 or 32 bytes), swizzled by that span (PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions",
shared memory matrix layout).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgpu.errors import KernelTypeError

SWIZZLES_BYTES = (16, 32, 64, 128)


@dataclasses.dataclass(frozen=True)
class TilingTransform:
    """Stores the trailing dimensions as tiles: each tile contiguous, tiles in row-major order.

    Attributes:
      tiling: size of a tile along each of the last `len(tiling)` dimensions, in elements.
    """

    tiling: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiling", tuple(int(size) for size in self.tiling))
        if not self.tiling or min(self.tiling) < 1:
            raise KernelTypeError(f"TilingTransform: tile sizes must be positive, got {self.tiling}.")

    def __str__(self) -> str:
        return f"tiling{self.tiling}"


@dataclasses.dataclass(frozen=True)
class SwizzleTransform:
    """Permutes 16-byte units within 8 rows so that column accesses spread over the SMEM banks.

    Attributes:
      swizzle: span in bytes: 16 (none), 32, 64 or 128.
    """

    swizzle: int

    def __post_init__(self) -> None:
        if self.swizzle not in SWIZZLES_BYTES:
            raise KernelTypeError(f"SwizzleTransform: swizzle is 16, 32, 64 or 128 bytes, got {self.swizzle!r}.")

    def __str__(self) -> str:
        return f"swizzle({self.swizzle})"


def bits_of(dtype: Any) -> int:
    """Returns the size of an element in bits; 4 for int4."""
    dtype = np.dtype(dtype)
    return 4 if dtype.name in ("int4", "uint4", "float4_e2m1fn") else dtype.itemsize * 8


def find_swizzle(minor_dim_bits: int, what: str = "") -> int:
    """Returns the widest swizzle in bytes that divides a row of `minor_dim_bits`.

    Args:
      minor_dim_bits: size of the minor-most dimension in bits.
      what: name of the operand, for the error.

    Raises:
      KernelTypeError: not even 16 bytes divide it.
    """
    for swizzle in reversed(SWIZZLES_BYTES):
        if minor_dim_bits % (swizzle * 8) == 0:
            return swizzle
    raise KernelTypeError(
        f"{what or 'operand'}: a row of {minor_dim_bits} bits is not a multiple of 16 bytes, so no swizzle fits. "
        "Pad the minor dimension."
    )


def check_transforms(shape: Sequence[int], dtype: Any, transforms: Sequence[Any]) -> None:
    """Checks that `transforms` can lay out an SMEM buffer of `shape` and `dtype`.

    Raises:
      KernelTypeError: a transform of unknown type, a tile that does not divide the shape, or a swizzle whose span is
        not the tile's row.
    """
    minor = list(shape)
    for index, transform in enumerate(transforms):
        if isinstance(transform, TilingTransform):
            _check_tiling(minor, transform)
            minor = [*minor, *transform.tiling]
        elif isinstance(transform, SwizzleTransform):
            _check_swizzle(minor, dtype, transform, is_last=index == len(transforms) - 1)
        else:
            raise KernelTypeError(
                f"transforms[{index}] is {transform!r}; expected TilingTransform(...) or SwizzleTransform(...)."
            )


def _check_tiling(shape: Sequence[int], transform: TilingTransform) -> None:
    tiling = transform.tiling
    tail = tuple(shape[-len(tiling) :]) if len(tiling) <= len(shape) else ()
    if len(tail) != len(tiling) or any(size % tile for size, tile in zip(tail, tiling, strict=True)):
        raise KernelTypeError(
            f"{transform} does not divide shape {tuple(shape)}. Each tile size must divide the dimension it tiles; "
            "change the tile or pad the buffer."
        )


def _check_swizzle(shape: Sequence[int], dtype: Any, transform: SwizzleTransform, *, is_last: bool) -> None:
    if not is_last:
        raise KernelTypeError(f"{transform} must be the last transform: put TilingTransform before it.")
    row_bits = math.prod(shape[-1:]) * bits_of(dtype)
    if row_bits != transform.swizzle * 8:
        elements = transform.swizzle * 8 // bits_of(dtype)
        raise KernelTypeError(
            f"{transform} needs rows of {transform.swizzle} bytes, but the minor dimension is {shape[-1]} x "
            f"{np.dtype(dtype).name} = {row_bits // 8} bytes. "
            f"Tile it first: transforms=(TilingTransform((8, {elements})), SwizzleTransform({transform.swizzle}))."
        )
