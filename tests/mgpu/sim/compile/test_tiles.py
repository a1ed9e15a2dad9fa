"""Arrays in registers, operation by operation, against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from mgpu.errors import Unsupported
from support.kernels import make_map

FLOATS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "neg": lambda x, y: -x,
    "abs": lambda x, y: jnp.abs(x),
    "exp": lambda x, y: jnp.exp(x),
    "exp2": lambda x, y: jnp.exp2(x),
    "log": lambda x, y: jnp.log(jnp.abs(x)),
    "log1p": lambda x, y: jnp.log1p(jnp.abs(x)),
    "sqrt": lambda x, y: jnp.sqrt(jnp.abs(x)),
    "rsqrt": lambda x, y: lax.rsqrt(jnp.abs(x)),
    "sin": lambda x, y: jnp.sin(x),
    "cos": lambda x, y: jnp.cos(x),
    "tanh": lambda x, y: jnp.tanh(x),
    "logistic": lambda x, y: jax.nn.sigmoid(x),
    "erf": lambda x, y: lax.erf(x),
    "pow": lambda x, y: jnp.abs(x) ** y,
    "cube": lambda x, y: x**3,
    "floor": lambda x, y: jnp.floor(x),
    "ceil": lambda x, y: jnp.ceil(x),
    "round": lambda x, y: jnp.round(x),
    "sign": lambda x, y: jnp.sign(x),
    "select": lambda x, y: jnp.where(x > y, x, 2 * y),
    "clip": lambda x, y: jnp.clip(x, -0.5, 0.5),
    "is_finite": lambda x, y: jnp.isfinite(x / (x - x)).astype(x.dtype),
    "softmax": lambda x, y: jnp.exp(x - x.max(axis=1, keepdims=True)),
    "scalar": lambda x, y: x * 0.3 + 1,
    "broadcast": lambda x, y: x * y[:, :1] + y[:1],
    "transpose": lambda x, y: x.T @ y if False else x.T.reshape(x.shape),
    "slice": lambda x, y: jnp.concatenate([x[:, 32:], y[:, :32]], axis=1),
    "iota": lambda x, y: x + lax.broadcasted_iota(x.dtype, x.shape, 1),
    "jitted_helper": lambda x, y: jax.nn.silu(x),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", FLOATS)
def test_floats_agree_with_jax(name: str, dtype: Any) -> None:
    generator = np.random.default_rng(0)
    x, y = (generator.standard_normal((64, 64)).astype(dtype) for _ in range(2))
    ours = np.asarray(make_map(FLOATS[name], (64, 64), dtype)(x, y)).astype(np.float64)
    theirs = np.asarray(FLOATS[name](jnp.asarray(x), jnp.asarray(y))).astype(np.float64)
    # One rounding of the result type, and another library's last bits for transcendental functions.
    ulp = float(jnp.finfo(dtype).eps)
    np.testing.assert_allclose(ours, theirs, rtol=4 * ulp, atol=4 * ulp)


EXACT = ("add", "sub", "mul", "div", "sqrt", "neg", "select")


@pytest.mark.parametrize("dtype", [np.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", EXACT)
def test_narrow_arithmetic_is_correctly_rounded(name: str, dtype: Any) -> None:
    generator = np.random.default_rng(1)
    x, y = (generator.standard_normal((64, 64)).astype(dtype) for _ in range(2))
    ours = np.asarray(make_map(FLOATS[name], (64, 64), dtype)(x, y))
    x64, y64 = x.astype(np.float64), y.astype(np.float64)
    exact = {
        "add": x64 + y64,
        "sub": x64 - y64,
        "mul": x64 * y64,
        "div": x64 / y64,
        "sqrt": np.sqrt(np.abs(x64)),
        "neg": -x64,
        "select": np.where(x64 > y64, x64, 2 * y64),
    }[name]
    np.testing.assert_array_equal(ours.astype(np.float64), exact.astype(np.float32).astype(dtype).astype(np.float64))


INTEGERS: dict[str, Any] = {
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "divide": lambda x, y: lax.div(x, y | 1),
    "remainder": lambda x, y: lax.rem(x, y | 1),
    "floor_divide": lambda x, y: x // (y | 1),
    "shift": lambda x, y: (x << 3) >> 1,
    "logical_shift": lambda x, y: lax.shift_right_logical(x, jnp.full_like(x, 2)),
    "bits": lambda x, y: (x & y) ^ (x | ~y),
    "max": jnp.maximum,
    "compare": lambda x, y: (x >= y).astype(x.dtype),
    "population": lambda x, y: lax.population_count(x),
}


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int8, np.uint8])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_agree_with_jax(name: str, dtype: Any) -> None:
    limits = np.iinfo(dtype)
    x, y = np.random.default_rng(0).integers(limits.min, limits.max, (2, 64, 64), dtype, endpoint=True)
    ours = np.asarray(make_map(INTEGERS[name], (64, 64), dtype)(x, y))
    np.testing.assert_array_equal(ours, np.asarray(INTEGERS[name](jnp.asarray(x), jnp.asarray(y))))


REDUCTIONS = [(name, axis) for name in ("sum", "max", "min") for axis in (0, 1, None)]
REDUCTIONS += [(name, axis) for name in ("argmax", "argmin") for axis in (0, 1)]


@pytest.mark.parametrize(("name", "axis"), REDUCTIONS)
def test_reductions_agree_with_jax(name: str, axis: int | None) -> None:
    x = np.random.default_rng(0).integers(-50, 50, (64, 32)).astype(np.float32)
    reference = np.asarray(getattr(jnp, name)(jnp.asarray(x), axis=axis))
    shape = (1,) if axis is None else reference.shape
    kernel = make_map(lambda v: getattr(jnp, name)(v, axis=axis).reshape(shape), shape, reference.dtype)
    np.testing.assert_array_equal(np.asarray(kernel(x)).reshape(reference.shape), reference)


def test_bitcast_sees_the_real_bits() -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float16)
    kernel = make_map(lambda v: lax.bitcast_convert_type(v, jnp.uint16), (64, 64), np.uint16)
    np.testing.assert_array_equal(np.asarray(kernel(x)), x.view(np.uint16))


def test_an_unknown_operation_names_the_line() -> None:
    def factor(matrix: Any) -> Any:
        return jnp.linalg.cholesky(matrix)

    kernel = make_map(factor, (64, 64), np.float32)
    with pytest.raises(Unsupported, match=r"test_tiles.py:\d+ operation cholesky: not available"):
        kernel(np.eye(64, dtype=np.float32))
