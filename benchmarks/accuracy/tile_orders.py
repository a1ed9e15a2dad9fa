"""In which order a matmul computes its output tiles: from a tile's number to its row and column of tiles.

Written for traced integers, so that a kernel computes it for the tile that it is at.
"""

from __future__ import annotations

from typing import Any

from jax import lax


def row_by_row(number: Any, columns: int) -> tuple[Any, Any]:
    """Returns row and column when tiles are taken along rows of `columns` tiles."""
    return lax.div(number, columns), lax.rem(number, columns)


def in_groups(number: Any, columns: int, group: tuple[int, int]) -> tuple[Any, Any]:
    """Returns row and column when tiles are taken group by group, both row by row.

    Args:
      number: of the tile.
      columns: of tiles, a multiple of the group's.
      group: rows and columns of tiles in a group.
    """
    rows, width = group
    which, inside = lax.div(number, rows * width), lax.rem(number, rows * width)
    group_row, group_column = row_by_row(which, columns // width)
    row, column = row_by_row(inside, width)
    return group_row * rows + row, group_column * width + column


def along_hilbert_curve(number: Any, side: int) -> tuple[Any, Any]:
    """Returns row and column of a point on the Hilbert curve that fills a square of tiles.

    Goes through the levels of the curve from the smallest square to the whole one. At each level two bits of the number
    say in which quadrant the point lies; the first and the last quadrant hold the curve mirrored.

    Args:
      number: distance along the curve.
      side: of the square, a power of two.
    """
    row = column = 0
    size, rest = 1, number
    while size < side:
        quadrant = lax.rem(rest, 4)
        is_first, is_last = quadrant == 0, quadrant == 3
        turned_row = lax.select(is_last, size - 1 - column, column + 0 * quadrant)
        turned_column = lax.select(is_last, size - 1 - row, row + 0 * quadrant)
        turns = is_first | is_last
        row = lax.select(turns, turned_row, row + 0 * quadrant)
        column = lax.select(turns, turned_column, column + 0 * quadrant)
        row = row + size * lax.div(quadrant, 2)
        column = column + size * lax.rem(lax.div(quadrant + 1, 2), 2)
        rest, size = lax.div(rest, 4), 2 * size
    return row, column
