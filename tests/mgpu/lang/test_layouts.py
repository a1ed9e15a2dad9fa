"""Register layouts: which arrays can have them, and that they change no value."""

from typing import Any

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest

import mgpu
from mgpu.lang.layouts import ReducedLayout
from mgpu.lang.tiling import Tiling

NAMED = ["WGMMA", "WGMMA_8BIT", "WGMMA_UPCAST_2X", "WGMMA_UPCAST_4X", "WGMMA_TRANSPOSED", "TCGEN05", "TMA_INDICES"]


def apply(function, x):
    def body(x_ref, out_ref):
        out_ref[...] = function(x_ref[...])

    return mgpu.kernel(body, out_type=jax.eval_shape(lambda: jnp.zeros(x.shape, x.dtype)))(x)


def jax_layout(name) -> Any:
    return plgpu.Layout[name].to_mgpu()


def cast(layout):
    return lambda x: mgpu.layout_cast(x, layout)


X = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


@pytest.mark.parametrize("name", ["WGMMA", "WGMMA_8BIT", "WGMMA_UPCAST_2X", "WGMMA_UPCAST_4X", "WG_SPLAT"])
def test_a_cast_keeps_the_values(name):
    np.testing.assert_array_equal(apply(cast(mgpu.Layout[name]), X), X)


@pytest.mark.parametrize("name", NAMED)
def test_the_tile_of_a_layout_is_that_of_jax(name):
    """JAX's own layout object gives the tile; ours accepts exactly the shapes that it divides."""
    tile = jax_layout(name).tiling.tiles[0]
    fits, misfit = np.zeros(tile, np.float32), np.zeros((*tile[:-1], tile[-1] + 1), np.float32)
    apply(cast(mgpu.Layout[name]), fits)
    with pytest.raises(mgpu.errors.KernelTypeError, match=rf"Layout.{name} repeats every \[{tile[0]}"):
        apply(cast(mgpu.Layout[name]), misfit)


def test_reduced_layouts_take_the_shape_that_remains():
    rows, columns = mgpu.Layout.WGMMA.reduce(1), mgpu.Layout.WGMMA.reduce([0])
    assert rows == ReducedLayout(mgpu.Layout.WGMMA, (1,))
    np.testing.assert_array_equal(apply(cast(rows), X[:, 0]), X[:, 0])
    np.testing.assert_array_equal(apply(cast(columns), X[0]), X[0])
    with pytest.raises(
        mgpu.errors.KernelTypeError, match=r"repeats every \[64\] elements, which does not divide \[32\]"
    ):
        apply(cast(rows), X[0])


def test_strided_layouts_check_shape_and_vector():
    layout = mgpu.Layout.WG_STRIDED
    np.testing.assert_array_equal(apply(cast(layout((64, 32), vec_size=2)), X), X)
    assert layout((64, 32), vec_size=2) == layout((64, 32), vec_size=2)
    for wrong in (layout((64, 16), vec_size=1), layout((64, 32), vec_size=32)):
        with pytest.raises(mgpu.errors.KernelTypeError, match=r"does not fit \[64, 32\]"):
            apply(cast(wrong), X)
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"takes shape and vec_size"):
        apply(cast(layout((64, 32))), X)
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"needs parameters"):
        apply(cast(layout), X)
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"layout must be a Layout, got 'WGMMA'"):
        apply(cast("WGMMA"), X)


def test_broadcasted_iota_counts_along_a_dimension():
    iota = apply(lambda x: x * 0 + mgpu.broadcasted_iota(jnp.float32, (64, 32), 1, layout=mgpu.Layout.WGMMA), X)
    np.testing.assert_array_equal(iota, np.broadcast_to(np.arange(32), (64, 32)))
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"dimension 2 of shape \[64, 32\] does not exist"):
        apply(lambda x: mgpu.broadcasted_iota(jnp.float32, (64, 32), 2), X)


def test_print_layout_tells_what_is_known(capsys):
    transforms = (mgpu.TilingTransform((8, 32)), mgpu.SwizzleTransform(128))

    def body(x_ref, out_ref, tile):
        mgpu.print_layout("tile is {}", tile)
        mgpu.print_layout("x is {}", x_ref[...])
        x = mgpu.load(x_ref, layout=mgpu.Layout.WGMMA, optimized=False)
        mgpu.print_layout("x is {}", x)
        mgpu.print_layout("sums of rows are {}", x.sum(axis=1))
        mgpu.print_layout("sums of columns are {}", x.sum(axis=0))
        out_ref[...] = x

    mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 32), jnp.float32),
        scratch_types=[mgpu.SMEM((64, 32), jnp.float32, transforms=transforms)],
        compiler_params=mgpu.CompilerParams(lowering_semantics=mgpu.LoweringSemantics.Lane),
    )(X)
    assert capsys.readouterr().out.splitlines() == [
        "tile is float32[64, 32] in smem[tiling(8, 32), swizzle(128)]",
        "x is float32[64, 32] in a layout that the compiler chooses",
        "x is WGMMA",
        "sums of rows are WGMMA_ROW",
        "sums of columns are WGMMA_COL",
    ]
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"fmt must contain"):
        apply(lambda x: mgpu.print_layout("no placeholder", x), X)


def test_print_layout_tells_what_was_said_where_the_compiler_chooses(capsys):
    def body(x_ref, out_ref):
        x = mgpu.layout_cast(x_ref[...], mgpu.Layout.WGMMA)
        mgpu.print_layout("{}", x)
        out_ref[...] = x

    params = mgpu.CompilerParams(lowering_semantics=mgpu.LoweringSemantics.Warpgroup)
    mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, 32), jnp.float32), compiler_params=params)(X)
    assert capsys.readouterr().out == "WGMMA\n"


@pytest.mark.parametrize(
    ("tiles", "shape"),
    [
        (((8, 64),), (64, 128)),
        (((64, 8), (16, 8), (8, 8), (2,)), (128, 32)),
        (((4,),), (3, 16)),
        (((2, 2), (2, 1)), (8, 8)),
    ],
)
def test_tiling_agrees_with_jax(tiles, shape):
    ours, theirs = Tiling(tiles), plgpu.Tiling(tiles)
    tiled = ours.tile_shape(shape)
    assert tiled == tuple(theirs.tile_shape(shape))
    assert ours.untile_shape(tiled) == tuple(theirs.untile_shape(tiled)) == shape
    index = tuple(size // 2 for size in shape)
    assert ours.tile_indices(index) == tuple(theirs.tile_indices(index))
    assert ours.untile_indices(ours.tile_indices(index)) == index
    strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
    assert ours.tile_strides(strides) == tuple(theirs.tile_strides(strides))


def test_tiling_refuses_what_it_does_not_divide():
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"tile \(8, 64\) does not divide \(64, 100\)"):
        Tiling(((8, 64),)).tile_shape((64, 100))
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"sizes must be positive"):
        Tiling(((0, 8),))
