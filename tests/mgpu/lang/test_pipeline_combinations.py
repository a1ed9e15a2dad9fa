"""Pipelines one after another, inside each other, in one warpgroup of several, and drawn at random."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((64, 128), np.float32)
FLOAT = jnp.float32


def test_pipelines_one_after_another_in_a_loop() -> None:
    def body(x: Any, out: Any) -> None:
        def pipeline(scale: Any) -> Any:
            def step(_: Any, x_smem: Any, out_smem: Any) -> None:
                out_smem[...] = x_smem[...] * scale

            block = plgpu.BlockSpec((16, 32), lambda i, j: (i, j))
            return plgpu.emit_pipeline(step, grid=(4, 4), in_specs=[block], out_specs=[block], max_concurrent_steps=3)

        pipeline(jnp.float32(2))(x, out)
        lax.fori_loop(0, 2, lambda _, carry: pipeline(jnp.float32(3))(out, out), None)

    run = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(X.shape, FLOAT))
    np.testing.assert_allclose(run(X), X * 18, rtol=1e-6)


def test_a_pipeline_inside_a_pipeline() -> None:
    def body(x: Any, y: Any, out: Any) -> None:
        def outer(indices: Any, x_smem: Any, out_smem: Any) -> None:
            (i,) = indices

            def inner(_: Any, y_smem: Any, carry: Any) -> Any:
                return carry + y_smem[...]

            total = plgpu.emit_pipeline(
                inner,
                grid=(4,),
                in_specs=[plgpu.BlockSpec((16, 32), lambda j: (i, j))],
                max_concurrent_steps=2,
                init_carry=jnp.zeros((16, 32), FLOAT),
            )(y)
            out_smem[...] = x_smem[...] + total

        block = plgpu.BlockSpec((16, 32), lambda i: (i, 0))
        plgpu.emit_pipeline(outer, grid=(4,), in_specs=[block], out_specs=[block], max_concurrent_steps=2)(x, out)

    run = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, 32), FLOAT))
    x = X[:, :32].copy()
    np.testing.assert_allclose(run(x, X), x + X.reshape(64, 4, 32).sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_two_warpgroups_run_pipelines_of_their_own(seed: int | None) -> None:
    def body(x: Any, out: Any, negative: Any) -> None:
        wg = lax.axis_index("wg")

        def pipeline(sign: int, steps: int) -> Any:
            def step(_: Any, x_smem: Any, out_smem: Any) -> None:
                out_smem[...] = x_smem[...] * sign

            block = plgpu.BlockSpec((64 // steps, 32), lambda i: (i, 0))
            return plgpu.emit_pipeline(step, grid=(steps,), in_specs=[block], out_specs=[block], max_concurrent_steps=2)

        first, second = pipeline(1, 4), pipeline(-1, 8)

        def with_slots(mine: Any, others: Any) -> None:
            pl.when(wg == 0)(lambda: first(x, out, allocations=mine))
            pl.when(wg == 1)(lambda: second(x, negative, allocations=others))

        pl.run_scoped(
            with_slots, first.get_allocations(x, out), second.get_allocations(x, negative), collective_axes="wg"
        )

    shape = jax.ShapeDtypeStruct((64, 32), FLOAT)
    run = plgpu.kernel(
        body, out_type=(shape, shape), num_threads=2, thread_name="wg", interpret=plgpu.InterpretGPUParams(seed=seed)
    )
    x = X[:, :32].copy()
    out, negative = run(x)
    np.testing.assert_array_equal(out, x)
    np.testing.assert_array_equal(negative, -x)


def test_wgmma_keeps_its_operands_while_the_next_step_runs() -> None:
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))

    def body(a: Any, b: Any, out: Any) -> None:
        def accumulate(acc: Any) -> jax.Array:
            def step(_: Any, a_smem: Any, b_smem: Any) -> None:
                plgpu.wgmma(acc, a_smem, b_smem)
                plgpu.wgmma_wait(1)

            specs = [
                plgpu.BlockSpec((64, 64), lambda k: (0, k), transforms=transforms, delay_release=1),
                plgpu.BlockSpec((64, 64), lambda k: (k, 0), transforms=transforms, delay_release=1),
            ]
            plgpu.emit_pipeline(step, grid=(6,), in_specs=specs, max_concurrent_steps=2)(a, b)
            return acc[...]

        out[...] = pl.run_scoped(accumulate, plgpu.ACC((64, 64)))

    a, b = (GENERATOR.standard_normal(shape).astype(jnp.float16) for shape in ((64, 384), (384, 64)))
    run = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, 64), FLOAT))
    np.testing.assert_allclose(run(a, b), a.astype(np.float32) @ b.astype(np.float32), rtol=1e-4, atol=1e-4)


class Case:
    """A random pipeline over a 3-d operand: an element-wise output, and a sum over the axes that it does not name."""

    def __init__(self, draw: Any) -> None:
        self.blocks = draw(st.tuples(st.integers(1, 3), st.sampled_from([2, 5, 8]), st.sampled_from([4, 8, 16])))
        self.grid = draw(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)))
        cut = draw(st.tuples(st.integers(0, 1), st.integers(0, 1)))
        full = [block * count for block, count in zip(self.blocks, self.grid, strict=True)]
        self.shape = (full[0], max(1, full[1] - cut[0]), full[2] - 4 * cut[1] if full[2] > 4 else full[2])
        self.kept = draw(st.integers(0, 3))  # leading axes that the sum is kept along
        self.slots = draw(st.integers(1, 4))
        self.delays = draw(st.tuples(st.integers(0, self.slots - 1), st.integers(0, self.slots - 1)))
        self.dynamic = draw(st.booleans())
        self.seed = draw(st.one_of(st.none(), st.integers(0, 99)))

    def run(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Runs the pipeline on the simulator."""
        last = self.grid[2]

        def body(size: Any, x_gmem: Any, doubled: Any, sums: Any) -> None:
            def step(indices: Any, x_smem: Any, same_smem: Any, doubled_smem: Any, sum_smem: Any) -> None:
                is_first = jnp.bool_(True)
                for axis in range(self.kept, 3):
                    is_first = is_first & (indices[axis] == 0)
                before = jnp.where(is_first, 0.0, sum_smem[...])
                sum_smem[...] = before + x_smem[...]
                doubled_smem[...] = x_smem[...] + same_smem[...]

            def everywhere(i: Any, j: Any, k: Any) -> Any:
                return (i, j, k)

            def kept(i: Any, j: Any, k: Any) -> Any:
                return tuple(index if axis < self.kept else 0 for axis, index in enumerate((i, j, k)))

            in_specs = [plgpu.BlockSpec(self.blocks, everywhere, delay_release=delay) for delay in self.delays]
            out_specs = [plgpu.BlockSpec(self.blocks, everywhere), plgpu.BlockSpec(self.blocks, kept)]
            grid = (*self.grid[:2], size[0] if self.dynamic else last)
            plgpu.emit_pipeline(
                step, grid=grid, in_specs=in_specs, out_specs=out_specs, max_concurrent_steps=self.slots
            )(x_gmem, x_gmem, doubled, sums)

        sum_shape = [
            b * (n if axis < self.kept else 1) for axis, (b, n) in enumerate(zip(self.blocks, self.grid, strict=True))
        ]
        out_type = (jax.ShapeDtypeStruct(self.shape, FLOAT), jax.ShapeDtypeStruct(sum_shape, FLOAT))
        interpret = plgpu.InterpretGPUParams(seed=self.seed)
        doubled, sums = plgpu.kernel(body, out_type=out_type, interpret=interpret)(np.full(4, last, np.int32), x)
        return np.asarray(doubled), np.asarray(sums)

    def expected_sums(self, x: np.ndarray) -> np.ndarray:
        """Returns the sum of the zero-padded blocks over the axes that are not kept."""
        padding = [(0, b * n - size) for b, n, size in zip(self.blocks, self.grid, self.shape, strict=True)]
        shape = [length for pair in zip(self.grid, self.blocks, strict=True) for length in pair]
        blocks = np.pad(x, padding).reshape(shape)
        summed = blocks.sum(axis=tuple(2 * axis for axis in range(self.kept, 3)), keepdims=True)
        sizes = [
            b * (n if axis < self.kept else 1) for axis, (b, n) in enumerate(zip(self.blocks, self.grid, strict=True))
        ]
        return summed.reshape(sizes)


@settings(max_examples=40)
@given(st.data())
def test_random_pipelines_compute_what_numpy_computes(data: Any) -> None:
    case = Case(data.draw)
    x = GENERATOR.integers(-8, 8, case.shape).astype(np.float32)
    doubled, sums = case.run(x)
    np.testing.assert_array_equal(doubled, 2 * x)
    np.testing.assert_array_equal(sums, case.expected_sums(x))
