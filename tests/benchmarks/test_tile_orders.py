"""Orders of tiles: every tile once, and near ones together."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.accuracy.tile_orders import along_hilbert_curve, in_groups, row_by_row


def tiles_of(order, count):
    rows, columns = jax.vmap(order)(jnp.arange(count, dtype=jnp.int32))
    return list(zip(np.asarray(rows).tolist(), np.asarray(columns).tolist(), strict=True))


@pytest.mark.parametrize("side", [2, 4, 16])
def test_a_hilbert_curve_goes_from_neighbour_to_neighbour(side: int):
    tiles = tiles_of(lambda number: along_hilbert_curve(number, side), side * side)
    assert sorted(tiles) == [(row, column) for row in range(side) for column in range(side)]
    steps = {abs(a - c) + abs(b - d) for (a, b), (c, d) in itertools.pairwise(tiles)}
    assert steps == {1}


def test_groups_are_filled_one_after_another():
    tiles = tiles_of(lambda number: in_groups(number, 4, (2, 2)), 8)
    assert tiles == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2), (1, 3)]
    assert tiles_of(lambda number: row_by_row(number, 3), 4) == [(0, 0), (0, 1), (0, 2), (1, 0)]
