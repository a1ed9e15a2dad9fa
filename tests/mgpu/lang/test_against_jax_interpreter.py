"""The same kernel bodies under JAX's own GPU interpreter and on the simulated GPU give the same arrays.

JAX's interpreter came with JAX 0.11; it runs on the CPU and has no notion of time.
"""

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu

pytestmark = pytest.mark.skipif(not hasattr(plgpu, "InterpretGPUParams"), reason="JAX without a GPU interpreter")
F32 = jnp.float32


def both(make_body, out, scratch, *operands, **launch):
    """Runs `make_body(language)` with both languages and returns the two results."""
    results = []
    for language, interpret in ((plgpu, None), (mgpu, mgpu.InterpretGPUParams())):
        interpret = interpret or language.InterpretGPUParams()
        kernel = language.kernel(
            make_body(language), out_type=out, scratch_types=scratch(language), interpret=interpret, **launch
        )
        results.append(np.asarray(kernel(*operands), np.float64))
    return results


def _copy(language):
    def body(x_ref, out_ref, buffer, full):
        language.copy_gmem_to_smem(x_ref, buffer, full)
        language.barrier_wait(full)
        buffer[...] = jnp.exp(buffer[...]) + 1
        language.commit_smem()
        language.copy_smem_to_gmem(buffer, out_ref)
        language.wait_smem_to_gmem(0)

    return body


def test_copies_and_arithmetic():
    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32)
    theirs, ours = both(
        _copy, jax.ShapeDtypeStruct((64, 64), F32), lambda p: [p.SMEM((64, 64), F32), p.Barrier(num_barriers=())], x
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def _matmul(language, transpose):
    def body(a_ref, b_ref, out_ref, a_smem, b_smem, full):
        language.copy_gmem_to_smem(a_ref, a_smem, full)
        language.copy_gmem_to_smem(b_ref, b_smem, full)
        language.barrier_wait(full)

        def multiply(acc):
            language.wgmma(acc, a_smem, b_smem.T if transpose else b_smem)
            language.wgmma_wait(0)
            return acc[...]

        out_ref[...] = pl.run_scoped(multiply, language.ACC((64, 128), F32))

    return body


@pytest.mark.parametrize("transpose", [False, True])
def test_wgmma(transpose):
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 4, (64, 64)).astype(np.float16)
    b = rng.integers(-4, 4, (128, 64) if transpose else (64, 128)).astype(np.float16)

    def scratch(language):
        transforms = (language.TilingTransform((8, 64)), language.SwizzleTransform(128))
        tiles = [language.SMEM(x.shape, jnp.float16, transforms=transforms) for x in (a, b)]
        return [*tiles, language.Barrier(num_arrivals=2, num_barriers=())]

    theirs, ours = both(lambda p: _matmul(p, transpose), jax.ShapeDtypeStruct((64, 128), F32), scratch, a, b)
    np.testing.assert_array_equal(ours, theirs)


def _pipeline(language):
    def body(x_ref, out_ref, tiles, full, empty):
        def produce():
            def step(i, _):
                slot = lax.rem(i, 2)
                pl.when(i >= 2)(lambda: language.barrier_wait(empty.at[slot]))
                language.copy_gmem_to_smem(x_ref.at[pl.ds(i * 8, 8)], tiles.at[slot], full.at[slot])

            lax.fori_loop(0, 8, step, None)

        def consume():
            def step(i, total):
                slot = lax.rem(i, 2)
                language.barrier_wait(full.at[slot])
                value = tiles[slot]
                language.barrier_arrive(empty.at[slot])
                return total + value

            out_ref[...] = lax.fori_loop(0, 8, step, jnp.zeros((8, 64), F32))

        lax.cond(lax.axis_index("wg") == 0, produce, consume)

    return body


def test_two_warpgroups_and_a_ring_of_barriers():
    x = np.random.default_rng(0).integers(0, 9, (64, 64)).astype(np.float32)
    theirs, ours = both(
        _pipeline,
        jax.ShapeDtypeStruct((8, 64), F32),
        lambda p: [p.SMEM((2, 8, 64), F32), p.Barrier(num_barriers=2), p.Barrier(num_barriers=2)],
        x,
        num_threads=2,
        thread_name="wg",
    )
    np.testing.assert_array_equal(ours, theirs)


def _grid(language):
    def body(x_ref, out_ref, buffer, full):
        box = pl.ds(lax.axis_index("i") * 8, 8), pl.ds(lax.axis_index("j") * 32, 32)
        language.copy_gmem_to_smem(x_ref.at[box], buffer, full)
        language.barrier_wait(full)
        out_ref[box] = buffer[...] * (lax.axis_index("i") + 10 * lax.axis_index("j")).astype(F32)

    return body


def test_grids():
    x = np.random.default_rng(0).integers(0, 9, (16, 64)).astype(np.float32)
    theirs, ours = both(
        _grid,
        jax.ShapeDtypeStruct((16, 64), F32),
        lambda p: [p.SMEM((8, 32), F32), p.Barrier(num_barriers=())],
        x,
        grid=(2, 2),
        grid_names=("i", "j"),
    )
    np.testing.assert_array_equal(ours, theirs)


def _multicast(language):
    def body(x_ref, out_ref, buffer, full):
        language.copy_gmem_to_smem(x_ref, buffer, full, collective_axes="c")
        language.barrier_wait(full)
        out_ref[lax.axis_index("c")] = buffer[...]

    return body


def test_multicast_over_a_cluster():
    x = np.random.default_rng(0).integers(0, 9, (64, 64)).astype(np.float32)
    theirs, ours = both(
        _multicast,
        jax.ShapeDtypeStruct((2, 64, 64), F32),
        lambda p: [p.SMEM((64, 64), F32), p.Barrier(num_barriers=())],
        x,
        cluster=(2,),
        cluster_names=("c",),
    )
    np.testing.assert_array_equal(ours, theirs)
