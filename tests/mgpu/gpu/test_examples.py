"""The examples' kernels for the GPU: lowered, recorded, and where the compiler is, compiled."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mgpu as plgpu
from mgpu.passes.sites import plan_sites
from support import mosaic_compiler
from support.examples import EXAMPLES, load_example
from support.gpu_lowering import (
    expected_edges,
    kernel_modules,
    kernel_texts,
    lower_for_gpu,
    program_of,
    recorded_edges,
)

MATRIX = np.ones((512, 512), np.float32)
BFLOAT16 = MATRIX.astype(jnp.bfloat16)
HEADS = np.ones((2, 512, 128), jnp.bfloat16)

# What makes the kernel of each example from compiler parameters, and its operands.
KERNELS = {
    "01_copy": (lambda example, params: example.make_double(512, 512, params), [MATRIX]),
    "02_pipelined_copy": (lambda example, params: example.make_double(512, 512, slots=2, params=params), [MATRIX]),
    "03_matmul": (lambda example, params: example.make_matmul(512, 512, params=params), [BFLOAT16, BFLOAT16]),
    "04_warp_specialized_matmul": (
        lambda example, params: example.make_matmul(512, 512, params=params),
        [BFLOAT16, BFLOAT16],
    ),
    "05_attention": (lambda example, params: example.make_attention(2, 512, causal=True, params=params), [HEADS] * 3),
}


@pytest.fixture(autouse=True)
def _on_gpu(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")


def test_every_example_with_a_kernel_of_its_own_is_here():
    written = {path.stem for path in EXAMPLES.glob("[0-9]*.py") if "plgpu.kernel(" in path.read_text()}
    assert written == KERNELS.keys()


@pytest.mark.parametrize("name", KERNELS)
def test_example_lowers_and_is_recorded(name, tmp_path):
    make, operands = KERNELS[name]
    example = load_example(name)
    (plain,) = kernel_texts(lower_for_gpu(make(example, None), *operands))
    assert recorded_edges(plain) == []
    kernel = make(example, plgpu.CompilerParams(profile_space=256, profile_dir=str(tmp_path)))
    (text,) = kernel_texts(lower_for_gpu(kernel, *operands))
    assert recorded_edges(text) == expected_edges(plan_sites(program_of(kernel, *operands)).sites)


@pytest.mark.skipif(not mosaic_compiler.is_available(), reason="the compiler's packages are not here")
@pytest.mark.parametrize("name", KERNELS)
def test_recording_adds_no_spills_and_no_tensor_core_work(name, tmp_path):
    make, operands = KERNELS[name]
    params = plgpu.CompilerParams(profile_space=256, profile_dir=str(tmp_path))
    plain, recorded = (
        mosaic_compiler.compile_module(kernel_modules(lower_for_gpu(kernel, *operands))[0], tmp_path)
        for kernel in (make(load_example(name), None), make(load_example(name), params))
    )
    assert plain.spill_bytes == recorded.spill_bytes == 0
    # The compiler unrolls loops less when they record, so a loop's instructions may stand there fewer times.
    before, after = plain.sass.count("HGMMA."), recorded.sass.count("HGMMA.")
    assert after <= before
    assert not before or before % after == 0
