"""TMA copies: what they move, where they fill or clip, what they combine, and what they refuse."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.core import ShapedArray
from jax.experimental import pallas as pl

import mgpu
from mgpu.devices import load_device

F32 = jnp.float32
WRONG: Any = 3
X = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)


def copy_through_smem(x, shape, source, target, out=None, dtype=None, **arguments):
    """Loads `source(x_ref)` to SMEM of `shape` and stores it to `target(out_ref)`."""
    dtype = dtype or x.dtype
    out = out or jax.ShapeDtypeStruct(shape, dtype)

    def body(x_ref, out_ref, buffer, full):
        mgpu.copy_gmem_to_smem(source(x_ref), buffer, full, **arguments)
        mgpu.barrier_wait(full)
        mgpu.copy_smem_to_gmem(buffer, target(out_ref))
        mgpu.wait_smem_to_gmem(0)

    return mgpu.kernel(body, out_type=out, scratch_types=[mgpu.SMEM(shape, dtype), mgpu.Barrier()])(x)


def whole(ref):
    return ref


def test_a_box_that_leaves_the_array_is_filled_with_zeros():
    result = copy_through_smem(
        X, (32, 16), lambda ref: ref.at[pl.ds(jnp.int32(48), 32), pl.ds(jnp.int32(56), 16)], whole
    )
    expected = np.zeros((32, 16), np.float32)
    expected[:16, :8] = X[48:, 56:]
    np.testing.assert_array_equal(result, expected)


PIECES = {
    "a whole long array": ((8192,), lambda ref: ref, lambda x: x),
    "part of a long array": ((8192,), lambda ref: ref.at[pl.ds(4096, 4096)], lambda x: x[4096:]),
    "a long row": ((5, 4, 512), lambda ref: ref.at[4, 3], lambda x: x[4, 3]),
    "long rows": ((5, 2, 512), lambda ref: ref.at[pl.ds(2, 1)], lambda x: x[2:3]),
    "a reshaped array": ((2, 512), lambda ref: ref.reshape(1024), lambda x: x.reshape(1024)),
}


@pytest.mark.parametrize("name", PIECES)
@pytest.mark.parametrize("mode", [mgpu.OOBFillMode.UNDEFINED, mgpu.OOBFillMode.PROMISE_IN_BOUNDS])
def test_one_piece_of_memory_of_any_length_is_copied_without_a_box(name, mode):
    shape, part, expect = PIECES[name]
    x = np.arange(math.prod(shape), dtype=np.float32).reshape(shape)
    expected = expect(x)
    result = copy_through_smem(x, expected.shape, part, whole, oob_mode=mode)
    np.testing.assert_array_equal(result, expected)


def test_one_piece_that_leaves_the_array_lands_up_to_its_end():
    def body(start_ref, x_ref, out_ref, buffer, full):
        part = (pl.ds(start_ref[0], 512),)
        mgpu.copy_gmem_to_smem(x_ref.at[part], buffer, full, oob_mode=mgpu.OOBFillMode.UNDEFINED)
        mgpu.barrier_wait(full)
        mgpu.copy_smem_to_gmem(buffer, out_ref.at[part])
        mgpu.wait_smem_to_gmem(0)

    out = jax.ShapeDtypeStruct((1024,), F32)
    kernel = mgpu.kernel(body, out_type=out, scratch_types=[mgpu.SMEM((512,), F32), mgpu.Barrier()])
    x = np.arange(1024, dtype=np.float32)
    np.testing.assert_array_equal(kernel(np.array([800]), x)[800:], x[800:])


MISMATCHES = {
    "slice or widen": jax.ShapeDtypeStruct((64,), F32),
    "give both one dtype": jax.ShapeDtypeStruct((128,), jnp.bfloat16),
}


@pytest.mark.parametrize("remedy", MISMATCHES)
@pytest.mark.parametrize("is_load", [True, False])
def test_both_sides_of_a_copy_have_one_shape_and_dtype(remedy, is_load):
    def body(out_ref, buffer, full):
        if is_load:
            mgpu.copy_gmem_to_smem(out_ref, buffer, full)
        else:
            mgpu.copy_smem_to_gmem(buffer, out_ref)

    out = MISMATCHES[remedy]
    ours, theirs = r"float32\[128\] in SMEM", rf"{np.dtype(out.dtype).name}\[{out.shape[0]}\] in GMEM"
    sides = f"dst is {ours} but src is {theirs}" if is_load else f"dst is {theirs} but src is {ours}"
    with pytest.raises(mgpu.errors.KernelTypeError, match=rf"{sides}\. .*{remedy}"):
        mgpu.kernel(body, out_type=out, scratch_types=[mgpu.SMEM((128,), F32), mgpu.Barrier()])()


BOXES = {
    "columns": ((4, 1024), (4, 512), lambda ref: ref.at[:, pl.ds(0, 512)], {"oob_mode": mgpu.OOBFillMode.UNDEFINED}),
    "transposed": ((512, 4), (4, 512), lambda ref: ref.T, {"oob_mode": mgpu.OOBFillMode.UNDEFINED}),
    "zeros outside": ((512,), (512,), whole, {}),
}


@pytest.mark.parametrize("name", BOXES)
def test_a_box_with_a_long_side_is_refused(name):
    shape, selected, part, arguments = BOXES[name]
    remedy = "PROMISE_IN_BOUNDS copies it without a box" if name == "zeros outside" else "Copy it in parts"
    with pytest.raises(mgpu.errors.KernelTypeError, match=rf"has a side of 512 elements; .*at most 256 .*{remedy}"):
        copy_through_smem(np.zeros(shape, np.float32), selected, part, whole, **arguments)


def test_dimensions_of_one_do_not_count_for_the_rank_of_a_box():
    x = np.arange(2 * 64 * 64, dtype=np.float32).reshape(2, 64, 1, 1, 1, 1, 64)
    np.testing.assert_array_equal(copy_through_smem(x, x.shape, whole, whole), x)
    y = np.zeros((2, 2, 2, 2, 2, 16), np.float32)
    with pytest.raises(mgpu.errors.KernelTypeError, match="1 to 5 dimensions besides those of 1"):
        copy_through_smem(y, y.shape, whole, whole)


@settings(max_examples=25, deadline=None)
@given(row=st.integers(-40, 80), column=st.integers(-40, 80))
def test_boxes_anywhere_are_filled_and_clipped_as_numpy_padding_would(row, column):
    """A padded copy of the array gives the loaded box; a padded output takes the stored one."""

    def body(at_ref, x_ref, out_ref, buffer, full):
        box = (pl.ds(at_ref[0], 16), pl.ds(at_ref[1], 32))
        mgpu.copy_gmem_to_smem(x_ref.at[box], buffer, full)
        mgpu.barrier_wait(full)
        buffer[...] = buffer[...] + 1
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(buffer, out_ref.at[box])
        mgpu.wait_smem_to_gmem(0)

    kernel = mgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((64, 64), F32), scratch_types=[mgpu.SMEM((16, 32), F32), mgpu.Barrier()]
    )
    result = np.nan_to_num(kernel(np.array([row, column], np.int32), X), nan=-7)
    margin = 128
    wide = np.pad(X, margin)[margin + row :, margin + column :][:16, :32]
    expected = np.full((64 + 2 * margin,) * 2, -7.0, np.float32)
    expected[margin + row : margin + row + 16, margin + column : margin + column + 32] = wide + 1
    np.testing.assert_array_equal(result, expected[margin:-margin, margin:-margin])


def test_undefined_fill_shows_in_the_result():
    result = copy_through_smem(
        X,
        (8, 16),
        lambda ref: ref.at[pl.ds(jnp.int32(60), 8), pl.ds(0, 16)],
        whole,
        oob_mode=mgpu.OOBFillMode.UNDEFINED,
    )
    np.testing.assert_array_equal(result[:4], X[60:, :16])
    assert np.isnan(result[4:]).all()


def test_a_broken_promise_to_stay_in_bounds_is_an_error():
    with pytest.raises(mgpu.errors.OutOfBoundsError, match=r"test_copies.py:\d+ .*\[60, 0\].*PROMISE_IN_BOUNDS"):
        copy_through_smem(
            X,
            (8, 16),
            lambda ref: ref.at[pl.ds(jnp.int32(60), 8), pl.ds(0, 16)],
            whole,
            oob_mode=mgpu.OOBFillMode.PROMISE_IN_BOUNDS,
        )


def test_integer_indices_drop_dimensions():
    x = np.arange(4 * 3 * 8 * 16, dtype=np.int32).reshape(4, 3, 8, 16)
    result = copy_through_smem(x, (8, 16), lambda ref: ref.at[2, 1], lambda ref: ref)
    np.testing.assert_array_equal(result, x[2, 1])


def test_a_load_may_transpose_its_source():
    result = copy_through_smem(X, (16, 32), lambda ref: ref.T.at[pl.ds(8, 16), pl.ds(4, 32)], whole)
    np.testing.assert_array_equal(result, X.T[8:24, 4:36])


def test_an_array_of_rows_is_gathered():
    rows = np.array([5, 0, 63, 5, 17, 2, 9, 33], np.int32)

    def body(rows_ref, x_ref, out_ref, buffer, full):
        mgpu.copy_gmem_to_smem(x_ref.at[rows_ref[...], pl.ds(16, 32)], buffer, full)
        mgpu.barrier_wait(full)
        out_ref[...] = buffer[...]

    kernel = mgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((8, 32), F32), scratch_types=[mgpu.SMEM((8, 32), F32), mgpu.Barrier()]
    )
    np.testing.assert_array_equal(kernel(rows, X), X[rows, 16:48])
    with pytest.raises(mgpu.errors.OutOfBoundsError, match=r"index 64 into x_ref"):
        kernel(rows + 1, X)


@pytest.mark.parametrize("keep", [True, False])
def test_predicates_skip_copies(keep):
    def body(keep_ref, x_ref, out_ref, buffer, full):
        predicate = keep_ref[0] > 0
        buffer[...] = jnp.zeros((64, 64), F32)
        mgpu.commit_smem()
        mgpu.copy_gmem_to_smem(x_ref, buffer, full, predicate=predicate)
        pl.when(predicate)(lambda: mgpu.barrier_wait(full))
        pl.when(jnp.logical_not(predicate))(lambda: out_ref.__setitem__(..., jnp.full((64, 64), -1, F32)))
        mgpu.copy_smem_to_gmem(buffer, out_ref, predicate)
        mgpu.wait_smem_to_gmem(0)

    kernel = mgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((64, 64), F32), scratch_types=[mgpu.SMEM((64, 64), F32), mgpu.Barrier()]
    )
    result = kernel(np.array([keep] * 4, np.int32), X)
    np.testing.assert_array_equal(result, X if keep else np.full((64, 64), -1))


REDUCTIONS = {
    "add": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}


@pytest.mark.parametrize("operation", REDUCTIONS)
def test_reduction_stores_combine_with_what_is_there(operation):
    first, second = np.random.default_rng(0).integers(0, 99, (2, 8, 32)).astype(np.int32)

    def body(x_ref, out_ref, buffer, full):
        for part in range(2):
            mgpu.copy_gmem_to_smem(x_ref.at[part], buffer, full)
            mgpu.barrier_wait(full)
            mgpu.copy_smem_to_gmem(buffer, out_ref, reduction_op=operation if part else None)
            mgpu.wait_smem_to_gmem(0)

    scratch = [mgpu.SMEM((8, 32), jnp.int32), mgpu.Barrier()]
    result = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((8, 32), jnp.int32), scratch_types=scratch)(
        np.stack([first, second])
    )
    np.testing.assert_array_equal(result, REDUCTIONS[operation](first, second))


def test_bfloat16_sums_are_rounded_in_memory():
    x = jnp.asarray([[256.0] * 8, [1.0] * 8], jnp.bfloat16)

    def body(x_ref, out_ref, buffer, full):
        mgpu.copy_gmem_to_smem(x_ref, buffer, full)
        mgpu.barrier_wait(full)
        mgpu.copy_smem_to_gmem(buffer.at[0], out_ref)
        mgpu.wait_smem_to_gmem(0)
        mgpu.copy_smem_to_gmem(buffer.at[1], out_ref, reduction_op="add")
        mgpu.wait_smem_to_gmem(0)

    scratch = [mgpu.SMEM((2, 8), jnp.bfloat16), mgpu.Barrier()]
    result = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((8,), jnp.bfloat16), scratch_types=scratch)(x)
    np.testing.assert_array_equal(np.asarray(result, np.float32), [256.0] * 8)  # 257 needs nine bits


def _load_cycles(prefetch):
    def body(x_ref, out_ref, buffer, full):
        if prefetch:
            mgpu.async_prefetch(x_ref)
        pl.delay(3000)
        mgpu.copy_gmem_to_smem(x_ref, buffer, full)
        mgpu.barrier_wait(full)
        out_ref[...] = jnp.zeros((128,), F32)

    from mgpu.frontend.build import build_program
    from mgpu.frontend.program import Launch
    from mgpu.sim.options import InterpretGPUParams
    from mgpu.sim.simulation import prepare, simulate

    program, consts = build_program(
        body,
        name="load",
        in_tree=jax.tree.structure((0,)),
        in_avals=[ShapedArray((64, 64), F32)],
        out_type=jax.ShapeDtypeStruct((128,), F32),
        scratch=[mgpu.SMEM((64, 64), F32), mgpu.Barrier()],
        launch=Launch(),
        params=mgpu.CompilerParams(),
    )
    kernel = prepare(program, load_device("h100"), 1, InterpretGPUParams())
    return simulate(kernel, consts, [X]).cycles


def test_a_prefetched_box_is_loaded_at_the_latency_of_l2():
    device = load_device("h100")
    # The prefetch itself is issued by the same thread; the load then misses DRAM's share of the latency.
    saved = device.tma_latency_dram_cycles - device.tma_latency_l2_cycles
    difference = _load_cycles(False) - _load_cycles(True)
    assert saved - 2 * device.tma_issue_cycles <= difference <= saved + device.tma_issue_cycles + 64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, o, s, b: mgpu.copy_gmem_to_smem(x, s), r"barrier is missing"),
        (lambda x, o, s, b: mgpu.copy_gmem_to_smem(x, s, b, oob_mode=WRONG), r"oob_mode must be an OOBFillMode, got 3"),
        (lambda x, o, s, b: mgpu.copy_gmem_to_smem(s, s, b), r"src must be in GMEM, got float32\[64, 64\] in SMEM"),
        (lambda x, o, s, b: mgpu.copy_gmem_to_smem(x, o, b), r"dst must be in SMEM"),
        (lambda x, o, s, b: mgpu.copy_gmem_to_smem(x, s.at[pl.ds(0, 8)], b), r"A TMA copy moves one whole box"),
        (lambda x, o, s, b: mgpu.copy_gmem_to_smem(x.at[:, 0], s.at[:, 0], x), r"barrier must be a Barrier"),
        (lambda x, o, s, b: mgpu.copy_gmem_to_smem(x.at[:, :2], s.at[:, :2], b), r"is 8 bytes; TMA moves multiples"),
        (lambda x, o, s, b: mgpu.copy_gmem_to_smem(x, s, b, predicate=WRONG), r"predicate must be a scalar boolean"),
        (lambda x, o, s, b: mgpu.copy_smem_to_gmem(s, o, reduction_op="mean"), r"reduction_op must be one of add"),
        (lambda x, o, s, b: mgpu.copy_smem_to_gmem(s, o, reduction_op="xor"), r"works on integers, and src is float32"),
        (lambda x, o, s, b: mgpu.async_prefetch(s), r"async_prefetch: ref must be in GMEM"),
        (lambda x, o, s, b: mgpu.wait_smem_to_gmem(-1), r"n must be an integer of at least 0"),
    ],
)
def test_misuse_names_the_line_and_the_remedy(call, message):
    def body(x_ref, out_ref, buffer, full):
        call(x_ref, out_ref, buffer, full)

    kernel = mgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((64, 64), F32), scratch_types=[mgpu.SMEM((64, 64), F32), mgpu.Barrier()]
    )
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"^test_copies.py:\d+ .*" + message):
        kernel(X)
