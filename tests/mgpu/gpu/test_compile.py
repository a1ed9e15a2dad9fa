"""Kernels compiled to SASS by jaxlib's compiler, without a GPU: what recording costs in registers and instructions.

Runs where MGPU_CUDA_PACKAGES names the compiler's packages; see `support.mosaic_compiler`.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import mgpu as plgpu
from mgpu.passes.sites import plan_sites
from support import mosaic_compiler
from support.examples import load_example
from support.gpu_compositions import COMPOSITIONS
from support.gpu_kernels import KERNELS
from support.gpu_lowering import kernel_modules, lower_for_gpu, program_of

ALL = KERNELS | COMPOSITIONS

pytestmark = pytest.mark.skipif(
    not mosaic_compiler.is_available(), reason=f"{mosaic_compiler.PACKAGES} does not name the compiler's packages"
)


@pytest.fixture(autouse=True)
def _on_gpu(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")


def compile_kernel(folder, kernel, *operands):
    (module,) = kernel_modules(lower_for_gpu(kernel, *operands))
    return mosaic_compiler.compile_module(module, folder)


@pytest.mark.parametrize("scope", list(plgpu.TraceScope))
@pytest.mark.parametrize("space", [64, 100_000], ids=["smem", "gmem"])
@pytest.mark.parametrize("name", ALL)
def test_recorded_kernel_compiles_without_spills(name, space, scope, tmp_path):
    params = plgpu.CompilerParams(profile_space=space, profile_dir=str(tmp_path), profile_trace_scope=scope)
    kernel, operands, _ = ALL[name](params)
    compiled = compile_kernel(tmp_path, kernel, *operands)
    assert compiled.spill_bytes == 0
    assert compiled.ptx.count("st.shared.v2.b32 [mgpu_next]") == (compiled.ptx.count("mov.u32 clock, %clock;")) * (
        space == 64
    )


def test_recording_leaves_the_matmul_as_it_is(tmp_path):
    matmul = load_example("04_warp_specialized_matmul").make_matmul
    a = np.ones((512, 512), jnp.bfloat16)
    plain = compile_kernel(tmp_path, matmul(512, 512), a, a)
    params = plgpu.CompilerParams(profile_space=512, profile_dir=str(tmp_path))
    kernel = matmul(512, 512, params=params)
    recorded = compile_kernel(tmp_path, kernel, a, a)
    assert plain.spill_bytes == recorded.spill_bytes == 0
    assert recorded.registers == plain.registers
    # Loops without tensor-core work may be unrolled less: more instructions, fewer copies of them.
    for instruction in ("HGMMA.", "USETMAXREG."):
        assert recorded.sass.count(instruction) == plain.sass.count(instruction) > 0
    sites = plan_sites(program_of(kernel, a, a)).sites
    events = sum(1 if site.kind.is_instant else 2 for site in sites)
    # A clock read and a store for each event, twice for those in code that the compiler duplicates; a plain kernel
    # clears registers with CS2R too, but reads no clock.
    assert plain.sass.count("SR_CLOCKLO") == 0
    assert events + 2 <= recorded.sass.count("SR_CLOCKLO") <= 2 * events + 2
