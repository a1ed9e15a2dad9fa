"""Kernels of the `jax` package and kernels written for JAX's own module, recorded without a change to them."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu
from jax.experimental.pallas.ops.gpu import attention_mgpu, blackwell_matmul_mgpu, hopper_matmul_mgpu
from jax.extend.core import jaxpr_as_fun

from mgpu.devices import load_device
from mgpu.gpu.instrument import instrument
from mgpu.gpu.recording import KernelRecorder
from mgpu.launch.rewriting import rewrite
from mgpu.params import TraceScope
from mgpu.sites import SiteKind
from support import mosaic_compiler
from support.foreign_kernels import STEPS, kernels_of, lowered, operands_of, ring_copy
from support.gpu_lowering import expected_edges, kernel_modules, kernel_texts, lower_for_gpu, recorded_edges


def barriers_in_two_dimensions():
    def body(x_gmem, out_gmem, smem, full):
        def step(k, _):
            mosaic_gpu.copy_gmem_to_smem(x_gmem, smem, full.at[1, k])
            mosaic_gpu.barrier_wait(full.at[1, k])

        lax.fori_loop(0, 3, step, None)
        mosaic_gpu.copy_smem_to_gmem(smem, out_gmem)
        mosaic_gpu.wait_smem_to_gmem(0)

    return mosaic_gpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[mosaic_gpu.SMEM((64, 64), jnp.float32), mosaic_gpu.Barrier(num_barriers=(2, 3))],
    )


def hopper_matmul(a, b):
    return hopper_matmul_mgpu.matmul(a, b, None, hopper_matmul_mgpu.TuningConfig(128, 128, 64, max_concurrent_steps=4))


_ATTENTION = attention_mgpu.TuningConfig(
    block_q=64, block_kv=64, max_concurrent_steps=2, block_q_dkv=64, block_kv_dkv=64, block_q_dq=64, block_kv_dq=64
)


def attention_gradient(q, k, v):
    def loss(*operands):
        out: Any = attention_mgpu.attention(*operands, _ATTENTION)
        return out.astype(jnp.float32).sum()

    return jax.grad(loss, (0, 1, 2))(q, k, v)


def blackwell_matmul(a, b):
    config = blackwell_matmul_mgpu.TuningConfig(128, 128, 64, max_concurrent_steps=2, collective=False)
    return blackwell_matmul_mgpu.matmul_kernel(a, b, config)


MATRIX = jax.ShapeDtypeStruct((1024, 1024), jnp.bfloat16)
HEADS = jax.ShapeDtypeStruct((2, 512, 4, 64), jnp.float16)

# For each function, its operands, how many kernels it launches, how many sites they have, and the GPU that they need.
FOREIGN = {
    "ring_copy": (ring_copy(), [STEPS], 1, 5, 9),
    "ring_copy_of_many": (jax.vmap(ring_copy()), [jax.ShapeDtypeStruct((3, *STEPS.shape), jnp.float32)], 1, 5, 9),
    "hopper_matmul": (hopper_matmul, [MATRIX, MATRIX], 1, 27, 9),
    "attention_gradient": (attention_gradient, [HEADS, HEADS, HEADS], 3, None, 9),
    "blackwell_matmul": (blackwell_matmul, [MATRIX, MATRIX], 1, None, 10),
}


@pytest.mark.parametrize("scope", list(TraceScope))
@pytest.mark.parametrize("name", FOREIGN)
def test_every_site_is_recorded(name, scope):
    function, operands, num_kernels, num_sites, _ = FOREIGN[name]
    equations = kernels_of(function, *operands)
    assert len(equations) == num_kernels
    for equation in equations:
        kernel = instrument(equation, 100, scope)
        (text,) = kernel_texts(lowered(equation, kernel))
        sites = kernel.plan.sites
        assert recorded_edges(text) == expected_edges(sites)
        assert num_sites is None or len(sites) == num_sites
        assert {SiteKind.TMA_LOAD, SiteKind.BARRIER_WAIT} <= {site.kind for site in sites}


@pytest.mark.skipif(not mosaic_compiler.is_available(), reason="the compiler's packages are not here")
@pytest.mark.parametrize("name", FOREIGN)
def test_instrumented_kernel_compiles_without_spills(name, tmp_path):
    function, operands, _, _, capability = FOREIGN[name]
    for equation in kernels_of(function, *operands):
        unchanged = functools.partial(equation.primitive.bind, **equation.params)
        plain = lower_for_gpu(unchanged, *operands_of(equation))
        recorded = lowered(equation, instrument(equation, 100, TraceScope.WARP))
        before, after = (
            mosaic_compiler.compile_module(kernel_modules(module)[0], tmp_path, capability=capability)
            for module in (plain, recorded)
        )
        assert after.spill_bytes == before.spill_bytes == 0
        assert after.sass.count("HGMMA.") == before.sass.count("HGMMA.")
        assert after.sass.count("UTCHMMA") == before.sass.count("UTCHMMA")


def test_sites_name_what_the_author_named():
    (equation,) = kernels_of(ring_copy(grid=(2, 3), grid_names=("i", "j")), STEPS)
    kernel = instrument(equation, 100, TraceScope.WARPGROUP)
    sites = {site.name: site for site in kernel.plan.sites}
    assert list(sites) == ["load smem", "wait full", "out", "store out_0", "wait stores"]
    assert sites["load smem"].barrier == "full"
    assert sites["load smem"].size_bytes == 64 * 64 * 4
    assert sites["wait stores"].scope == "out"
    assert sites["wait full"].location.startswith("foreign_kernels.py:")
    (barrier,) = kernel.plan.barriers
    assert (barrier.name, barrier.num_slots, barrier.num_arrivals) == ("full", 2, 1)
    assert kernel.program.launch.num_ctas == 6
    assert kernel.program.name == "body"


def test_flops_of_a_matmul():
    (equation,) = kernels_of(hopper_matmul, MATRIX, MATRIX)
    kernel = instrument(equation, 100, TraceScope.WARPGROUP)
    # Each of two compute warpgroups multiplies (64, 64) by (64, 128), or more rows at a time, in each step.
    flops = {site.flops for site in kernel.plan.sites if site.kind is SiteKind.MMA_ISSUE}
    assert flops == {2 * 128 * 128 * 64}


def test_slot_in_two_dimensions_is_linear():
    (equation,) = kernels_of(barriers_in_two_dimensions(), jax.ShapeDtypeStruct((64, 64), jnp.float32))
    kernel = instrument(equation, 100, TraceScope.WARPGROUP)
    # full.at[1, k] is slot 3 + k: the recorder adds what the kernel did not compute itself.
    (text,) = kernel_texts(lowered(equation, kernel))
    assert text.count("mad.lo.u32 tag, $0, 65536, ") == 4
    assert kernel.plan.barriers[0].num_slots == 6


def test_recording_inside_jax_control_flow():
    copy = ring_copy()
    recorder = KernelRecorder(load_device("h100"), 100, TraceScope.WARPGROUP)

    def function(x, flag):
        y = lax.cond(flag, copy, lambda value: value + 1, x)
        return lax.scan(lambda carry, _: (jax.jit(copy)(carry), None), y, None, length=3)[0]

    x = np.zeros(STEPS.shape, np.float32)
    rewritten = rewrite(jax.make_jaxpr(function)(x, True), recorder.replace)
    texts = kernel_texts(lower_for_gpu(jaxpr_as_fun(rewritten), x, True))
    assert [text.count("mov.u32 sm, %smid;") for text in texts] == [1, 1]
    assert recorder.captures == []  # nothing ran


def test_other_kernels_are_left_alone():
    recorder = KernelRecorder(load_device("h100"), 100, TraceScope.WARPGROUP)
    closed = jax.make_jaxpr(lambda x: pl.cdiv(jnp.sin(x).size, 2) + jnp.cos(x))(np.ones(4, np.float32))
    assert str(rewrite(closed, recorder.replace)) == str(closed)
