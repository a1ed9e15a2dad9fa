"""How the part of an SMEM buffer that a ref operand selects is tiled and swizzled.

A buffer's transforms belong to its memory space and describe its trailing dimensions. Slicing, transposing, reshaping
or bitcasting the ref changes those dimensions, and here the tiles follow them. Mosaic GPU's compiler does the same and
refuses the same reshapes: those after which the buffer is no array of tiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from jax.experimental import pallas as pl

from mgpu.errors import KernelTypeError
from mgpu.frontend.regions import Step
from mgpu.jax_internals import BitcastTransform, NDIndexer, ReshapeTransform, TransposeTransform
from mgpu.lang.primitive import View
from mgpu.lang.ref_union import UnionMemberTransform
from mgpu.lang.transforms import SwizzleTransform, TilingTransform, bits_of


@dataclasses.dataclass(frozen=True)
class SmemLayout:
    """Tiles of a selection.

    Attributes:
      shape: logical shape of the selection.
      tiles: tile size along each dimension; None where the dimension is not tiled.
      swizzle: span in bytes; 0 without.
    """

    shape: tuple[int, ...]
    tiles: tuple[int | None, ...]
    swizzle: int

    @property
    def is_plain(self) -> bool:
        """True if the elements lie row by row."""
        return self.swizzle == 0 and not any(self.tiles)

    @property
    def tiling(self) -> tuple[int, ...]:
        """Sizes of a tile along the tiled dimensions."""
        return tuple(tile for tile in self.tiles if tile is not None)

    @property
    def box(self) -> tuple[int, ...]:
        """How many tiles, or elements where it is not tiled, lie along each dimension."""
        return tuple(size // (tile or 1) for size, tile in zip(self.shape, self.tiles, strict=True))

    def __str__(self) -> str:
        parts = [f"tiling{self.tiling}"] if self.tiling else []
        return ", ".join(parts + ([f"swizzle({self.swizzle})"] if self.swizzle else [])) or "plain rows"


def layout_of(step: Step, view: View) -> SmemLayout:
    """Returns the layout of a ref operand.

    Args:
      step: the equation whose operand it is, for the error.
      view: the operand.

    Raises:
      KernelTypeError: a reshape or slice that tears tiles apart; names the user's line and the buffer.
    """
    aval: Any = view.base
    layout = _of_buffer(aval)
    for transform in view.transforms:
        before, aval = aval, transform.transform_type(aval)
        if isinstance(transform, NDIndexer):
            _check_cuts(step, step.refs[view.ref].name, layout, transform.indices)
            kept = [not _drops(index) for index in transform.indices]
            tiles = tuple(tile for tile, is_kept in zip(layout.tiles, kept, strict=True) if is_kept)
            layout = dataclasses.replace(layout, shape=tuple(aval.shape), tiles=tiles)
        elif isinstance(transform, TransposeTransform):
            tiles = tuple(layout.tiles[axis] for axis in transform.permutation)
            layout = dataclasses.replace(layout, shape=tuple(aval.shape), tiles=tiles)
        elif isinstance(transform, ReshapeTransform):
            layout = _reshape(step, step.refs[view.ref].name, layout, tuple(aval.shape))
        elif isinstance(transform, BitcastTransform):
            layout = _bitcast(step, layout, before, aval)
        elif isinstance(transform, UnionMemberTransform):
            layout = _of_buffer(aval)
    return layout


def _of_buffer(aval: Any) -> SmemLayout:
    transforms = getattr(aval.memory_space, "transforms", ())
    shape = tuple(getattr(aval, "shape", ()))
    tiling = next((transform.tiling for transform in transforms if isinstance(transform, TilingTransform)), ())
    swizzle = next((transform.swizzle for transform in transforms if isinstance(transform, SwizzleTransform)), 0)
    return SmemLayout(shape, (None,) * (len(shape) - len(tiling)) + tiling, swizzle)


def _drops(index: Any) -> bool:
    """True for an integer index, which drops its dimension."""
    return not hasattr(index, "size") and getattr(getattr(index, "aval", index), "shape", ()) == ()


def _check_cuts(step: Step, name: str, layout: SmemLayout, indices: Sequence[Any]) -> None:
    """A part of a tiled buffer consists of whole tiles. Offsets that are computed are checked when they are known."""
    for axis, (index, tile) in enumerate(zip(indices, layout.tiles, strict=True)):
        if tile is None:
            continue
        if not isinstance(index, pl.Slice):
            got, cut = "an integer index" if _drops(index) else "an array of indices", True
        else:
            got = f"start {index.start}, size {index.size} and step {index.stride}"
            known = [index.size, index.start] if isinstance(index.start, int) else [index.size]
            cut = index.stride != 1 or any(value % tile for value in known)
        if cut:
            raise KernelTypeError(
                f"{step.source} {step.equation.primitive.name}: {name} {list(layout.shape)}, laid out as {layout}, "
                f"is indexed along dimension {axis} with {got}; a part of it consists of whole tiles. Use slices whose "
                f"start and size are multiples of {tile}, or load the tile and index the loaded array."
            )


def _bitcast(step: Step, layout: SmemLayout, before: Any, after: Any) -> SmemLayout:
    if layout.tiling and bits_of(before.dtype) != bits_of(after.dtype):
        raise KernelTypeError(
            f"{step.source} bitcast: a buffer laid out as {layout} is seen as elements of another size, {before.dtype} "
            f"as {after.dtype}. Allocate it without transforms, or put both types into a RefUnion."
        )
    tiles = layout.tiles if layout.tiling else (None,) * len(after.shape)
    return dataclasses.replace(layout, shape=tuple(after.shape), tiles=tiles)


def _reshape(step: Step, name: str, layout: SmemLayout, shape: tuple[int, ...]) -> SmemLayout:
    if not layout.tiling:
        return dataclasses.replace(layout, shape=shape, tiles=(None,) * len(shape))
    groups = _folded_dimensions(layout.shape, shape)
    where = f"{step.source} reshape: {name} {list(layout.shape)}, laid out as {layout}, cannot become {list(shape)}"
    if groups is None:
        raise KernelTypeError(
            f"{where}: a tiled buffer's dimensions can be folded together, but not split. Allocate it with the "
            "dimensions that the kernel needs."
        )
    tiles = []
    for group in groups:
        sides = [layout.tiles[axis] for axis in group]
        if None in sides and any(sides):
            raise KernelTypeError(
                f"{where}: it folds a dimension that is not tiled into one that is. Tile both, with a size of 1 for "
                "the outer one, as in TilingTransform((1, 8, 64))."
            )
        if any(side not in (None, 1) for side in sides[:-1]):
            raise KernelTypeError(
                f"{where}: it folds dimensions {[layout.shape[axis] for axis in group]} with tile sizes {sides}, and "
                "all but the last of them must have tiles of size 1. Change the tiling, or index the buffer unfolded."
            )
        tiles.append(sides[-1])
    return dataclasses.replace(layout, shape=shape, tiles=tuple(tiles))


def _folded_dimensions(old: Sequence[int], new: Sequence[int]) -> list[list[int]] | None:
    """Returns for each new dimension the old ones whose product it is; None if there are none such."""
    groups: list[list[int]] = []
    rest = list(range(len(old)))
    for number, size in enumerate(new):
        group: list[int] = []
        while rest and (not group or math.prod(old[axis] for axis in group) < size or number == len(new) - 1):
            group.append(rest.pop(0))
        if not group or math.prod(old[axis] for axis in group) != size:
            return None
        groups.append(group)
    return groups
