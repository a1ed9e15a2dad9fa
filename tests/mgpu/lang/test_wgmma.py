"""wgmma: every operand type, operands in registers and transposed, parts of accumulators, several in flight."""

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mgpu

M, N, K = 64, 128, 128


def tiled(shape, dtype):
    elements = 128 // np.dtype(dtype).itemsize
    transforms = (mgpu.TilingTransform((8, elements)), mgpu.SwizzleTransform(128))
    return mgpu.SMEM(shape, dtype, transforms=transforms)


def multiply(a, b, multiply_body, acc_dtype=jnp.float32, out_shape=(M, N), params=None):
    """Loads a and b to SMEM and stores what `multiply_body(a_smem, b_smem)` returns."""

    def body(a_ref, b_ref, out_ref, a_smem, b_smem, full):
        mgpu.copy_gmem_to_smem(a_ref, a_smem, full)
        mgpu.copy_gmem_to_smem(b_ref, b_smem, full)
        mgpu.barrier_wait(full)
        out_ref[...] = multiply_body(a_smem, b_smem)

    scratch = [tiled(a.shape, a.dtype), tiled(b.shape, b.dtype), mgpu.Barrier(num_arrivals=2)]
    out = jax.ShapeDtypeStruct(out_shape, acc_dtype)
    return mgpu.kernel(body, out_type=out, scratch_types=scratch, compiler_params=params)(a, b)


def accumulate(*operands, shape=(M, N), dtype=jnp.float32):
    """Returns a function (a_smem, b_smem) -> acc after one wgmma of `operands` of them."""
    take_a, take_b = operands

    def run(a_smem, b_smem):
        def scope(acc):
            mgpu.wgmma(acc, take_a(a_smem), take_b(b_smem))
            return acc[...]

        return pl.run_scoped(scope, mgpu.ACC(shape, dtype))

    return run


def whole(ref):
    return ref


def transposed(ref):
    return ref.T


def integers(shape, dtype, low=-4, high=5):
    return np.random.default_rng(0).integers(low, high, shape).astype(dtype)


def product(a, b):
    return a.astype(np.float64) @ b.astype(np.float64)


SIXTEEN_BIT = [np.float16, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", SIXTEEN_BIT)
@pytest.mark.parametrize("transpose_a", [False, True])
@pytest.mark.parametrize("transpose_b", [False, True])
def test_16_bit_operands_in_either_order(dtype, transpose_a, transpose_b):
    a = integers((K, M) if transpose_a else (M, K), dtype)
    b = integers((N, K) if transpose_b else (K, N), dtype)
    views = (transposed if transpose_a else whole, transposed if transpose_b else whole)
    result = multiply(a, b, accumulate(*views))
    np.testing.assert_array_equal(result, product(a.T if transpose_a else a, b.T if transpose_b else b))


@pytest.mark.parametrize(
    ("dtype", "acc_dtype"),
    [
        (np.float32, jnp.float32),
        (ml_dtypes.float8_e4m3fn, jnp.float32),
        (ml_dtypes.float8_e5m2, jnp.float32),
        (np.int8, jnp.int32),
        (np.uint8, jnp.int32),
        (np.float16, jnp.float16),
        (ml_dtypes.float8_e4m3fn, jnp.float16),
    ],
)
def test_other_types_multiply_exactly(dtype, acc_dtype):
    a, b = integers((M, K), dtype, 0, 4), integers((N, K), dtype, 0, 4)
    result = multiply(a, b, accumulate(whole, transposed, dtype=acc_dtype), acc_dtype)
    np.testing.assert_array_equal(np.asarray(result, np.float64), product(a, b.T))


def test_8_bit_floats_of_two_kinds_multiply_exactly():
    a, b = integers((M, K), ml_dtypes.float8_e4m3fn), integers((N, K), ml_dtypes.float8_e5m2)
    np.testing.assert_array_equal(multiply(a, b, accumulate(whole, transposed)), product(a, b.T))


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.float8_e4m3fn, np.int8])
def test_operands_other_than_16_bit_must_have_k_contiguous(dtype):
    acc_dtype = jnp.int32 if dtype is np.int8 else jnp.float32
    a, b = integers((M, K), dtype), integers((K, N), dtype)
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"test_wgmma.py:\d+ wgmma: operand b .*\(n, k\).*transpose"):
        multiply(a, b, accumulate(whole, whole, dtype=acc_dtype), acc_dtype)


