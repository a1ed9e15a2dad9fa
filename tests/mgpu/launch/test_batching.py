"""`jax.vmap` of kernels, against a loop over the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mgpu as plgpu
import profiler
from mgpu.errors import Unsupported
from support.examples import load_example
from support.kernels import make_copy


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("jit", [False, True])
def test_a_batch_of_copies(jit: bool) -> None:
    copy = jax.vmap(make_copy((128, 64), 64), in_axes=1, out_axes=2)
    x = numbers(128, 3, 64)
    out = (jax.jit(copy) if jit else copy)(x)
    np.testing.assert_array_equal(np.asarray(out), x.transpose(0, 2, 1))


def test_batches_of_batches() -> None:
    x = numbers(2, 3, 128, 64)
    np.testing.assert_array_equal(np.asarray(jax.vmap(jax.vmap(make_copy((128, 64), 64)))(x)), x)


def test_one_operand_may_be_shared_and_the_timeline_shows_the_batch(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    a = generator.integers(-3, 4, (3, 128, 128)).astype(jnp.bfloat16)
    b = generator.integers(-3, 4, (128, 256)).astype(jnp.bfloat16)
    params = plgpu.CompilerParams(profile_space=128, profile_dir=str(tmp_path))
    matmul = load_example("04_warp_specialized_matmul").make_matmul(128, 256, params=params)
    out = np.asarray(jax.vmap(matmul, in_axes=(0, None))(a, b))
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(jnp.bfloat16)
    np.testing.assert_array_equal(out, expected)
    header = profiler.open(tmp_path)[0].load_capture().header
    assert (header.grid, header.grid_names) == ((1, 1, 3), ("m", "n", "vmap0"))


def test_program_ids_keep_their_meaning() -> None:
    def body(x: Any, out: Any) -> None:
        out[lax.axis_index("i")] = x[lax.axis_index("i")] + lax.axis_index("i").astype(jnp.float32)

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), jnp.float32), grid=(4,), grid_names=("i",))
    x = numbers(2, 4)
    np.testing.assert_array_equal(np.asarray(jax.vmap(kernel)(x)), x + np.arange(4, dtype=np.float32))


def test_closed_over_arrays_are_refused_with_the_remedy() -> None:
    def outer(x: jax.Array, offset: jax.Array) -> jax.Array:
        def body(x_ref: Any, out_ref: Any) -> None:
            out_ref[...] = x_ref[...] + offset

        return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))(x)

    with pytest.raises(Unsupported, match=r"test_batching.py:\d+ kernel body: jax.vmap .*Pass them to the kernel"):
        jax.vmap(outer)(jnp.asarray(numbers(2, 128)), jnp.asarray(numbers(2)))
