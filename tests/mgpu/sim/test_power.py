"""Kernels that settle at the clock which the power limit allows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.capture import Capture
from mgpu.devices import load_device
from mgpu.sim.power import clock_of, settle_clock
from mgpu.sim.simulation import prepare

# A chip of one SM, so that one CTA loads all of it.
CHIP = load_device("h100").override(num_sms=1, clock_hz="power_capped")


def multiply(x, out, smem, full):
    def accumulate(acc):
        mgpu.copy_gmem_to_smem(x, smem, full)
        mgpu.barrier_wait(full)

        def step(_index, _):
            mgpu.wgmma(acc, smem, smem)
            mgpu.wgmma_wait(1)

        lax.fori_loop(0, 200, step, None)
        return acc[...]

    out[...] = pl.run_scoped(accumulate, mgpu.ACC((64, 64)))


def make_kernel(**params):
    swizzled = (mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128))
    return mgpu.kernel(
        multiply,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[mgpu.SMEM((64, 64), jnp.bfloat16, transforms=swizzled), mgpu.Barrier()],
        **params,
    )


X = np.zeros((64, 64), jnp.bfloat16)


def test_the_clock_fits_the_load_that_the_kernel_has_at_it():
    program, consts = make_kernel()._program(jax.tree.structure((X,)), [X])
    prepared = prepare(program, CHIP, 1, mgpu.InterpretGPUParams(numerics=False))
    settled, result = settle_clock(prepared, consts, [X])
    assert settled.device.clock_hz == pytest.approx(clock_of(settled.device, result), rel=0.01)
    share = result.tensor_cycles / result.cycles
    assert 0.5 < share < 1
    # By hand, with next to no HBM traffic: the cube root of 1.5 / (0.5 + share), and at most the boost clock.
    expected = min(1.98e9, 1.58e9 * (1.5 / (0.5 + share)) ** (1 / 3))
    assert settled.device.clock_hz == pytest.approx(expected, rel=0.015)
    assert settled.device.clock_hz != CHIP.clock_hz


def test_the_capture_tells_the_clock_and_why(tmp_path):
    kernel = make_kernel(compiler_params=mgpu.CompilerParams(profile_space=64, profile_dir=str(tmp_path)))
    with mgpu.device(CHIP):
        kernel(X)
        kernel(X)
    first, second = (Capture.load(path) for path in sorted(tmp_path.rglob("capture.npz")))
    assert first.header.clock_rule == second.header.clock_rule == "power-capped"
    assert first.header.clock_hz == second.header.clock_hz != CHIP.clock_hz
    with mgpu.device(CHIP, clock_hz=1_400_000_000):
        kernel(X)
    third = Capture.load(max(tmp_path.rglob("capture.npz")))
    assert (third.header.clock_rule, third.header.clock_hz) == ("", 1_400_000_000)
