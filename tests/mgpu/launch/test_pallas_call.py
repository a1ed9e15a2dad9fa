"""`pallas_call` against JAX's own interpreter and NumPy."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu

import mgpu as plgpu
from mgpu.errors import KernelTypeError, ParamsError, Unsupported

GENERATOR = np.random.default_rng(0)
X = GENERATOR.standard_normal((128, 256), np.float32)
Y = GENERATOR.standard_normal((256, 128), np.float32)
FLOAT = jnp.float32
HERE = r"test_pallas_call\.py:\d+ "
ROWS = pl.BlockSpec((32, 64), lambda i: (i, 0))


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    """Returns the type of a float32 array."""
    return jax.ShapeDtypeStruct(sizes, FLOAT)


def same_as_jax(kernel: Any, out: Any, *operands: Any, params: Mapping[str, Any] | None = None, **options: Any) -> None:
    """Checks that a call gives what JAX's interpreter gives."""
    expected = pl.pallas_call(kernel, out, interpret=True, **options)(*operands)
    got = plgpu.pallas_call(kernel, out, compiler_params=plgpu.CompilerParams(**(params or {})), **options)(*operands)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for ours, theirs in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def double(x_ref: Any, out_ref: Any) -> None:
    out_ref[...] = x_ref[...] * 2


def test_the_signature_is_that_of_jax_and_the_reference_page() -> None:
    ours, theirs = (inspect.signature(call).parameters for call in (plgpu.pallas_call, pl.pallas_call))
    documented = {"backend"}  # on the reference page, not in these releases
    assert [(p.name, p.kind) for p in ours.values() if p.name not in documented] == [
        (p.name, p.kind) for p in theirs.values() if p.name not in documented
    ]
    for name in set(ours) & set(theirs):
        assert ours[name].default == theirs[name].default


SEMANTICS = [None, *[(a, b) for a in ("parallel", "sequential") for b in ("parallel", "sequential")]]


@pytest.mark.parametrize("semantics", SEMANTICS)
@pytest.mark.parametrize("steps", [1, 2])
def test_parallel_and_sequential_axes(semantics: Any, steps: int) -> None:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        place = pl.program_id(0) * 10 + pl.program_id(1) + pl.num_programs(0) * 100 + pl.num_programs(1) * 1000
        out_ref[...] = x_ref[...] + place

    block = pl.BlockSpec((64, 64), lambda i, j: (i, j))
    params = {"dimension_semantics": semantics, "max_concurrent_steps": steps}
    same_as_jax(kernel, shape(128, 256), X, grid=(2, 4), in_specs=[block], out_specs=block, params=params)


@pytest.mark.parametrize("delay", [0, 1])
def test_a_sum_over_a_sequential_axis(delay: int) -> None:
    def kernel(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            out_ref[...] = jnp.zeros_like(out_ref)

        out_ref[...] += jnp.sum(x_ref[...][:, :, None] * y_ref[...][None], axis=1)

    same_as_jax(
        kernel,
        shape(128, 128),
        X,
        Y,
        grid=(4, 2, 8),
        in_specs=[pl.BlockSpec((32, 32), lambda i, j, k: (i, k)), pl.BlockSpec((32, 64), lambda i, j, k: (k, j))],
        out_specs=pl.BlockSpec((32, 64), lambda i, j, k: (i, j)),
        params={
            "dimension_semantics": ("parallel", "parallel", "sequential"),
            "max_concurrent_steps": 3,
            "delay_release": delay,
        },
    )


@pytest.mark.parametrize("dropped", [None, pl.Squeezed()])
def test_dropped_block_dimensions(dropped: Any) -> None:
    row = pl.BlockSpec((dropped, 256), lambda i: (i, 0))
    same_as_jax(double, shape(16, 256), X[:16], grid=(16,), in_specs=[row], out_specs=row)


def test_the_whole_array_where_no_spec_is_given() -> None:
    same_as_jax(double, shape(32, 64), X[:32, :64])
    same_as_jax(double, shape(32, 64), X[:32, :64], in_specs=[pl.BlockSpec()])


def test_blocks_across_the_border() -> None:
    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] * 2

    block = pl.BlockSpec((32, 64), lambda i, j: (i, j))
    x = X[:100, :200]
    out = plgpu.pallas_call(kernel, shape(100, 200), grid=(4, 4), in_specs=[block], out_specs=block)(x)
    np.testing.assert_array_equal(out, 2 * x)


