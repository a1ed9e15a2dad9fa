"""Register arrays of different layouts that meet: found where both are known, silent where one is not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mgpu
from mgpu.lang.layouts import Layout

X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
STRIDED = Layout.WG_STRIDED((64, 64), vec_size=2)


def run(function, semantics=mgpu.LoweringSemantics.Lane):
    def body(x_ref, out_ref):
        out_ref[...] = function(x_ref)

    params = mgpu.CompilerParams(lowering_semantics=semantics)
    out = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    return mgpu.kernel(body, out_type=out, grid=(1,), grid_names=("cta",), compiler_params=params)(X)


def load(ref, layout):
    return mgpu.load(ref, layout=layout, optimized=False)


def mixed(ref):
    return load(ref, Layout.WGMMA) * 2 + load(ref, STRIDED)


def test_two_known_layouts_do_not_add_up():
    with pytest.raises(
        mgpu.errors.KernelTypeError,
        match=r"^test_layouts.py:\d+ add: .*Layout.WGMMA and Layout.WG_STRIDED.*layout_cast\(x, Layout.WGMMA\)",
    ):
        run(mixed)


def recast(x):
    return mgpu.layout_cast(x, STRIDED)


CHANGES = {
    "while: carry 0": lambda x: jax.lax.while_loop(lambda y: is_first_cta(), recast, x),
    "scan: carry 1": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: recast(y), x),
    "cond: result 0": lambda x: jax.lax.cond(is_first_cta(), recast, lambda y: y, x),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_loop_or_branch_that_changes_the_layout_of_its_value_is_refused(what):
    message = rf"^test_layouts.py:\d+ {what} .*Layout\.WG.* (and|in one branch and) Layout\.WG.*layout_cast"
    with pytest.raises(mgpu.errors.KernelTypeError, match=message):
        run(lambda ref: CHANGES[what](load(ref, Layout.WGMMA)))


def is_first_cta():
    return jax.lax.axis_index("cta") == 0


THROUGH = {
    "a jitted helper": lambda x: jnp.where(x > 1, x, -x),
    "a branch": lambda x: jax.lax.cond(is_first_cta(), lambda y: y + 1, lambda y: y * 2, x),
    "a loop": lambda x: jax.lax.fori_loop(0, 3, lambda _, y: y * 2, x),
    "a loop of unknown length": lambda x: jax.lax.while_loop(lambda y: ~is_first_cta(), lambda y: y * 2, x),
    "a scope": lambda x: pl.run_scoped(lambda _: x + 1, mgpu.SMEM((8,), jnp.float32)),
}


@pytest.mark.parametrize("name", THROUGH)
def test_layouts_are_followed_through(name):
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"add: .*Layout.WGMMA and Layout.WG_STRIDED"):
        run(lambda ref: THROUGH[name](load(ref, Layout.WGMMA)) + load(ref, STRIDED))
    assert run(lambda ref: THROUGH[name](load(ref, Layout.WGMMA)) + load(ref, Layout.WGMMA)).shape == (64, 64)


def test_under_warpgroup_semantics_the_compiler_converts():
    np.testing.assert_array_equal(run(mixed, mgpu.LoweringSemantics.Warpgroup), X * 3)


ALLOWED = {
    "a cast": lambda ref: load(ref, Layout.WGMMA) + mgpu.layout_cast(load(ref, STRIDED), Layout.WGMMA),
    "unknown meets known": lambda ref: load(ref, Layout.WGMMA) + ref[...],
    "a splat meets everything": lambda ref: load(ref, Layout.WGMMA) + mgpu.layout_cast(ref[...], Layout.WG_SPLAT),
    "scalars": lambda ref: load(ref, Layout.WGMMA) * 2 + load(ref, Layout.WGMMA)[...] * 0,
    "a row of sums": lambda ref: (
        load(ref, Layout.WGMMA)
        - mgpu.layout_cast(jnp.sum(load(ref, Layout.WGMMA), axis=1), Layout.WGMMA.reduce(1))[:, None]
    ),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_mosaic_accepts_is_accepted(name):
    assert run(ALLOWED[name]).shape == (64, 64)


def test_reduction_and_broadcast_give_the_layout_back():
    def softmax_like(ref):
        x = load(ref, Layout.WGMMA)
        rows = jax.lax.broadcast_in_dim(jax.lax.reduce_max_p.bind(x, axes=(1,), out_sharding=None), (64, 64), (0,))
        return (x - rows) + load(ref, STRIDED)

    with pytest.raises(mgpu.errors.KernelTypeError, match=r"Layout.WGMMA and Layout.WG_STRIDED"):
        run(softmax_like)


def test_the_tensor_core_reads_its_own_layout_only():
    transforms = (mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128))

    def body(out_ref, tile):
        def multiply(acc):
            mgpu.wgmma(acc, mgpu.load(tile, layout=Layout.WG_STRIDED((64, 64), vec_size=2)), tile)
            return acc[...]

        out_ref[...] = pl.run_scoped(multiply, mgpu.ACC((64, 64)))

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[mgpu.SMEM((64, 64), jnp.float16, transforms=transforms)],
        compiler_params=mgpu.CompilerParams(lowering_semantics=mgpu.LoweringSemantics.Lane),
    )
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"wgmma: operand a lies in .*WG_STRIDED.*Layout.WGMMA"):
        kernel()


@pytest.mark.parametrize("semantics", list(mgpu.LoweringSemantics))
@pytest.mark.parametrize(("axis", "needed_bytes"), [(0, 1024), ((0, 1), 16), (1, 0)])
def test_a_reduction_over_the_warps_needs_scratch(axis, needed_bytes, semantics):
    def reduce(scratch_bytes):
        def body(x_ref, out_ref):
            out_ref[...] = jnp.sum(load(x_ref, Layout.WGMMA), axis=axis)

        params = mgpu.CompilerParams(reduction_scratch_bytes=scratch_bytes, lowering_semantics=semantics)
        out = jax.ShapeDtypeStruct(X.sum(axis=axis).shape, jnp.float32)
        return mgpu.kernel(body, out_type=out, compiler_params=params)(X)

    np.testing.assert_allclose(reduce(needed_bytes), X.sum(axis=axis), rtol=1e-6)
    if needed_bytes:
        with pytest.raises(mgpu.errors.KernelTypeError, match=rf"reduce_sum: .* takes {needed_bytes} bytes of scratch"):
            reduce(needed_bytes - 1)
