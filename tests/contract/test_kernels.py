"""Both targets give the same results. The simulator always runs; the GPU where there is one (`make test-gpu`)."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from mgpu.devices import load_device
from mgpu.gpu.target import prepare
from support.gpu_compositions import COMPOSITIONS
from support.gpu_kernels import KERNELS
from support.gpu_lowering import program_of

# What JAX's own interpreter runs; it has no clusters, semaphores, tests of barriers, predicates or explicit stores.
INTERPRETED = (
    "arithmetic",
    "closed_over_arrays",
    "ring_copy",
    "small_matmul",
    "transposed_operand",
    "register_hand_over",
    "warp_level",
    "union_of_buffers",
)

ALL = KERNELS | COMPOSITIONS


@pytest.mark.parametrize("name", ALL)
def test_simulator(name, monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "sim")
    kernel, operands, expected = ALL[name](None)
    np.testing.assert_array_equal(np.asarray(kernel(*operands)), expected)


@pytest.mark.parametrize("name", sorted(ALL.keys() - {"ring_copy"}))  # mixes 32- and 64-bit integers itself then
def test_simulator_with_64_bit_defaults(name, monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "sim")
    with jax.enable_x64(True):
        kernel, operands, expected = ALL[name](None)
        np.testing.assert_array_equal(np.asarray(kernel(*operands)), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ALL)
def test_gpu(name, monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    kernel, operands, expected = ALL[name](None)
    np.testing.assert_array_equal(np.asarray(kernel(*operands)), expected)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the interpreter's own
@pytest.mark.parametrize("name", INTERPRETED)
def test_replayed_kernel_in_jax_interpreter(name):
    mosaic_gpu = pytest.importorskip("jax.experimental.pallas.mosaic_gpu")
    if not hasattr(mosaic_gpu, "force_gpu_interpret_mode"):
        pytest.skip("this JAX has no interpreter for Mosaic GPU kernels")
    kernel, operands, expected = ALL[name](None)
    _, consts = kernel._program(jax.tree.structure(tuple(operands)), operands)
    replayed = prepare(program_of(kernel, *operands), load_device("h100"))
    with mosaic_gpu.force_gpu_interpret_mode(mosaic_gpu.InterpretGPUParams()):
        (output,), words = replayed.raw(*consts, *operands)
    assert words is None
    np.testing.assert_array_equal(np.asarray(output), expected)
