"""Kernels under settings of JAX that its users turn on to find bugs."""

import contextlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as jax_mosaic_gpu

import mgpu

SETTINGS = {
    "disable_jit": jax.disable_jit,
    "transfer_guard": lambda: jax.transfer_guard("disallow"),
    "debug_nans": lambda: jax.debug_nans(True),
    "strict promotion": lambda: jax.numpy_dtype_promotion("strict"),
    "rank promotion": lambda: jax.numpy_rank_promotion("raise"),
}
SHAPE, BLOCK = (8, 512), (8, 128)


def pipelined(plgpu):
    """A body that doubles, block by block, through a pipeline of the given module."""

    def body(x_gmem, out_gmem):
        def double(_, x, out):
            out[...] = x[...] * jnp.float32(2)

        spec = plgpu.BlockSpec(BLOCK, lambda step: (0, step))
        pipeline = plgpu.emit_pipeline(double, grid=(4,), in_specs=[spec], out_specs=[spec], max_concurrent_steps=2)
        pipeline(x_gmem, out_gmem)

    return body


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["called", "jitted"])
def test_a_kernel_runs_under_settings_of_jax(setting, wrap) -> None:
    kernel = mgpu.kernel(pipelined(mgpu), out_type=jax.ShapeDtypeStruct(SHAPE, jnp.float32))
    x = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    on_device = jax.device_put(x)
    with SETTINGS[setting]():
        doubled = wrap(kernel)(on_device)
    np.testing.assert_array_equal(np.asarray(doubled), 2 * x)


@pytest.mark.parametrize("setting", [contextlib.nullcontext, jax.disable_jit])
def test_a_loop_of_a_kernel_stays_a_loop(setting) -> None:
    """`disable_jit` would make the loop's body stand there once for each step, in JAX's own kernels too."""

    def body(x_gmem, out_gmem):
        @pl.loop(0, 1000)
        def _(step):
            out_gmem[...] = x_gmem[...] + step.astype(jnp.float32)

    x = np.ones(128, np.float32)
    out_type = jax.ShapeDtypeStruct(x.shape, jnp.float32)
    own = mgpu.kernel(body, out_type=out_type)
    foreign = mgpu.from_pallas(jax_mosaic_gpu.kernel(body, out_type=out_type))
    with setting():
        np.testing.assert_array_equal(np.asarray(own(x)), x + 999)
        np.testing.assert_array_equal(np.asarray(foreign(x)), x + 999)