@settings(max_examples=15)
@given(
    blocks=st.tuples(st.sampled_from([1, 4, 8]), st.sampled_from([4, 32])),
    grid=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    swap=st.booleans(),
    semantics=st.sampled_from(SEMANTICS),
    steps=st.integers(1, 3),
)
def test_random_grids_and_maps(blocks: Any, grid: Any, swap: bool, semantics: Any, steps: int) -> None:
    def index_map(i: Any, j: Any) -> Any:
        return (grid[0] - 1 - i, j) if swap else (i, j)

    def kernel(x_ref: Any, first_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] + first_ref[...] * pl.program_id(0)

    sizes = (blocks[0] * grid[0], blocks[1] * grid[1])
    x = X[: sizes[0], : sizes[1]]
    same_as_jax(
        kernel,
        shape(*sizes),
        x,
        x,
        grid=grid,
        in_specs=[pl.BlockSpec(blocks, index_map), pl.BlockSpec(blocks, lambda i, j: (0, j))],
        out_specs=pl.BlockSpec(blocks, lambda i, j: (i, j)),
        params={"dimension_semantics": semantics, "max_concurrent_steps": steps},
    )


def test_pytrees_and_scratch() -> None:
    def kernel(pair_ref: Any, out_ref: Any, *, buffer: Any) -> None:
        buffer[...] = pair_ref["x"][...] + pair_ref["y"][...]
        out_ref["sum"][...] = buffer[...]

    call = plgpu.pallas_call(
        kernel,
        {"sum": shape(64, 64)},
        grid=2,
        in_specs=[{"x": ROWS, "y": ROWS}],
        out_specs={"sum": ROWS},
        scratch_shapes={"buffer": plgpu.SMEM((32, 64), FLOAT)},
    )
    np.testing.assert_array_equal(call({"x": X[:64, :64], "y": X[64:, :64]})["sum"], X[:64, :64] + X[64:, :64])


def test_a_grid_spec() -> None:
    grid_spec = pl.GridSpec(
        grid=(2,), in_specs=[ROWS], out_specs=[ROWS, ROWS], scratch_shapes=[plgpu.SMEM((32, 64), FLOAT)]
    )

    def kernel(x_ref: Any, a_ref: Any, b_ref: Any, scratch_ref: Any) -> None:
        scratch_ref[...] = x_ref[...] * 2
        a_ref[...] = scratch_ref[...]
        b_ref[...] = -x_ref[...]

    a, b = plgpu.pallas_call(kernel, (shape(64, 64), shape(64, 64)), grid_spec=grid_spec)(X[:64, :64])
    np.testing.assert_array_equal(a, 2 * X[:64, :64])
    np.testing.assert_array_equal(b, -X[:64, :64])


@pytest.mark.parametrize("module", [plgpu, mosaic_gpu], ids=["ours", "jax"])
def test_a_tensor_core_matmul_with_params_by_backend(module: Any) -> None:
    def kernel(x_ref: Any, y_ref: Any, out_ref: Any, acc_ref: Any) -> None:
        plgpu.wgmma(acc_ref, x_ref, y_ref)
        plgpu.wgmma_wait(1)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            out_ref[...] = acc_ref[...].astype(out_ref.dtype)

    def block(sizes: Any, index_map: Any) -> Any:
        transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
        return plgpu.BlockSpec(sizes, index_map, transforms=transforms, delay_release=1)

    x, y = X.astype(jnp.bfloat16), Y.astype(jnp.bfloat16)
    out = plgpu.pallas_call(
        kernel,
        jax.ShapeDtypeStruct((128, 128), jnp.bfloat16),
        grid=(2, 1, 4),
        in_specs=[block((64, 64), lambda i, j, k: (i, k)), block((64, 128), lambda i, j, k: (k, j))],
        out_specs=block((64, 128), lambda i, j, k: (i, j)),
        scratch_shapes=[plgpu.ACC((64, 128))],
        compiler_params={
            "mosaic_gpu": module.CompilerParams(
                dimension_semantics=("parallel", "parallel", "sequential"), max_concurrent_steps=2
            )
        },
    )(x, y)
    expected = x.astype(np.float32) @ y.astype(np.float32)
    np.testing.assert_allclose(np.asarray(out, np.float32), expected, rtol=2**-7, atol=0.02)


def test_an_output_begins_as_its_aliased_input() -> None:
    def kernel(x_ref: Any, other_ref: Any, out_ref: Any, copy_ref: Any) -> None:
        copy_ref[...] = x_ref[...] + other_ref[...]
        out_ref[...] = jnp.ones_like(out_ref)

    second = pl.BlockSpec((32, 64), lambda i: (1, 0))
    first = pl.BlockSpec((32, 64), lambda i: (0, 0))
    call = plgpu.pallas_call(
        kernel,
        (shape(128, 64), shape(32, 64)),
        grid=(1,),
        in_specs=[second, second],
        out_specs=[second, first],
        input_output_aliases={0: 0},
    )
    x, y = X[:, :64].copy(), X[:, 64:128].copy()
    before = x.copy()
    out, copy = jax.jit(call)(x, y)
    expected = x.copy()
    expected[32:64] = 1
    np.testing.assert_array_equal(out, expected)
    np.testing.assert_array_equal(copy, before[32:64] + y[32:64])
    np.testing.assert_array_equal(x, before)  # the caller's array is not donated


