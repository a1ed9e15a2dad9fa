"""The Hopper kernels that ship inside the jax package run unmodified, and give what NumPy and plain JAX give.

Operands are small integers where the result is a sum of products: every partial sum is then exact in float32, and
results must be equal, not close.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.gpu import (
    attention_mgpu,
    hopper_matmul_mgpu,
    hopper_mixed_type_matmul_mgpu,
    ragged_dot_mgpu,
    transposed_ragged_dot_mgpu,
)

import mgpu
from mgpu.errors import RaceWarning

M, N = hopper_matmul_mgpu.MatmulDimension


def integers(*shape, dtype: Any = np.float16, seed=0, limit=3):
    return np.random.default_rng(seed).integers(-limit, limit + 1, shape).astype(dtype)


def normals(*shape, seed=0, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(np.float16)


def assert_equal(result, expected):
    np.testing.assert_array_equal(np.asarray(result).astype(np.float32), expected)


def wide(x):
    return np.asarray(x).astype(np.float32)


MATMUL_CONFIGS = {
    "default": {},
    "tile 128x128x64": {"tile_m": 128, "tile_n": 128},
    "tile 64x64x128": {"tile_n": 64, "tile_k": 128},
    "two steps": {"max_concurrent_steps": 2},
    "one step": {"max_concurrent_steps": 1},
    "whole epilogue tile": {"epi_tile_m": None, "epi_tile_n": None},
    "epilogue of 32 columns": {"epi_tile_n": 32},
    "grid minor M": {"grid_minor_dim": M},
    "snake of width 2": {"grid_tile_width": 2},
    "snake of width 2, minor M": {"grid_tile_width": 2, "grid_minor_dim": M},
    "warpgroups along M": {"wg_dimension": M},
    "cluster along M": {"cluster_dimension": M},
    "cluster along N": {"cluster_dimension": N},
    "warpgroups along M, cluster along N": {"wg_dimension": M, "cluster_dimension": N},
    "warpgroups and cluster along M": {"wg_dimension": M, "cluster_dimension": M},
}


def matmul_config(module, **fields):
    base = {"tile_m": 64, "tile_n": 128, "tile_k": 64, "max_concurrent_steps": 4}
    return module.TuningConfig(**(base | fields))


@pytest.mark.parametrize("fields", MATMUL_CONFIGS.values(), ids=MATMUL_CONFIGS)
def test_hopper_matmul(fields):
    a, b = integers(512, 256, seed=1), integers(256, 512, seed=2)
    config = matmul_config(hopper_matmul_mgpu, **fields)
    assert_equal(mgpu.from_pallas(hopper_matmul_mgpu.matmul)(a, b, None, config), wide(a) @ wide(b))


def test_hopper_matmul_adds_c():
    a, b, c = integers(256, 256, seed=1), integers(256, 256, seed=2), integers(256, 256, seed=3)
    config = matmul_config(hopper_matmul_mgpu)
    assert_equal(mgpu.from_pallas(hopper_matmul_mgpu.matmul)(a, b, c, config), wide(a) @ wide(b) + wide(c))


def test_hopper_matmul_of_bfloat16():
    a, b = (integers(256, 256, dtype=jnp.bfloat16, seed=s, limit=1) for s in (1, 2))
    result = mgpu.from_pallas(hopper_matmul_mgpu.matmul)(a, b, None, matmul_config(hopper_matmul_mgpu))
    assert_equal(result, (wide(a) @ wide(b)).astype(jnp.bfloat16).astype(np.float32))


@pytest.mark.parametrize("cluster", [None, M, N])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
def test_mixed_type_matmul(cluster, dtype):
    a, b = integers(256, 256, dtype=np.int8, seed=1), integers(256, 512, dtype=dtype, seed=2)
    config = matmul_config(hopper_mixed_type_matmul_mgpu, cluster_dimension=cluster)
    run = mgpu.from_pallas(hopper_mixed_type_matmul_mgpu.mixed_matmul_kernel)
    assert_equal(run(a, b, out_dtype=jnp.float32, config=config), wide(a) @ wide(b))


def attention_of_jax(q, k, v, *, causal=False):
    """Attention in plain JAX in float32: (batch, sequence, heads, head_dim), query heads in groups per key head."""
    q, k, v = (jnp.asarray(x, jnp.float32) for x in (q, k, v))
    k, v = (jnp.repeat(x, q.shape[2] // x.shape[2], axis=2) for x in (k, v))
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, precision="highest")
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, -1), v, precision="highest")


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal, head_dim):
    q = normals(2, 256, 2, head_dim, seed=1)
    k, v = normals(2, 256, 1, head_dim, seed=2), normals(2, 256, 1, head_dim, seed=3)
    config = attention_mgpu.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2, causal=causal)
    result = mgpu.from_pallas(attention_mgpu.attention)(q, k, v, config)
    # Probabilities are rounded to float16 before they multiply v.
    np.testing.assert_allclose(wide(result), attention_of_jax(q, k, v, causal=causal), atol=4e-3)


def test_attention_with_pipeline_emitter():
    q, k, v = (normals(1, 256, 2, 64, seed=s) for s in (1, 2, 3))
    config = attention_mgpu.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2)
    result = mgpu.from_pallas(attention_mgpu.attention_with_pipeline_emitter)(q, k, v, config)
    np.testing.assert_allclose(wide(result), attention_of_jax(q, k, v), atol=4e-3)


@pytest.mark.parametrize("compute_wgs", [1, 2])
def test_attention_backward(compute_wgs):
    config = attention_mgpu.TuningConfig(
        block_q=64,
        block_kv=64,
        max_concurrent_steps=2,
        compute_wgs_bwd=compute_wgs,
        block_q_dkv=64,
        block_kv_dkv=64,
        block_q_dq=64,
        block_kv_dq=64,
    )
    q, k, v = (normals(1, 256, 2, 64, seed=s, scale=0.5) for s in (1, 2, 3))

    def gradients(attention):
        return jax.grad(lambda *x: (attention(*x).astype(jnp.float32) ** 2).sum(), argnums=(0, 1, 2))

    results = mgpu.from_pallas(gradients(lambda *x: attention_mgpu.attention(*x, config)))(q, k, v)
    for result, expected in zip(results, gradients(attention_of_jax)(q, k, v), strict=True):
        np.testing.assert_allclose(wide(result), wide(expected), rtol=2e-3, atol=4e-3)


GROUPS = {
    "whole blocks": [64, 128, 64, 256],
    "an empty group": [100, 0, 283, 129],
    "one row": [64, 1, 383, 64],
    "all in the last": [0, 0, 0, 512],
}


def group_slices(sizes):
    ends = np.cumsum(sizes)
    return [slice(end - size, end) for size, end in zip(sizes, ends, strict=True)]


@pytest.mark.parametrize("transpose_rhs", [False, True])
@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS)
def test_ragged_dot(sizes, transpose_rhs):
    lhs, rhs = integers(512, 128, seed=1), integers(4, 128, 192, seed=2)
    result = mgpu.from_pallas(ragged_dot_mgpu.ragged_dot)(
        lhs,
        np.ascontiguousarray(rhs.swapaxes(1, 2)) if transpose_rhs else rhs,
        group_sizes=np.array(sizes, np.int32),
        block_m=64,
        block_n=64,
        block_k=64,
        max_concurrent_steps=2,
        grid_block_n=1,
        transpose_rhs=transpose_rhs,
    )
    parts = [wide(lhs)[rows] @ wide(rhs)[group] for group, rows in enumerate(group_slices(sizes))]
    assert_equal(result, np.concatenate(parts))


def run_transposed_ragged_dot(sizes, steps, **options):
    lhs, rhs = integers(512, 128, seed=1), integers(512, 192, seed=2)
    result = mgpu.from_pallas(transposed_ragged_dot_mgpu.transposed_ragged_dot, **options)(
        lhs,
        rhs,
        group_sizes=np.array(sizes, np.int32),
        block_m=64,
        block_n=64,
        block_k=64,
        max_concurrent_steps=steps,
        grid_block_n=1,
    )
    assert_equal(result, np.stack([wide(lhs)[rows].T @ wide(rhs)[rows] for rows in group_slices(sizes)]))


@pytest.mark.filterwarnings("ignore::mgpu.errors.RaceWarning")
@pytest.mark.parametrize("steps", [1, 2, 4])
@pytest.mark.parametrize("sizes", GROUPS.values(), ids=GROUPS)
def test_transposed_ragged_dot(sizes, steps):
    run_transposed_ragged_dot(sizes, steps)


def test_transposed_ragged_dot_relies_on_loads_being_slower_than_the_tensor_core():
    """The kernel reloads a slot one step after the wgmma that reads it, without waiting for that one."""
    message = r"TMA load of .* at transposed_ragged_dot_mgpu.py:\d+ .* not ordered after wgmma .*wgmma_wait"
    everywhere = mgpu.InterpretGPUParams(detect_races=True)
    with pytest.warns(RaceWarning, match=message):
        run_transposed_ragged_dot(GROUPS["all in the last"], 2, interpret=everywhere)


@pytest.mark.parametrize("seed", [1, 2])
def test_values_do_not_depend_on_the_order_of_simultaneous_events(seed):
    a, b = integers(256, 256, seed=1), integers(256, 512, seed=2)
    options = mgpu.InterpretGPUParams(seed=seed)
    config = matmul_config(hopper_matmul_mgpu, cluster_dimension=M)
    run = mgpu.from_pallas(hopper_matmul_mgpu.matmul, interpret=options)
    assert_equal(run(a, b, None, config), wide(a) @ wide(b))
