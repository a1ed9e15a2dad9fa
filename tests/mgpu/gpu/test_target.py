"""What a program becomes: aliases, compiler parameters, where events go, what is refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu

import mgpu as plgpu
from mgpu.devices import load_device
from mgpu.errors import DeviceError, Unsupported
from mgpu.gpu.target import compiler_params, prepare
from support.examples import load_example
from support.gpu_kernels import KERNELS
from support.gpu_lowering import kernel_texts, lower_for_gpu, program_of


@pytest.fixture(autouse=True)
def _on_gpu(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")


def test_aliased_output_is_its_input():
    kernel, (x, y), _ = KERNELS["arithmetic"](None)
    plain = lower_for_gpu(kernel, x, y).as_text()
    aliased = lower_for_gpu(KERNELS["arithmetic"](None)[0].with_aliases({1: 0}), x, y).as_text()
    assert "output_operand_alias<" not in plain
    assert "operand_index = 1" in aliased


def test_compiler_parameters_pass_through():
    ours = plgpu.CompilerParams(
        approx_math=True,
        dimension_semantics=("parallel", "sequential"),
        max_concurrent_steps=3,
        unsafe_no_auto_barriers=True,
        reduction_scratch_bytes=4096,
        profile_space=9,
        profile_dir="somewhere",
        lowering_semantics=plgpu.LoweringSemantics.Warpgroup,
    )
    theirs = compiler_params(ours)
    assert (theirs.approx_math, theirs.max_concurrent_steps) == (True, 3)
    assert tuple(theirs.dimension_semantics) == ("parallel", "sequential")
    assert (theirs.unsafe_no_auto_barriers, theirs.reduction_scratch_bytes) == (True, 4096)
    assert theirs.lowering_semantics.name == "Warpgroup"
    assert (theirs.profile_space, theirs.profile_dir) == (0, "")  # the recorder is ours, JAX's stays off
    defaults = mosaic_gpu.CompilerParams()
    assert compiler_params(plgpu.CompilerParams()).lowering_semantics is defaults.lowering_semantics


def test_parameter_that_jax_lacks():
    with pytest.raises(Unsupported, match="delay_release=1 is not available on the GPU"):
        compiler_params(plgpu.CompilerParams(max_concurrent_steps=2, delay_release=1))


@pytest.mark.parametrize(("stages", "space", "in_smem"), [(3, 512, True), (3, 3000, False), (4, 64, False)])
def test_events_go_to_smem_while_there_is_room(stages, space, in_smem, tmp_path):
    # A stage is 48 KiB, the output strips 32 KiB; a CTA of an H100 has 227 KiB.
    params = plgpu.CompilerParams(profile_space=space, profile_dir=str(tmp_path))
    matmul = load_example("04_warp_specialized_matmul").make_matmul(512, 512, stages=stages, params=params)
    a = np.ones((512, 512), jnp.bfloat16)
    kernel = prepare(program_of(matmul, a, a), load_device("h100"))
    assert kernel.record_format is not None
    assert kernel.record_format.in_smem is in_smem
    (text,) = kernel_texts(lower_for_gpu(matmul, a, a))  # JAX's own budget agrees, or this would fail
    assert ("st.shared.v2.b32 [mgpu_next]" in text) is in_smem


def test_scan_over_arrays_is_refused_with_the_line():
    def body(x_ref, out_ref):
        _, out_ref[...] = lax.scan(lambda carry, x: (carry, x * 2), 0, x_ref[...])

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    with pytest.raises(
        Unsupported, match=r"test_target.py:\d+ kernel body: scan over arrays is not available on the GPU"
    ):
        lower_for_gpu(kernel, np.ones(128, np.float32))


@pytest.mark.skipif(jax.default_backend() == "gpu", reason="there is a GPU")
def test_running_without_a_gpu_is_refused():
    kernel, operands, _ = KERNELS["arithmetic"](None)
    with pytest.raises(
        DeviceError, match=r"MGPU_TARGET=gpu, but JAX's default device is (TFRT_CPU|cpu).*unset MGPU_TARGET"
    ):
        kernel(*operands)


def test_values_cross_loops_and_branches():
    def body(x_ref, out_ref):
        def step(i, carry):
            total, largest = carry
            value = x_ref[i]
            largest = lax.cond(value > largest, lambda: value, lambda: largest)
            return total + value, largest

        total, largest = lax.fori_loop(0, 128, step, (jnp.float32(0), jnp.float32(-1e9)))
        out_ref[0] = total
        out_ref[1] = largest
        pl.when(total > 0)(lambda: None)

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((2,), jnp.float32))
    (text,) = kernel_texts(lower_for_gpu(kernel, np.ones(128, np.float32)))
    assert "scf.for" in text
    assert "scf.if" in text or "scf.index_switch" in text
