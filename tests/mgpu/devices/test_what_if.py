"""What-ifs on a whole kernel by device numbers: the part that is made faster stops mattering, nothing gets slower."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.devices import load_device
from mgpu.sim.simulation import prepare, simulate

STEPS = 24
H100 = load_device("h100")


def swizzled(*shape):
    return mgpu.SMEM(shape, jnp.bfloat16, transforms=(mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128)))


def body(a, b, out, a_smem, b_smem, full, empty):
    @pl.when(lax.axis_index("wg") == 0)
    def _():
        def load(step, _):
            slot = lax.rem(step, 2)
            pl.when(step >= 2)(lambda: mgpu.barrier_wait(empty.at[slot]))
            mgpu.copy_gmem_to_smem(a.at[:, pl.ds(step * 64, 64)], a_smem.at[slot], full.at[slot])
            mgpu.copy_gmem_to_smem(b.at[pl.ds(step * 64, 64)], b_smem.at[slot], full.at[slot])

        lax.fori_loop(0, STEPS, load, None)

    @pl.when(lax.axis_index("wg") == 1)
    def _():
        def accumulate(acc):
            def step(index, _):
                slot = lax.rem(index, 2)
                mgpu.barrier_wait(full.at[slot])
                mgpu.wgmma(acc, a_smem.at[slot], b_smem.at[slot])
                mgpu.wgmma_wait(0)
                mgpu.barrier_arrive(empty.at[slot])

            lax.fori_loop(0, STEPS, step, None)
            return acc[...]

        out[...] = pl.run_scoped(accumulate, mgpu.ACC((64, 256)))


KERNEL = mgpu.kernel(
    body,
    out_type=jax.ShapeDtypeStruct((64, 256), jnp.float32),
    scratch_types=[
        swizzled(2, 64, 64),
        swizzled(2, 64, 256),
        mgpu.Barrier(num_arrivals=2, num_barriers=2),
        mgpu.Barrier(num_barriers=2),
    ],
    num_threads=2,
    thread_name="wg",
)
OPERANDS = [np.zeros((64, 64 * STEPS), jnp.bfloat16), np.zeros((64 * STEPS, 256), jnp.bfloat16)]


def cycles(**numbers) -> int:
    program, consts = KERNEL._program(jax.tree.structure(tuple(OPERANDS)), OPERANDS)
    options = mgpu.InterpretGPUParams(numerics=False)
    return simulate(prepare(program, H100.override(**numbers), 1, options), consts, OPERANDS).cycles


FAST_TMA = {
    "tma_rows_per_cycle": 10**6,
    "tma_bytes_per_cycle": 10**6,
    "hbm_bandwidth": 10**18,
    "l2_bandwidth": 10**18,
    "l2_shared_bandwidth": 10**18,
}
NO_LATENCY = {"tma_latency_l2_cycles": 0, "tma_latency_dram_cycles": 0, "tma_descriptor_fetch_cycles": 0}
MMA_CYCLES = STEPS * 4 * 128  # 64 x 256 x 16 takes N / 2 = 128 cycles


def test_with_instant_loads_the_tensor_core_bounds_the_loop():
    instant = cycles(**FAST_TMA, **NO_LATENCY)
    overhead_per_step = (instant - MMA_CYCLES) / STEPS
    assert instant > MMA_CYCLES
    # What is left of each step: the latency of the last wgmma, barrier hops, and the fixed begin and end of a CTA.
    assert overhead_per_step < 400


@pytest.mark.parametrize(
    "numbers",
    [
        FAST_TMA,
        NO_LATENCY,
        {"wgmma_flops_per_cycle": 8192, "wgmma_smem_bytes_per_cycle": 256},
        {"mbarrier_hop_cycles": 0},
    ],
)
def test_making_one_thing_faster_makes_the_kernel_faster(numbers):
    assert cycles(**numbers) < cycles()


def test_a_tensor_core_of_twice_the_rate_halves_what_follows_at_its_rate():
    instant = {**FAST_TMA, **NO_LATENCY}
    gain = cycles(**instant) - cycles(**instant, wgmma_flops_per_cycle=8192, wgmma_smem_bytes_per_cycle=256)
    # Three of a step's four wgmmas are over when the pipe takes the next, after 128 or 64 cycles; the fourth is over
    # after its latency, 36 + 0.62 x 256 cycles, at any rate.
    assert gain == STEPS * 3 * 64


def two_roles(x, out, smem, done):
    @pl.when(lax.axis_index("wg") == 0)
    def _():
        values = x[...]
        for _ in range(8):
            values = jnp.exp2(values)
        smem[...] = values
        mgpu.commit_smem()
        mgpu.barrier_arrive(done)

    @pl.when(lax.axis_index("wg") == 1)
    def _():
        mgpu.barrier_wait(done)
        out[...] = smem[...] + 1


TWO_ROLES = mgpu.kernel(
    two_roles,
    out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
    scratch_types=[mgpu.SMEM((64, 64), jnp.float32), mgpu.Barrier()],
    num_threads=2,
    thread_name="wg",
    compiler_params=mgpu.CompilerParams(approx_math=True),
)


def cycles_of_two_roles(scale) -> int:
    x = np.zeros((64, 64), np.float32)
    program, consts = TWO_ROLES._program(jax.tree.structure((x,)), [x])
    options = mgpu.InterpretGPUParams(compute_scale=scale)
    device = H100.override(lone_warp_factor=0)
    return simulate(prepare(program, device, 1, options), consts, [x]).cycles


def test_the_compute_of_one_role_scales_alone():
    # 8 x 4096 exponentials at 16 a cycle; what is stored to SMEM meanwhile takes 128 cycles of another pipe.
    exponentials = 8 * 64 * 64 // 16
    whole = cycles_of_two_roles({})
    assert whole - cycles_of_two_roles({0: 0.5}) == exponentials // 2
    assert cycles_of_two_roles({0: 2}) - whole == exponentials
    assert 0 < whole - cycles_of_two_roles({1: 0.5}) < 128


def test_the_scale_of_a_role_is_checked():
    with pytest.raises(mgpu.errors.ParamsError, match="compute_scale of warpgroup 0 must be at least 0, got -1"):
        mgpu.InterpretGPUParams(compute_scale={0: -1})
    with pytest.raises(mgpu.errors.ParamsError, match="compute_scale names warpgroup 2, but the kernel has 2: 0 to 1"):
        cycles_of_two_roles({2: 0.5})
