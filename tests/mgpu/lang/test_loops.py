"""`nd_loop`, `planar_snake` and `dynamic_scheduling_loop` against JAX's own functions, which run under `vmap`."""

from __future__ import annotations

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental.pallas import mosaic_gpu as reference

import mgpu
from mgpu.errors import KernelTypeError

MAX_STEPS = 64


def visited(module: Any, grid: tuple[Any, ...], sizes: tuple[int, ...], *, tiling: Any = None) -> jax.Array:
    """Returns what every participant sees at each of its steps: index, local index, number of steps."""
    axes = [f"axis{number}" for number in range(len(sizes))]

    def participant(_: Any) -> jax.Array:
        table = jnp.full((MAX_STEPS, len(grid) + 2), -1, jnp.int32)

        @module.nd_loop(
            grid, collective_axes=tuple(axes) if len(axes) > 1 else axes[0], tiling=tiling, init_carry=table
        )
        def last(info: Any, carry: jax.Array) -> jax.Array:
            row = jnp.stack([jnp.int32(x) for x in (*info.index, info.local_index, info.num_local_steps)])
            return carry.at[info.local_index].set(row)

        return last

    for axis in reversed(axes):
        participant = jax.vmap(participant, axis_name=axis)
    return participant(np.zeros(sizes))


@pytest.mark.parametrize(
    ("grid", "sizes", "tiling"),
    [
        ((5,), (3,), None),
        ((2, 3), (2, 3), None),
        ((3, 1, 4), (5,), None),
        ((4, 6), (2, 2), (2, 3)),
        ((2, 4, 2), (3,), (1, 2, 2)),
    ],
)
def test_nd_loop_deals_out_the_same_steps_as_jax(grid: Any, sizes: Any, tiling: Any) -> None:
    ours = visited(mgpu, grid, sizes, tiling=tiling)
    np.testing.assert_array_equal(ours, visited(reference, grid, sizes, tiling=tiling))


def test_nd_loop_of_the_documented_example() -> None:
    table = visited(mgpu, (2, 3), (4,))
    assert [tuple(row[:2]) for row in table[0][:2]] == [(0, 0), (1, 1)]
    assert [tuple(row[:2]) for row in table[1][:2]] == [(0, 1), (1, 2)]
    assert [tuple(row[:2]) for row in table[2][:1]] == [(0, 2)]
    assert [tuple(row[:2]) for row in table[3][:1]] == [(1, 0)]
    assert (table[2:, 1] == -1).all()


@pytest.mark.parametrize("minor_dim", [0, 1])
@pytest.mark.parametrize("tile_width", [1, 2, 3])
def test_planar_snake_follows_the_same_curve_as_jax(minor_dim: int, tile_width: int) -> None:
    def curve(module: Any) -> Any:
        def position(step: jax.Array, rows: jax.Array, columns: jax.Array) -> Any:
            return module.planar_snake(step, (rows, columns), minor_dim, tile_width)

        return jax.jit(jax.vmap(position, in_axes=(0, None, None)))

    ours, theirs, steps = curve(mgpu), curve(reference), np.arange(49)
    for rows in range(1, 8):
        for columns in range(1, 8):
            inside = slice(rows * columns)  # beyond the plane there is no right answer
            for index, expected in zip(ours(steps, rows, columns), theirs(steps, rows, columns), strict=True):
                np.testing.assert_array_equal(index[inside], expected[inside])


def test_planar_snake_visits_every_point_once_in_steps_of_one() -> None:
    rows, columns = jax.vmap(lambda step: mgpu.planar_snake(step, (6, 8), 0, 2))(np.arange(48))
    assert sorted(zip(rows.tolist(), columns.tolist(), strict=True)) == [(r, c) for r in range(6) for c in range(8)]
    assert (np.abs(np.diff(columns)) <= 1).all()  # no jumps along the major dimension


def test_a_persistent_kernel_shares_a_dynamic_grid_among_its_ctas() -> None:
    def body(rows_ref: Any, out_ref: Any) -> None:
        rows = rows_ref[0]

        @mgpu.nd_loop((rows, 3), collective_axes="sm")
        def _(info: mgpu.NDLoopInfo) -> None:
            row, column = info.index
            out_ref[row * 3 + column] = lax.axis_index("sm") * 100 + info.local_index

    run = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((12,), jnp.int32), grid=(5,), grid_names=("sm",))
    result = run(np.array([4, 0, 0, 0], np.int32))
    assert result.tolist() == [100 * (step % 5) + step // 5 for step in range(12)]


def test_a_dynamically_scheduled_kernel_does_the_work_of_every_cta_once() -> None:
    def body(out_ref: Any) -> None:
        @mgpu.dynamic_scheduling_loop(("m", "n"), init_carry=jnp.int32(7))
        def last(info: mgpu.NDLoopInfo, carry: jax.Array) -> jax.Array:
            m, n = info.index
            assert info.num_local_steps is None
            out_ref[m * 3 + n] = carry + info.local_index + m * 10 + n
            return carry + 1

        del last

    run = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((6,), jnp.int32), grid=(2, 3), grid_names=("m", "n"))
    assert run().tolist() == [7, 8, 9, 17, 18, 19]


@pytest.mark.parametrize(
    ("loop", "message"),
    [
        (
            lambda: mgpu.nd_loop((4, 6), collective_axes="sm", tiling=(2,)),
            r"test_loops\.py:\d+ nd_loop: tiling=\(2,\) has 1",
        ),
        (
            lambda: mgpu.nd_loop((3, 6), collective_axes="sm", tiling=(2, 2)),
            r"tiling=\(2, 2\) does not divide the grid \(3, 6\)",
        ),
        (lambda: mgpu.nd_loop(cast(Any, 6), collective_axes="sm"), r"nd_loop: grid must be a tuple of sizes, got 6"),
        (
            lambda: mgpu.nd_loop((-1,), collective_axes="sm"),
            r"grid=\(-1,\) holds -1; each size is an integer of at least 0",
        ),
        (lambda: mgpu.planar_snake(0, (4, 4), 2, 1), r"planar_snake: need minor_dim 0 or 1 and a positive tile_width"),
        (lambda: mgpu.dynamic_scheduling_loop(("m",)), r"dynamic_scheduling_loop: the kernel has no axis 'm'"),
    ],
)
def test_misuse_names_the_line_and_what_would_be_right(loop: Any, message: str) -> None:
    def body(out_ref: Any) -> None:
        del out_ref
        loop()

    run = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((8,), jnp.int32), grid=(2,), grid_names=("sm",))
    with pytest.raises(KernelTypeError, match=message):
        run()


@pytest.mark.parametrize(("grid", "sizes", "tiling"), [((4, 6), (2, 2), (2, 3)), ((2, 4, 2), (3,), (1, 2, 2))])
def test_tiles_of_a_dynamic_grid_are_visited_as_those_of_a_static_one(grid: Any, sizes: Any, tiling: Any) -> None:
    dynamic = jax.jit(lambda *grid: visited(mgpu, grid, sizes, tiling=tiling))(*map(jnp.int32, grid))
    np.testing.assert_array_equal(dynamic, visited(reference, grid, sizes, tiling=tiling))


def test_what_does_not_fill_a_tile_of_a_dynamic_grid_is_left_out() -> None:
    table = jax.jit(lambda rows: visited(mgpu, (rows, 2), (1,), tiling=(2, 2)))(jnp.int32(3))
    assert [tuple(row) for row in table[0, :5, :2]] == [(0, 0), (0, 1), (1, 0), (1, 1), (-1, -1)]
