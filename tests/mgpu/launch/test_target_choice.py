"""Which target a kernel goes to."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mgpu as plgpu
from mgpu.errors import DeviceError
from mgpu.gpu.launch import device_table
from mgpu.launch.device_choice import device
from mgpu.launch.target_choice import gpu_device, runs_on_gpu
from support.gpu_kernels import KERNELS
from support.gpu_lowering import kernel_modules, lower_for_gpu


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch):
    monkeypatch.delenv("MGPU_TARGET", raising=False)
    if jax.default_backend() != "cpu":
        pytest.skip("asks what happens without a GPU")


def test_cpu_is_simulated():
    assert not runs_on_gpu(None)


def test_environment_decides_for_every_kernel(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    assert runs_on_gpu(None)
    assert runs_on_gpu(False)
    monkeypatch.setenv("MGPU_TARGET", "sim")
    assert not runs_on_gpu(None)


def test_interpret_asks_for_the_simulator(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    assert not runs_on_gpu(True)
    assert not runs_on_gpu(plgpu.InterpretGPUParams())


def test_unknown_target(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "tpu")
    with pytest.raises(DeviceError, match="MGPU_TARGET='tpu': expected 'sim'"):
        runs_on_gpu(None)


def test_same_kernel_object_on_both_targets(monkeypatch):
    kernel, operands, expected = KERNELS["arithmetic"](None)
    np.testing.assert_array_equal(np.asarray(kernel(*operands)), expected)
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    assert len(kernel_modules(lower_for_gpu(kernel, *operands))) == 1
    monkeypatch.setenv("MGPU_TARGET", "sim")
    np.testing.assert_array_equal(np.asarray(kernel(*operands)), expected)


def test_without_a_gpu_kernels_are_lowered_for_the_chosen_device():
    with device("h200"):
        assert gpu_device().name == "h200"


@pytest.mark.parametrize(
    ("kind", "name"),
    [("NVIDIA H100 80GB HBM3", "h100"), ("NVIDIA H200", "h200"), ("NVIDIA GB200", "b200"), ("NVIDIA B200", "b200")],
)
def test_table_of_a_gpu(kind, name):
    assert device_table(kind).name == name


def test_gpu_without_a_table():
    with pytest.raises(DeviceError, match="'NVIDIA A100' has no device table; known are H100"):
        device_table("NVIDIA A100")
