"""`emit_pipeline`: what it computes, for every kind of block, grid and depth, against NumPy."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as reference

import mgpu as plgpu

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((128, 256), np.float32)


def run(body: Any, out_shapes: Sequence[tuple[int, ...]], *operands: Any, **options: Any) -> list[np.ndarray]:
    """Runs a kernel body with float32 outputs of the given shapes."""
    out_type = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in out_shapes)
    return [np.asarray(out) for out in plgpu.kernel(body, out_type=out_type, **options)(*operands)]


def spec(*block: Any, index: Any, **options: Any) -> Any:
    """Returns a BlockSpec."""
    return plgpu.BlockSpec(block, index, **options)


def test_the_signature_is_that_of_jax() -> None:
    ours, theirs = (inspect.signature(module.emit_pipeline).parameters for module in (plgpu, reference))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]


def test_block_spec_takes_what_jax_takes() -> None:
    ours, theirs = (inspect.signature(module.BlockSpec).parameters for module in (plgpu, reference))
    newer = {"oob_fill_mode"}  # JAX 0.12 has it, 0.10 has not
    assert [name for name in ours if name not in newer] == [name for name in theirs if name not in newer]
    assert issubclass(plgpu.BlockSpec, pl.BlockSpec)


@pytest.mark.parametrize("slots", [1, 2, 3, 40])
def test_several_inputs_and_outputs(slots: int) -> None:
    def body(x: Any, y: Any, total: Any, difference: Any) -> None:
        def step(_: Any, x_smem: Any, y_smem: Any, total_smem: Any, difference_smem: Any) -> None:
            total_smem[...] = x_smem[...] + y_smem[...]
            difference_smem[...] = x_smem[...] - y_smem[...]

        block = spec(32, 32, index=lambda i, j: (i, j))
        row = spec(32, 32, index=lambda i, j: (i, 0))
        plgpu.emit_pipeline(
            step, grid=(2, 2), in_specs=[block, row], out_specs=[block, block], max_concurrent_steps=slots
        )(x, y, total, difference)

    x, y = X[:64, :64], X[64:, :32]
    total, difference = run(body, [(64, 64), (64, 64)], x, y)
    np.testing.assert_array_equal(total, x + np.tile(y, 2))
    np.testing.assert_array_equal(difference, x - np.tile(y, 2))


@pytest.mark.parametrize("slots", [1, 2, 4])
def test_a_block_that_several_steps_write_keeps_what_they_wrote(slots: int) -> None:
    def body(x: Any, sums: Any, copies: Any) -> None:
        def step(indices: Any, x_smem: Any, sum_smem: Any, copy_smem: Any) -> None:
            @pl.when(indices[1] == 0)
            def _() -> None:
                sum_smem[...] = jnp.zeros_like(sum_smem)

            sum_smem[...] += x_smem[...]
            copy_smem[...] = x_smem[...]

        block = spec(32, 64, index=lambda i, j: (i, j))
        row = spec(32, 64, index=lambda i, j: (i, 0))
        plgpu.emit_pipeline(step, grid=(4, 4), in_specs=[block], out_specs=[row, block], max_concurrent_steps=slots)(
            x, sums, copies
        )

    sums, copies = run(body, [(128, 64), (128, 256)], X)
    np.testing.assert_allclose(sums, X.reshape(128, 4, 64).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(copies, X)


def test_an_output_whose_block_never_moves_is_stored_once_at_the_end() -> None:
    def body(x: Any, out: Any) -> None:
        def step(indices: Any, x_smem: Any, out_smem: Any) -> None:
            before = jnp.where(indices[0] == 0, 0.0, out_smem[...])
            out_smem[...] = before + x_smem[...]

        plgpu.emit_pipeline(
            step,
            grid=(4,),
            in_specs=[spec(32, 64, index=lambda i: (i, 0))],
            out_specs=[plgpu.BlockSpec((32, 64), lambda i: (0, 0))],
            max_concurrent_steps=3,
        )(x, out)

    (out,) = run(body, [(32, 64)], X[:, :64])
    np.testing.assert_allclose(out, X[:, :64].reshape(4, 32, 64).sum(0), rtol=1e-6)


def test_blocks_that_cross_the_border_are_filled_with_zeros_and_clipped() -> None:
    def body(x: Any, out: Any, padded: Any) -> None:
        def step(_: Any, x_smem: Any, out_smem: Any, padded_smem: Any) -> None:
            out_smem[...] = x_smem[...]
            padded_smem[...] = x_smem[...]

        block = spec(32, 32, index=lambda i, j: (i, j))
        plgpu.emit_pipeline(step, grid=(2, 3), in_specs=[block], out_specs=[block, block], max_concurrent_steps=2)(
            x, out, padded
        )

    x = X[:50, :76]
    out, padded = run(body, [(50, 76), (64, 96)], x)
    np.testing.assert_array_equal(out, x)
    np.testing.assert_array_equal(padded, np.pad(x, ((0, 14), (0, 20))))


def test_dropped_dimensions_and_windows_by_element() -> None:
    def body(x: Any, out: Any) -> None:
        def step(_: Any, x_smem: Any, out_smem: Any) -> None:
            assert x_smem.shape == (8, 32)
            assert out_smem.shape == (8, 32)
            out_smem[...] = x_smem[...]

        plgpu.emit_pipeline(
            step,
            grid=(3, 4),
            # Overlapping windows of 8 rows, every 4 rows, of one matrix after the other.
            in_specs=[spec(None, pl.Element(8), 32, index=lambda i, j: (i, j * 4, 0))],
            out_specs=[spec(pl.Squeezed(), pl.Blocked(8), 32, index=lambda i, j: (i, j, 0))],
            max_concurrent_steps=2,
        )(x, out)

    x = X[:, :96].reshape(128, 3, 32).transpose(1, 0, 2)[:, :20].copy()
    (out,) = run(body, [(3, 32, 32)], x)
    expected = np.concatenate([x[:, 4 * j : 4 * j + 8] for j in range(4)], axis=1)
    np.testing.assert_array_equal(out, expected)


def test_padding_of_a_window_is_zeros() -> None:
    def body(x: Any, out: Any) -> None:
        def step(_: Any, x_smem: Any, out_smem: Any) -> None:
            out_smem[...] = x_smem[...]

        window = pl.BlockSpec((pl.Element(8, (2, 6)), 32), lambda i: (i * 8, 0))
        out_spec = pl.BlockSpec((16, 32), lambda i: (i, 0))
        plgpu.emit_pipeline(step, grid=(2,), in_specs=[window], out_specs=[out_spec])(x, out)

    x = X[:16, :32]
    (out,) = run(body, [(32, 32)], x)
    padded = np.pad(x, ((2, 6), (0, 0)))
    np.testing.assert_array_equal(out, np.concatenate([padded[:16], padded[8:24]]))


def test_blocks_in_gmem_stay_where_they_are() -> None:
    def body(x: Any, whole: Any, out: Any) -> None:
        def step(indices: Any, x_smem: Any, whole_gmem: Any, part_gmem: Any, out_gmem: Any) -> None:
            assert whole_gmem.shape == (128, 64)
            assert part_gmem.shape == (32, 64)
            out_gmem[...] = x_smem[...] + whole_gmem[pl.ds(indices[0] * 32, 32)] * part_gmem[...]

        block = spec(32, 64, index=lambda i: (i, 0))
        in_place = spec(32, 64, index=lambda i: (i, 0), memory_space=plgpu.GMEM)
        everything = plgpu.BlockSpec(memory_space=plgpu.GMEM)
        plgpu.emit_pipeline(
            step, grid=(4,), in_specs=[block, everything, in_place], out_specs=[in_place], max_concurrent_steps=2
        )(x, whole, whole, out)

    x, y = X[:, :64], X[:, 64:128]
    (out,) = run(body, [(128, 64)], x, y)
    np.testing.assert_allclose(out, x + y * y, rtol=1e-6)


def test_a_carry_goes_from_step_to_step_and_comes_out() -> None:
    def body(x: Any, out: Any, last: Any) -> None:
        def step(indices: Any, x_smem: Any, out_smem: Any, carry: Any) -> Any:
            running, count = carry
            running = running + x_smem[...]
            out_smem[...] = running
            return running, count + indices[0]

        block = spec(8, 32, index=lambda i: (i, 0))
        init = (jnp.zeros((8, 32), jnp.float32), jnp.int32(100))
        _, count = plgpu.emit_pipeline(
            step, grid=(5,), in_specs=[block], out_specs=[block], max_concurrent_steps=2, init_carry=init
        )(x, out)
        last[0] = count.astype(jnp.float32)

    x = X[:40, :32]
    out, last = run(body, [(40, 32), (4,)], x)
    np.testing.assert_allclose(out.reshape(5, 8, 32), np.cumsum(x.reshape(5, 8, 32), axis=0), rtol=1e-5, atol=1e-6)
    assert last[0] == 110


@pytest.mark.parametrize("slots", [1, 3])
def test_a_dynamic_grid(slots: int) -> None:
    def body(sizes: Any, x: Any, out: Any, count: Any) -> None:
        rows = sizes[lax.axis_index("cta")]

        def step(_: Any, x_smem: Any, out_smem: Any, carry: Any) -> Any:
            out_smem[...] = x_smem[...] + 1
            return carry + 1

        cta = lax.axis_index("cta")
        block = spec(None, 8, 32, index=lambda i, j: (cta, i, j))
        steps = plgpu.emit_pipeline(
            step,
            grid=(rows, 2),
            in_specs=[block],
            out_specs=[block],
            max_concurrent_steps=slots,
            init_carry=jnp.float32(0),
        )(x, out)
        count[cta] = steps

    sizes = np.array([0, 1, 2, 4], np.int32)
    x = X[:, :64].reshape(4, 32, 64)
    out, count = run(body, [(4, 32, 64), (4,)], sizes, x, grid=(4,), grid_names=("cta",))
    assert count.tolist() == [0, 2, 4, 8]
    for cta, rows in enumerate(sizes):
        np.testing.assert_array_equal(out[cta, : rows * 8], x[cta, : rows * 8] + 1)
        assert np.isnan(out[cta, rows * 8 :]).all()  # nobody wrote there


@pytest.mark.parametrize("traced", [False, True])
def test_a_grid_without_steps_does_nothing_and_keeps_the_carry(traced: bool) -> None:
    """Only an array may be 0: a constant 0 in the source is a mistake."""

    def body(size: Any, x: Any, out: Any) -> None:
        block = spec(8, 32, index=lambda i: (i, 0))
        carry = plgpu.emit_pipeline(
            lambda _, x_smem, carry: carry + 1,
            grid=(size[0] if traced else np.zeros((), np.int32),),
            in_specs=[block],
            init_carry=jnp.float32(7),
        )(x)
        out[0] = carry

    (out,) = run(body, [(4,)], np.zeros(1, np.int32), X[:8, :32])
    assert out[0] == 7


def test_a_grid_of_rank_zero_has_one_step() -> None:
    def body(x: Any, out: Any) -> None:
        def step(indices: Any, x_smem: Any, out_smem: Any) -> None:
            assert indices == ()
            out_smem[...] = x_smem[...] * 2

        plgpu.emit_pipeline(step, grid=(), in_specs=[plgpu.BlockSpec()], out_specs=[plgpu.BlockSpec()])(x, out)

    (out,) = run(body, [(16, 32)], X[:16, :32])
    np.testing.assert_array_equal(out, 2 * X[:16, :32])


def test_pytrees_of_specs_and_refs() -> None:
    def body(x: Any, out: Any) -> None:
        def step(_: Any, pair: Any, out_smem: Any) -> None:
            out_smem[...] = pair["top"][...] + pair["bottom"][...]

        block = spec(32, 32, index=lambda j: (0, j))
        plgpu.emit_pipeline(step, grid=(8,), in_specs=[{"top": block, "bottom": block}], out_specs=[block])(
            {"top": x.at[pl.ds(0, 32)], "bottom": x.at[pl.ds(32, 32)]}, out
        )

    (out,) = run(body, [(32, 256)], X[:64])
    np.testing.assert_array_equal(out, X[:32] + X[32:64])
