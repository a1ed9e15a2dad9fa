"""Slices of tiled SMEM at offsets that the kernel computes: they have to begin where a tile does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from jax.experimental import pallas as pl

from mgpu.errors import OutOfBoundsError
from mgpu.lang.transforms import TilingTransform
from mgpu.sim.compile.context import Context, Known


def tiles_of(memory_space: Any, rank: int) -> tuple[int, ...]:
    """Returns the tile size along each dimension of a buffer; 1 where it is not tiled."""
    transforms = getattr(memory_space, "transforms", ())
    tiling = next((each.tiling for each in transforms if isinstance(each, TilingTransform)), ())
    return (1,) * (rank - len(tiling)) + tiling


def check_tiles(context: Context, name: str, indices: Sequence[Any], tiles: Sequence[int]) -> tuple[int, ...]:
    """Emits the checks of one `.at[...]`, and returns the tile sizes of the dimensions that it leaves.

    Offsets known while tracing have been checked by `mgpu.passes.smem_layout`.
    """
    for index, tile in zip(indices, tiles, strict=True):
        if tile == 1 or not isinstance(index, pl.Slice) or isinstance(index.start, (int, np.integer)):
            continue
        value = context.read(index.start)
        if not (isinstance(value, Known) and value.value % tile == 0):
            start = context.expression(index.start)
            context.emitter.line(f"if {start} % {tile}: fail_tile({start}, {tile}, {name!r})")
    return tuple(tile for index, tile in zip(indices, tiles, strict=True) if isinstance(index, pl.Slice))


def fail_tile(start: int, tile: int, name: str) -> NoReturn:
    """Raises the error for a slice that begins inside a tile."""
    raise OutOfBoundsError(
        f"a slice of {name} begins at {start}, inside a tile: {name} is tiled by {tile} there. "
        f"On the device it would begin elsewhere. Make the offset a multiple of {tile}."
    )


NAMESPACE = {"fail_tile": fail_tile}
