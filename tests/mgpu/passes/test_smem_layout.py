"""Tiles of SMEM follow the ref: what can be reshaped, and what the tensor core then reads."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mgpu
from mgpu.frontend.regions import walk
from mgpu.lang.primitive import views_of
from mgpu.passes.smem_layout import layout_of
from support.gpu_lowering import program_of

SWIZZLE = mgpu.SwizzleTransform(128)


def tiled(shape, *tiling, dtype=jnp.float16, swizzle=True):
    transforms = (mgpu.TilingTransform(tiling), SWIZZLE) if swizzle else (mgpu.TilingTransform(tiling),)
    return mgpu.SMEM(shape, dtype, transforms=transforms)


def kernel_of(body, *scratch, out=(128,)):
    return mgpu.kernel(body, out_type=jax.ShapeDtypeStruct(out, jnp.float16), scratch_types=scratch)


@pytest.mark.parametrize(
    ("take", "shape", "tiles"),
    [
        (lambda r: r, (2, 64, 128), (None, 8, 64)),
        (lambda r: r.at[1], (64, 128), (8, 64)),
        (lambda r: r.at[1, pl.ds(8, 16)], (16, 128), (8, 64)),
        (lambda r: mgpu.transpose_ref(r, (0, 2, 1)), (2, 128, 64), (None, 64, 8)),
        (lambda r: r.at[0].bitcast(jnp.int16), (64, 128), (8, 64)),
    ],
)
def test_tiles_follow_the_ref(take, shape, tiles):
    def body(out_ref, smem):
        out_ref[0] = jnp.sum(take(smem)[...]).astype(jnp.float16)

    program = program_of(kernel_of(body, tiled((2, 64, 128), 8, 64)))
    (step,) = (step for step in walk(program) if step.equation.primitive.name == "get")
    (view,) = views_of(step.equation)
    layout = layout_of(step, view)
    assert (layout.shape, layout.tiles, layout.swizzle) == (shape, tiles, 128)


@pytest.mark.parametrize(
    ("smem", "shape", "message"),
    [
        (tiled((128, 4, 32), 2, 16, swizzle=False), (128, 128), r"dimensions \[4, 32\] with tile sizes \[2, 16\]"),
        (tiled((2, 64, 64), 8, 64), (128, 64), r"not tiled into one that is.*TilingTransform\(\(1, 8, 64\)\)"),
        (tiled((128, 64), 8, 64), (2, 64, 64), r"folded together, but not split"),
    ],
)
def test_reshapes_that_tear_tiles_apart(smem, shape, message):
    def body(out_ref, smem):
        out_ref[...] = smem.reshape(shape)[...]

    with pytest.raises(mgpu.errors.KernelTypeError, match=r"^test_smem_layout.py:\d+ reshape: smem .*" + message):
        kernel_of(body, smem, out=shape)()


def test_a_tiled_buffer_is_not_seen_as_elements_of_another_size():
    def body(out_ref, smem):
        out_ref[...] = smem.bitcast(jnp.int8)[0].astype(jnp.float16)

    with pytest.raises(mgpu.errors.KernelTypeError, match=r"^test_smem_layout.py:\d+ bitcast: .*float16 as int8"):
        kernel_of(body, tiled((64, 128), 8, 64))()


def test_the_tensor_core_reads_a_folded_operand():
    a = np.random.default_rng(0).integers(-3, 4, (64, 128)).astype(np.float16)
    b = np.random.default_rng(1).integers(-3, 4, (128, 2, 64)).astype(np.float16)

    def body(a_ref, b_ref, out_ref, a_smem, b_smem, full):
        mgpu.copy_gmem_to_smem(a_ref, a_smem, full)
        mgpu.copy_gmem_to_smem(b_ref, b_smem, full)
        mgpu.barrier_wait(full)

        def multiply(acc):
            mgpu.wgmma(acc, a_smem, b_smem.reshape(128, 128))
            return acc[...]

        out_ref[...] = pl.run_scoped(multiply, mgpu.ACC((64, 128))).astype(jnp.float16)

    scratch = [tiled(a.shape, 8, 64), tiled(b.shape, 8, 1, 64), mgpu.Barrier(num_arrivals=2)]
    np.testing.assert_array_equal(kernel_of(body, *scratch, out=(64, 128))(a, b), a @ b.reshape(128, 128))