def call(*operands: Any, kernel: Any = double, out: Any = None, **options: Any) -> Any:
    """Calls `double` on rows of X with some options replaced."""
    given = {"grid": 2, "in_specs": [ROWS], "out_specs": ROWS} | options
    return plgpu.pallas_call(kernel, out or shape(64, 64), **given)(*(operands or (X[:64, :64],)))


@pytest.mark.parametrize(
    "options",
    [
        {"interpret": True},
        {"interpret": plgpu.InterpretGPUParams(seed=3)},
        {"name": "rows", "metadata": {"owner": "tests"}, "backend": "mosaic_gpu"},
        {"cost_estimate": pl.CostEstimate(flops=1, transcendentals=0, bytes_accessed=2)},
        {"compiler_params": {"mosaic_gpu": {"max_concurrent_steps": 2}}},
    ],
)
def test_other_arguments_change_no_value(options: Any) -> None:
    np.testing.assert_array_equal(call(**options), 2 * X[:64, :64])


def test_debug_prints_the_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    call(debug=True)
    assert "copy_gmem_to_smem" in capsys.readouterr().out


def test_the_name_is_in_the_capture() -> None:
    _, (capture,) = plgpu.profile(plgpu.pallas_call(double, shape(32, 64), name="twice"))(X[:32, :64])
    assert capture.header.kernel == "twice"


ERRORS = [
    ({"backend": "triton"}, Unsupported, "pallas_call: backend='triton'; kernels of this package run as 'mosaic_gpu'"),
    ({"metadata": {"a": 1}}, ParamsError, "metadata must map strings to strings"),
    ({"grid": (0,)}, KernelTypeError, r"grid=\(0,\) holds 0; each size is a positive integer"),
    ({"grid_spec": pl.GridSpec(grid=(2,))}, KernelTypeError, "grid and in_specs and out_specs given beside grid_spec"),
    ({"grid_spec": 3, "grid": ()}, Unsupported, "grid_spec is a int; kernels for this hardware take a pl.GridSpec"),
    ({"compiler_params": 3}, ParamsError, "compiler_params must be an mgpu.CompilerParams, got int"),
    ({"compiler_params": {"triton": None}}, ParamsError, r"compiler_params maps \['triton'\]"),
    (
        {"compiler_params": plgpu.CompilerParams(dimension_semantics=("parallel", "parallel"))},
        KernelTypeError,
        r"dimension_semantics=\('parallel', 'parallel'\) names 2 axes, the grid \(2,\) has 1",
    ),
    ({"in_specs": [ROWS, ROWS]}, KernelTypeError, "called with 1 operands, but in_specs has 2 entries"),
    ({"in_specs": [3]}, KernelTypeError, r"in_specs\[0\] must be a BlockSpec, got 3"),
    (
        {"in_specs": [pl.BlockSpec((32, 64), lambda i, j: (i, j))]},
        KernelTypeError,
        r"in_specs\[0\]: index_map cannot be called with the 1 indices of the grid",
    ),
    ({"out_specs": pl.BlockSpec((32, 64), lambda i: (i,))}, KernelTypeError, r"out_specs.*index_map returns 1 indices"),
    ({"kernel": lambda x, out: 3}, KernelTypeError, "the kernel must return None, got int"),
]


@pytest.mark.parametrize(("options", "error", "message"), ERRORS)
def test_misuse_names_the_line_and_what_would_be_right(options: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=HERE + ".*" + message):
        call(**options)


@pytest.mark.parametrize(
    ("aliases", "message"),
    [
        ({1: 0}, r"input_output_aliases=\{1: 0\}: there are 1 flat inputs and 1 flat outputs"),
        ({0: 2}, r"input_output_aliases=\{0: 2\}: there are 1 flat inputs and 1 flat outputs"),
    ],
)
def test_aliases_name_operands_that_exist(aliases: Any, message: str) -> None:
    with pytest.raises(KernelTypeError, match=message):
        call(input_output_aliases=aliases)


def test_aliased_arrays_are_alike_and_aliased_once() -> None:
    with pytest.raises(KernelTypeError, match=r"the input is float32\[96,64\], the output float32\[64,64\]"):
        call(X[:96, :64], input_output_aliases={0: 0})
    with pytest.raises(KernelTypeError, match=r"uses output 0 twice"):
        call(
            X[:64, :64],
            X[:64, :64],
            kernel=lambda x, y, out: None,
            in_specs=[ROWS, ROWS],
            input_output_aliases={0: 0, 1: 0},
        )