def test_tf32_drops_the_low_bits_of_the_operands():
    a = np.full((M, 32), 1 + 2.0**-12, np.float32)
    b = np.ones((N, 32), np.float32)
    np.testing.assert_array_equal(multiply(a, b, accumulate(whole, transposed)), np.full((M, N), 32.0))


@pytest.mark.parametrize("dtype", SIXTEEN_BIT)
def test_operand_a_in_registers(dtype):
    a, b = integers((M, K), dtype), integers((K, N), dtype)
    result = multiply(a, b, accumulate(lambda ref: mgpu.load(ref, layout=mgpu.Layout.WGMMA) * 2, whole))
    np.testing.assert_array_equal(result, product(a, b) * 2)


def test_parts_of_an_accumulator_are_written_separately():
    a, b = integers((M, K), np.float16), integers((K, N), np.float16)

    def run(a_smem, b_smem):
        def scope(acc):
            for half in range(2):
                columns = pl.ds(half * 64, 64)
                mgpu.wgmma(acc.at[:, columns], a_smem, b_smem.at[:, columns])
            mgpu.wgmma_wait(0)
            return acc[...]

        return pl.run_scoped(scope, mgpu.ACC((M, N)))

    np.testing.assert_array_equal(multiply(a, b, run), product(a, b))


def test_an_accumulator_starts_from_a_value():
    a, b = integers((M, K), np.float16), integers((K, N), np.float16)

    def run(a_smem, b_smem):
        def scope(acc):
            mgpu.wgmma(acc, a_smem, b_smem)

        start = jnp.broadcast_to(jax.lax.broadcasted_iota(jnp.float32, (M, N), 1), (M, N))
        return pl.run_state(scope)(mgpu.ACC.init(start))

    np.testing.assert_array_equal(multiply(a, b, run), product(a, b) + np.arange(N))


def test_an_accumulator_is_assigned_between_two_products():
    a, b = integers((M, K), np.float16), integers((K, N), np.float16)

    def run(a_smem, b_smem):
        def scope(acc):
            mgpu.wgmma(acc, a_smem, b_smem)
            acc[...] = acc[...] * 10
            mgpu.wgmma(acc, a_smem, b_smem)
            return acc[...]

        return pl.run_scoped(scope, mgpu.ACC((M, N)))

    np.testing.assert_array_equal(multiply(a, b, run), product(a, b) * 11)


def test_what_the_function_of_run_state_returns_comes_first_as_in_mosaic_gpu():
    a, b = integers((M, K), np.float16), integers((K, N), np.float16)

    def run(a_smem, b_smem):
        def scope(acc):
            mgpu.wgmma(acc, a_smem, b_smem)
            return acc[...] * 3

        return pl.run_state(scope)(mgpu.ACC.init(jnp.ones((M, N), jnp.float32)))

    np.testing.assert_array_equal(multiply(a, b, run), product(a, b) * 3 + 3)


LANE = mgpu.CompilerParams(lowering_semantics=mgpu.LoweringSemantics.Lane)


def test_an_accumulator_is_not_assigned_an_array_of_another_layout():
    def body(out_ref):
        def scope(acc):
            acc[...] = mgpu.layout_cast(jnp.zeros((64, 128), jnp.float32), mgpu.Layout.WGMMA_8BIT)

        pl.run_scoped(scope, mgpu.ACC((64, 128)))
        out_ref[...] = jnp.zeros((128,), jnp.float32)

    with pytest.raises(mgpu.errors.KernelTypeError, match=r"test_wgmma.py:\d+ ACC: .*WGMMA_8BIT.*layout_cast"):
        mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), compiler_params=LANE)()


def test_run_state_carries_plain_arrays_and_accumulators_together():
    a, b = integers((M, K), np.float16), integers((K, N), np.float16)

    def run(a_smem, b_smem):
        def scope(refs):
            acc, count = refs
            for _ in range(2):
                mgpu.wgmma(acc, a_smem, b_smem)
                count[...] = count[...] + 1

        acc, count = pl.run_state(scope)((mgpu.ACC.init(jnp.zeros((M, N))), jnp.int32(5)))
        return acc + count.astype(jnp.float32)

    np.testing.assert_array_equal(multiply(a, b, run), 2 * product(a, b) + 7)


def test_reading_before_waiting_gives_what_was_there_before():
    """A wgmma's result exists once it has been waited for: an early read must not see it."""
    a, b = integers((M, K), np.float16), integers((K, N), np.float16)

    def run(a_smem, b_smem):
        def scope(acc):
            mgpu.wgmma(acc, a_smem, b_smem)
            early = mgpu.wgmma_accumulator_load(acc, wait_n=None)
            return acc[...] - early

        return pl.run_scoped(scope, mgpu.ACC((M, N)))

    with pytest.warns(
        mgpu.errors.RaceWarning, match=r"read of acc by .* is not ordered after wgmma of acc .*Needs wgmma_wait"
    ):
        result = multiply(a, b, run)
    np.testing.assert_array_equal(result, product(a, b))


