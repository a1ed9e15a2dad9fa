"""Multi-level tilings: how the dimensions of an array are split into tiles, tiles of tiles, and so on."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from mgpu.errors import KernelTypeError

Shape = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Tiling:
    """Splits the trailing dimensions of an array, level by level (https://openxla.org/xla/tiled_layout).

    A level with a tile of rank r splits each of the last r dimensions in two: which tile, and where in the tile. All
    positions within the tile come last.

    Attributes:
      tiles: the tile of each level, outermost first.

    Raises:
      KernelTypeError: a tile size below 1.
    """

    tiles: tuple[Shape, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", tuple(tuple(int(size) for size in tile) for tile in self.tiles))
        if any(size < 1 for tile in self.tiles for size in tile):
            raise KernelTypeError(f"Tiling: tile sizes must be positive, got {self.tiles}.")

    def tile_shape(self, shape: Sequence[int]) -> Shape:
        """Returns the shape of a tiled array.

        Raises:
          KernelTypeError: a tile that does not divide the dimensions that it splits.
        """
        shape = tuple(shape)
        for tile in self.tiles:
            head, tail = self._split(shape, tile)
            if any(size % part for size, part in zip(tail, tile, strict=True)):
                raise KernelTypeError(f"Tiling: tile {tile} does not divide {shape}. Pad the array or change the tile.")
            shape = (*head, *(size // part for size, part in zip(tail, tile, strict=True)), *tile)
        return shape

    def untile_shape(self, shape: Sequence[int]) -> Shape:
        """Returns the shape of the array whose tiled shape is `shape`."""
        shape = tuple(shape)
        for tile in reversed(self.tiles):
            rank = len(tile)
            if len(shape) < 2 * rank or shape[-rank:] != tile:
                raise KernelTypeError(
                    f"Tiling: {shape} does not end in the tile {tile}; it is not the shape of a tiled array."
                )
            head, counts = shape[: -2 * rank], shape[-2 * rank : -rank]
            shape = (*head, *(count * part for count, part in zip(counts, tile, strict=True)))
        return shape

    def tile_indices(self, indices: Sequence[int]) -> Shape:
        """Returns where an element lies in the tiled array."""
        indices = tuple(indices)
        for tile in self.tiles:
            head, tail = self._split(indices, tile)
            which = tuple(index // part for index, part in zip(tail, tile, strict=True))
            within = tuple(index % part for index, part in zip(tail, tile, strict=True))
            indices = (*head, *which, *within)
        return indices

    def untile_indices(self, indices: Sequence[int]) -> Shape:
        """Returns where an element of the tiled array lies in the array."""
        indices = tuple(indices)
        for tile in reversed(self.tiles):
            rank = len(tile)
            head, which, within = indices[: -2 * rank], indices[-2 * rank : -rank], indices[-rank:]
            indices = (*head, *(w * part + i for w, part, i in zip(which, tile, within, strict=True)))
        return indices

    def tile_strides(self, strides: Sequence[int]) -> Shape:
        """Returns the strides of the tiled view of an array with the given strides."""
        strides = tuple(strides)
        for tile in self.tiles:
            head, tail = self._split(strides, tile)
            strides = (*head, *(stride * part for stride, part in zip(tail, tile, strict=True)), *tail)
        return strides

    @staticmethod
    def _split(values: Shape, tile: Shape) -> tuple[Shape, Shape]:
        if len(tile) > len(values):
            raise KernelTypeError(f"Tiling: tile {tile} has more dimensions than {values}.")
        return values[: len(values) - len(tile)], values[len(values) - len(tile) :]
