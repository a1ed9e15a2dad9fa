"""Kernels inside `jax.shard_map`: each device launches its own, through every door."""

from __future__ import annotations

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu
from jax.sharding import PartitionSpec

import mgpu
from mgpu.launch.profile import recorded_for_gpu
from support.gpu_lowering import kernel_texts, lower_for_gpu

AXIS = "devices"


def double(x_ref, out_ref):
    out_ref[...] = x_ref[...] * 2


def mapped(body, module, num_devices, wrap=lambda kernel: kernel):
    kernel = wrap(module.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32)))
    mesh = jax.make_mesh((num_devices,), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec(AXIS)
    return jax.shard_map(kernel, mesh=mesh, in_specs=spec, out_specs=spec)


def run_on_two_devices():
    """What the test below runs where JAX sees two CPU devices."""
    x = np.arange(256, dtype=np.float32)
    doors = {
        "own": mapped(double, mgpu, 2),
        "imported inside": mapped(double, mosaic_gpu, 2, mgpu.from_pallas),
        "imported outside": mgpu.from_pallas(mapped(double, mosaic_gpu, 2)),
        "jitted": jax.jit(mgpu.from_pallas(jax.jit(mapped(double, mosaic_gpu, 2)))),
    }
    for name, function in doors.items():
        np.testing.assert_array_equal(np.asarray(function(x)), x * 2, err_msg=name)
    for module in (mgpu, mosaic_gpu):
        out, captures = mgpu.profile(mapped(double, module, 2))(x)
        np.testing.assert_array_equal(np.asarray(out), x * 2)
        assert len(captures) == 2, captures


def test_each_of_two_devices_runs_its_shard():
    environment = {
        **os.environ,
        "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
        "MGPU_TARGET": "sim",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def clip_at_zero(x_ref, out_ref):
    x = x_ref[...]
    out_ref[...] = jnp.where(x > 0, x, 0)  # says how its result is sharded, where the mesh has explicit axes


@pytest.mark.parametrize("door", ["own", "imported"])
def test_a_kernel_under_explicit_sharding(door):
    module = {"own": mgpu, "imported": mosaic_gpu}[door]
    wrap = {"own": lambda kernel: kernel, "imported": mgpu.from_pallas}[door]
    mesh = jax.make_mesh((1,), (AXIS,), axis_types=(jax.sharding.AxisType.Explicit,))
    spec = PartitionSpec(AXIS)
    x = np.arange(128, dtype=np.float32) - 64
    with jax.set_mesh(mesh):
        kernel = module.kernel(clip_at_zero, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
        mapped_kernel = jax.shard_map(wrap(kernel), in_specs=spec, out_specs=spec)
        found = jax.jit(mapped_kernel)(jax.sharding.reshard(x, spec))
    np.testing.assert_array_equal(found, np.maximum(x, 0))


def test_a_kernel_in_a_shard_map_lowers_for_the_gpu_with_its_recorder(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    x = np.ones(128, np.float32)
    for module in (mgpu, mosaic_gpu):
        run, _, _ = recorded_for_gpu(mapped(double, module, 1), [x], 32, mgpu.TraceScope.WARPGROUP)
        (text,) = kernel_texts(lower_for_gpu(run, x))
        assert text.count("mov.u32 sm, %smid;") == 1


if __name__ == "__main__":
    run_on_two_devices()