def _two_warpgroup_free(call):
    def body(out_ref, a, b, wide):
        pl.run_scoped(lambda acc: call(acc, a, b, wide), mgpu.ACC((64, 128)))
        out_ref[...] = jnp.zeros((128,), jnp.float32)

    scratch = [tiled((64, 64), np.float16), tiled((64, 128), np.float16), tiled((64, 512), np.float16)]
    return mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), scratch_types=scratch)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda acc, a, b, w: mgpu.wgmma(a, a, b), r"acc must be an accumulator, got float16\[64, 64\] in SMEM"),
        (lambda acc, a, b, w: mgpu.wgmma(acc, a, jnp.zeros((64, 128))), r"operand b must be in SMEM"),
        (lambda acc, a, b, w: mgpu.wgmma(acc, a, b.T), r"does not fit: need acc \(m, n\), a \(m, k\), b \(k, n\)"),
        (lambda acc, a, b, w: mgpu.wgmma(acc, jnp.zeros((64, 64)), b), r"a is float32 but b is float16"),
        (lambda acc, a, b, w: mgpu.wgmma(acc.at[pl.ds(0, 32)], a.at[pl.ds(0, 32)], b), r"m must be a multiple of 64"),
        (lambda acc, a, b, w: mgpu.wgmma_wait(-1), r"n must be an integer of at least 0"),
        (
            lambda acc, a, b, w: acc.__setitem__((slice(None), slice(0, 8)), jnp.zeros((64, 8))),
            r"a part of the accumulator \[64, 128\] is assigned",
        ),
        (lambda acc, a, b, w: acc.__setitem__(..., jnp.zeros(128)), r"float32\[128\] is assigned to an accumulator"),
    ],
)
def test_misuse_names_the_line_and_the_remedy(call, message):
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"^test_wgmma.py:\d+ .*" + message):
        _two_warpgroup_free(call)()


def test_accumulator_types_are_checked():
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"m a multiple of 64 and n a multiple of 8"):
        mgpu.ACC((32, 128))
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"dtype must be float32, float16 or int32"):
        mgpu.ACC((64, 128), jnp.bfloat16)
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"no value to start from"):
        pl.run_state(lambda acc: None)(mgpu.ACC((64, 128)))


@pytest.mark.parametrize("operand", ["a", "b"])
@pytest.mark.parametrize("by_tma", [False, True])
def test_an_operand_may_be_overwritten_once_the_wgmma_has_been_waited_for(operand, by_tma):
    """The accumulator is read later, and holds the product of what the operands were."""
    a, b = integers((M, M), jnp.bfloat16), integers((M, M), jnp.bfloat16)

    def body(a_ref, b_ref, zeros_ref, out_ref, a_smem, b_smem, full):
        a_smem[...] = a_ref[...]
        b_smem[...] = b_ref[...]
        mgpu.commit_smem()

        def scope(acc):
            mgpu.wgmma(acc, a_smem, b_smem)
            mgpu.wgmma_wait(0)
            overwritten = a_smem if operand == "a" else b_smem
            if by_tma:
                mgpu.copy_gmem_to_smem(zeros_ref, overwritten, full)
                mgpu.barrier_wait(full)
            else:
                overwritten[...] = zeros_ref[...]
            return acc[...]

        out_ref[...] = pl.run_scoped(scope, mgpu.ACC((M, M)))

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((M, M), jnp.float32),
        scratch_types=[tiled((M, M), jnp.bfloat16), tiled((M, M), jnp.bfloat16), mgpu.Barrier()],
    )
    result = kernel(a, b, np.zeros((M, M), jnp.bfloat16))
    np.testing.assert_array_equal(result, a.astype(np.float32) @ b.astype(np.float32))


def test_a_value_to_start_from_is_for_run_state_only():
    def body(out):
        out[...] = pl.run_scoped(lambda acc: acc[...], mgpu.ACC.init(jnp.ones((64, 64), jnp.float32)))

    kernel = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32))
    message = r"test_wgmma.py:\d+ ACC: .*pl.run_state\(f\)\(ACC.init\(array\)\)"
    with pytest.raises(mgpu.errors.KernelTypeError, match=message):
        kernel()
