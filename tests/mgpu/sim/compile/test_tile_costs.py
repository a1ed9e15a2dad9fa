"""What tile arithmetic and register stores take, against counts by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mgpu
from mgpu.devices import load_device
from mgpu.sim.simulation import prepare, simulate

H100 = load_device("h100")


def cycles(kernel, *operands, **numbers) -> int:
    program, consts = kernel._program(jax.tree.structure(operands), list(operands))
    options = mgpu.InterpretGPUParams(record_cycles=0)
    return simulate(prepare(program, H100.override(**numbers), 1, options), consts, operands).cycles


def chain(length: int, columns: int = 2):
    def body(x, out):
        values = x[...]
        for _ in range(length):
            values = values * 1.5
        out[...] = values

    return mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, columns), jnp.float32))


def test_a_small_tile_takes_the_latency_of_its_dependent_operations():
    x = np.ones((64, 2), np.float32)  # one element a lane: one cycle of the pipe for each operation, a latency of 4
    assert cycles(chain(72), x) - cycles(chain(8), x) == 64 * 4


def test_a_large_tile_takes_the_throughput_of_its_pipe():
    x = np.ones((64, 256), np.float32)  # 128 elements a lane, 128 lanes a cycle
    took = cycles(chain(12, 256), x, lone_warp_factor=0) - cycles(chain(4, 256), x, lone_warp_factor=0)
    assert took == 8 * 128


def exponentials(warpgroups: int):
    """Each warpgroup: of 8192 values 8 multiplications, 128 lanes a cycle, and 4 exponentials, 16 a cycle."""

    def body(x, out):
        values = x[...]
        for _ in range(4):
            values = jnp.exp2(values * 0.5 * 0.25)
        rows = pl.ds(64 * jax.lax.axis_index("wg"), 64)
        out[rows] = values

    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64 * warpgroups, 128), jnp.float32),
        num_threads=warpgroups,
        thread_name="wg",
        compiler_params=mgpu.CompilerParams(approx_math=True),
    )


def test_a_lone_warpgroup_takes_the_sum_of_its_pipes_and_several_fill_the_busiest():
    x = np.ones((64, 128), np.float32)
    multiply, exponential = 8 * 8192 // 128, 4 * 8192 // 16
    for warpgroups, expected in ((1, 1.5 * (multiply + exponential)), (2, 2 * exponential)):
        kernel = exponentials(warpgroups)
        longer = cycles(kernel, x, lone_warp_factor=1.5) - cycles(kernel, x, lone_warp_factor=0)
        assert longer == max(0, expected - warpgroups * exponential)


def test_the_softmax_of_an_attention_block_takes_what_was_measured():
    """TileOPs, issue 12, H200: 64 x 128 scores, 1347 cycles, beside the matmuls of the other warpgroup."""

    def kernel(times):
        def body(x, out):
            scores = x[...]

            def step(_, carry):
                largest, total, _ = carry
                new_largest = jnp.maximum(largest, scores.max(axis=1) * 0.1)
                rescale = jnp.exp2(largest - new_largest)
                shifted = scores * 0.1 - jax.lax.broadcast_in_dim(new_largest, scores.shape, (0,))
                return new_largest, total * rescale + jnp.exp2(shifted).sum(axis=1), rescale

            zero = jnp.zeros((64,), jnp.float32)
            _, total, rescale = jax.lax.fori_loop(0, times, step, (zero, zero, zero))
            out[...] = total + rescale

        return mgpu.kernel(
            body,
            out_type=jax.ShapeDtypeStruct((64,), jnp.float32),
            compiler_params=mgpu.CompilerParams(approx_math=True),
        )

    x = np.zeros((64, 128), np.float32)
    assert (cycles(kernel(18), x) - cycles(kernel(2), x)) / 16 == pytest.approx(1347, rel=0.01)


def test_a_reduction_is_over_before_its_result_is_used():
    def body(x, out, *, splits):
        values = x[...]
        if splits:
            values = values - jnp.broadcast_to(values.max(axis=1)[:, None], values.shape)
        out[...] = jnp.exp2(values)

    x = np.ones((64, 128), np.float32)

    def kernel(splits):
        return mgpu.kernel(
            lambda x, out: body(x, out, splits=splits),
            out_type=jax.ShapeDtypeStruct((64, 128), jnp.float32),
            compiler_params=mgpu.CompilerParams(approx_math=True),
        )

    # The maximum of 8192 elements at 64 a cycle; the subtraction hides behind exp2, at 16 a cycle.
    assert cycles(kernel(True), x, lone_warp_factor=0) - cycles(kernel(False), x, lone_warp_factor=0) == 8192 // 64


def test_an_accumulator_stored_from_registers_touches_a_line_for_eight_elements():
    def body(out, *, dtype):
        def read(acc):
            return acc[...]

        out[...] = pl.run_scoped(read, mgpu.ACC((64, 256))).astype(dtype)

    def kernel(dtype):
        return mgpu.kernel(
            lambda out: body(out, dtype=dtype), out_type=jax.ShapeDtypeStruct((64, 256), dtype), name="store"
        )

    # 2048 lines at one a cycle, for either element size, while L2 takes the data faster than that.
    fast_l2 = {"l2_write_bandwidth": 10**18, "cta_setup_ns": 0}
    assert cycles(kernel(jnp.float32), **fast_l2) == 64 * 256 // 8
    # GH200: 128 x 256 float32 from each of two CTAs in 4130 cycles, twice as many lines.
    assert abs(2 * cycles(kernel(jnp.float32), **fast_l2) - 4130) < 50


@pytest.mark.parametrize(("operation", "by_constant"), [(jax.lax.div, 4), (jax.lax.rem, 6)])
def test_dividing_by_a_constant_needs_no_division(operation, by_constant):
    def kernel(constant, times):
        def body(x, y, out):
            values = x[...]
            divisor = y[...]
            for _ in range(times):
                values = operation(values, jnp.int32(7) if constant else divisor)
            out[...] = values

        return mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, 256), jnp.int32))

    x, y = np.full((64, 256), 100, np.int32), np.full((64, 256), 7, np.int32)  # 64 lanes a cycle
    for constant, instructions in ((True, by_constant), (False, 20)):
        long, short = (cycles(kernel(constant, times), x, y, lone_warp_factor=0) for times in (3, 1))
        took = long - short
        assert took == 2 * instructions * 64 * 256 // 64
