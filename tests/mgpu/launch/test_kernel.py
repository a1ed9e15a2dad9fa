"""`mgpu.kernel` as JAX users meet it: eager, jitted, in loops, with pytrees, several at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu

import mgpu as plgpu
from mgpu.capture import Capture
from mgpu.errors import DeviceError, KernelTypeError, ParamsError
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from support.kernels import make_copy, make_map


def numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16, np.int32, np.int8, np.uint16])
def test_copy_moves_every_dtype(dtype: Any) -> None:
    x = (numbers(256, 64) * 50).astype(dtype)
    copy = make_copy((256, 64), 64, dtype)
    np.testing.assert_array_equal(np.asarray(copy(x)), x)
    np.testing.assert_array_equal(np.asarray(jax.jit(copy)(x)), x)


def test_a_copy_across_the_border_reads_zeros_and_writes_nothing() -> None:
    x = numbers(100, 64)
    np.testing.assert_array_equal(np.asarray(make_copy((100, 64), 64)(x)), x)


def test_inside_scan_and_with_other_kernels_in_one_function() -> None:
    double = make_map(lambda x: x * 2, (128,), jnp.float32)
    increment = make_map(lambda x: x + 1, (128,), jnp.float32)

    @jax.jit
    def run(x: jax.Array) -> jax.Array:
        def step(carry: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
            carry = increment(double(carry))
            return carry, carry.sum()

        return lax.scan(step, x, None, length=3)[0]

    np.testing.assert_array_equal(run(jnp.zeros(128)), np.full(128, 7.0))


def test_pytrees_in_and_out() -> None:
    def body(pair: dict[str, Any], scale: Any, total: Any, product: Any) -> None:
        total[...] = pair["x"][...] + pair["y"][...]
        product[...] = pair["x"][...] * scale[0]

    shape = jax.ShapeDtypeStruct((128,), jnp.float32)
    kernel = plgpu.kernel(body, out_type=(shape, shape))
    x, y = numbers(128), numbers(128) + 1
    total, product = kernel({"x": x, "y": y}, np.array([3.0], np.float32))
    np.testing.assert_array_equal(total, x + y)
    np.testing.assert_array_equal(product, x * np.float32(3))


def test_closed_over_values_are_operands() -> None:
    def outer(x: jax.Array, offset: jax.Array) -> jax.Array:
        def body(x_ref: Any, out_ref: Any) -> None:
            out_ref[...] = x_ref[...] + offset

        return plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))(x)

    x = numbers(128)
    np.testing.assert_allclose(jax.jit(outer)(x, jnp.float32(2.5)), x + np.float32(2.5))


def test_several_threads_at_once() -> None:
    copy = make_copy((512, 64), 64)
    inputs = [numbers(512, 64) + i for i in range(6)]
    with ThreadPoolExecutor(3) as pool:
        for x, out in zip(inputs, pool.map(lambda x: np.asarray(copy(x)), inputs), strict=True):
            np.testing.assert_array_equal(out, x)


def test_make_jaxpr_shows_the_operation() -> None:
    jaxpr = jax.make_jaxpr(make_copy((64, 64), 64))(jnp.zeros((64, 64)))
    assert "mgpu_simulate" in str(jaxpr)


def test_decorator_form_and_old_argument_names() -> None:
    @plgpu.kernel(out_shape=jax.ShapeDtypeStruct((64,), jnp.float32), scratch_shapes=[plgpu.SMEM((64,), jnp.float32)])
    def negate(x_ref: Any, out_ref: Any, smem: Any) -> None:
        smem[...] = -x_ref[...]
        out_ref[...] = smem[...]

    x = numbers(64)
    np.testing.assert_array_equal(negate(x), -x)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, KernelTypeError, "out_type is missing"),
        ({"grid": (2,)}, KernelTypeError, "has 1 axes but grid_names=\\(\\) names 0"),
        ({"grid": (0,), "grid_names": ("x",)}, KernelTypeError, "an axis below 1"),
        ({"num_threads": 2}, KernelTypeError, "without thread_name"),
        ({"num_threads": 0}, KernelTypeError, "at least one warpgroup"),
        (
            {"grid": (2,), "grid_names": ("x",), "num_threads": 2, "thread_name": "x"},
            KernelTypeError,
            "'x' is used twice",
        ),
        ({"compiler_params": {"profile_space": 1}}, ParamsError, "must be an mgpu.CompilerParams, got dict"),
        ({"interpret": "yes"}, ParamsError, "InterpretGPUParams or a bool, got 'yes'"),
    ],
)
def test_wrong_arguments_are_explained(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    shape = jax.ShapeDtypeStruct((64,), jnp.float32)
    out = {} if not arguments else {"out_type": shape}
    with pytest.raises(error, match=message):
        plgpu.kernel(lambda x, o: None, **out, **arguments)(numbers(64))


def test_both_names_of_an_argument_are_refused() -> None:
    shape = jax.ShapeDtypeStruct((64,), jnp.float32)
    with pytest.raises(KernelTypeError, match="out_type and out_shape are the same argument"):
        plgpu.kernel(lambda x, o: None, shape, out_type=shape)


def test_body_with_other_parameters_is_shown_what_it_gets() -> None:
    def body(x_ref: Any) -> None:
        del x_ref

    shape = jax.ShapeDtypeStruct((64,), jnp.float32)
    with pytest.raises(
        KernelTypeError, match=r"test_kernel.py:\d+ kernel body: the body takes .* but is given 2 posit"
    ):
        plgpu.kernel(body, out_type=shape)(numbers(64))


def test_scratch_may_stay_unused() -> None:
    def body(*refs: Any) -> None:
        def nothing(*inner: Any) -> None:
            assert len(inner) == 1

        pl.run_scoped(nothing, plgpu.SMEM((64,), jnp.float32))

    launch = plgpu.kernel(body, out_type=(), scratch_types=[plgpu.SMEM((64,), jnp.float32), plgpu.Barrier()])
    assert launch() == ()


def test_body_must_not_return_a_value() -> None:
    shape = jax.ShapeDtypeStruct((64,), jnp.float32)
    with pytest.raises(KernelTypeError, match="must return None"):
        plgpu.kernel(lambda x, o: x[...], out_type=shape)(numbers(64))


def test_devices_by_name_number_and_context(monkeypatch: pytest.MonkeyPatch) -> None:
    from mgpu.launch.device_choice import current_choice

    assert current_choice().device.name == "h100"
    with plgpu.device("h200", num_sms=4, hbm_bandwidth=10**13) as device:
        assert device.hbm_bandwidth == 10**13
        assert (current_choice().device.name, current_choice().num_sms) == ("h200", 4)
    assert current_choice().device.name == "h100"
    monkeypatch.setenv("MGPU_DEVICE", "h200")
    assert current_choice().device.name == "h200"
    monkeypatch.setenv("MGPU_DEVICE", "h1000")
    with pytest.raises(DeviceError, match="h100"):
        current_choice()
    with pytest.raises(DeviceError, match="num_sms=133: h100 has 132 SMs"):
        plgpu.set_device("h100", num_sms=133)


def test_compiler_params_may_be_those_of_jaxs_own_module(tmp_path) -> None:
    params = mosaic_gpu.CompilerParams(
        profile_space=32,
        profile_dir=str(tmp_path),
        lowering_semantics=mosaic_gpu.LoweringSemantics.Warpgroup,
    )
    double = make_map(lambda x: x * 2, (256,), np.float32, compiler_params=params)
    x = numbers(256)
    np.testing.assert_array_equal(double(x), x * 2)
    (folder,) = list_launches(str(tmp_path))
    assert Capture.load(Path(folder) / CAPTURE_FILE).header.capacity == 32
