"""Arrays in registers: every operation gives what JAX itself gives."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu

INTEGERS = np.arange(-64, 64, dtype=np.int32).reshape(16, 8) * 7
FLOATS = np.linspace(-3, 3, 128, dtype=np.float32).reshape(16, 8)


def run(function, *operands):
    out = jax.eval_shape(function, *operands)

    def body(*refs):
        refs[-1][...] = function(*(ref[...] for ref in refs[:-1]))

    return mgpu.kernel(body, out_type=out)(*operands)


EXACT = {
    "dynamic_slice": lambda x: lax.dynamic_slice(x, (x[0, 0] * 0 + 3, 2), (4, 4)),
    "dynamic_slice beyond the end": lambda x: lax.dynamic_slice(x, (x[0, 0] * 0 + 15, 7), (4, 4)),
    "dynamic_update_slice": lambda x: lax.dynamic_update_slice(x, x[:2, :2] + 1, (x[0, 0] * 0 + 5, 1)),
    "cumsum": lambda x: jnp.cumsum(x, axis=1),
    "cumsum from the end": lambda x: lax.cumsum(x, axis=0, reverse=True),
    "cummax": lambda x: lax.cummax(x, axis=0),
    "cummin from the end": lambda x: lax.cummin(x, axis=1, reverse=True),
    "cumprod": lambda x: lax.cumprod(x % 3, axis=1),
    "reverse": lambda x: x[::-1, ::-1],
    "pad": lambda x: jnp.pad(x, ((1, 2), (3, 0)), constant_values=9),
    "pad between and cut": lambda x: lax.pad(x, jnp.int32(5), ((-2, 1, 1), (0, -3, 0))),
    "rows one by one": lambda x: jnp.stack([row + number for number, row in enumerate(x)], axis=1),
    "sum of elements one by one": lambda x: x * 0 + sum(x[0]),
    "split": lambda x: jnp.split(x, [4], axis=1)[1],
    "concatenate": lambda x: jnp.concatenate([x, x + 1], axis=1),
    "where": lambda x: jnp.where(x % 2 == 0, x, -x),
    "select by cases": lambda x: lax.select_n(jnp.abs(x) % 3, x, x + 1, x + 2),
    "argmax": lambda x: jnp.argmax(x % 11, axis=1),
    "integer division": lambda x: x // 5 + x % 5,
    "truncating division": lambda x: lax.div(x, jnp.full_like(x, 3)) + lax.rem(x, jnp.full_like(x, 3)),
    "shifts": lambda x: (x << 3) ^ (x >> 1) ^ lax.shift_right_logical(x, jnp.full_like(x, 5)),
    "wrap around": lambda x: x * 123456789 + 987654321,
    "bits": lambda x: (x & 12) | ~x,
    "population count": lax.population_count,
    "leading zeros": lax.clz,
    "reductions": lambda x: jnp.sum(x, axis=0) + jnp.max(x, axis=0) - jnp.min(x, axis=0),
    "any and all": lambda x: jnp.any(x > 400, axis=1) & ~jnp.all(x > 0, axis=1),
    "iota": lambda x: x + lax.broadcasted_iota(jnp.int32, x.shape, 1),
    "optimization barrier": lambda x: sum(lax.optimization_barrier((x, x + 1))),
    "transpose and reshape": lambda x: x.T.reshape(4, 32) + 1,
    "broadcast": lambda x: jnp.broadcast_to(x[:, :1], x.shape) + x[0],
    "clip": lambda x: jnp.clip(x, -10, 20),
    "bitcast": lambda x: lax.bitcast_convert_type(x, jnp.float32),
    "conversions": lambda x: x.astype(jnp.int8).astype(jnp.uint16).astype(jnp.float32).astype(jnp.int32),
}


@pytest.mark.parametrize("name", EXACT)
def test_integer_operations_equal_jax(name):
    np.testing.assert_array_equal(run(EXACT[name], INTEGERS), EXACT[name](jnp.asarray(INTEGERS)))


CLOSE = {
    "exp": jnp.exp,
    "exp2": jnp.exp2,
    "log": lambda x: jnp.log(jnp.abs(x) + 0.1),
    "rsqrt": lambda x: lax.rsqrt(jnp.abs(x) + 0.1),
    "tanh": jnp.tanh,
    "sigmoid": jax.nn.sigmoid,
    "erf": lax.erf,
    "erf_inv": lambda x: lax.erf_inv(x / 4),
    "softmax": lambda x: jax.nn.softmax(x, axis=1),
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "relu": jax.nn.relu,
    "power": lambda x: jnp.abs(x) ** 1.5 + x**3,
    "trigonometry": lambda x: jnp.sin(x) * jnp.cos(x) + jnp.arctan2(x, x + 9),
    "hyperbolic": lambda x: jnp.sinh(x) + jnp.cosh(x),
    "cbrt": jnp.cbrt,
    "division": lambda x: 1 / (x + 10),
    "rounding": lambda x: jnp.round(x) + jnp.floor(x) + jnp.ceil(x) + jnp.trunc(x),
    "norm": lambda x: x * lax.rsqrt(jnp.mean(x * x, axis=1, keepdims=True) + 1e-6),
    "logsumexp": lambda x: jax.nn.logsumexp(x, axis=1),
    "cumsum": lambda x: jnp.cumsum(x, axis=0),
    "reduce_precision": lambda x: lax.reduce_precision(x, 5, 10),
    "square": jnp.square,
    "sign": jnp.sign,
    "remainder": lambda x: jnp.remainder(x, 0.7),
    "sort of nan": lambda x: jnp.where(jnp.isnan(x / 0 * 0), 1.0, 0.0),
}


@pytest.mark.parametrize("name", CLOSE)
def test_float_operations_equal_jax(name):
    np.testing.assert_allclose(run(CLOSE[name], FLOATS), CLOSE[name](jnp.asarray(FLOATS)), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("operation", [jnp.add, jnp.subtract, jnp.multiply, jnp.divide, jnp.maximum])
def test_narrow_arithmetic_is_rounded_after_each_operation(operation, dtype):
    a = jnp.asarray(np.random.default_rng(0).normal(size=(16, 8)) * 100, dtype)
    b = jnp.asarray(np.random.default_rng(1).normal(size=(16, 8)), dtype)
    np.testing.assert_array_equal(run(operation, a, b), operation(a, b))


def test_x64_types_are_kept():
    with jax.enable_x64(True):
        big = np.arange(16, dtype=np.int64) * 2**33
        precise = np.linspace(0, 1, 16)
        np.testing.assert_array_equal(run(lambda x: x + 1, big), big + 1)
        np.testing.assert_array_equal(run(lambda x: x / 3, precise), precise / 3)


def test_a_matrix_product_of_registers_is_refused_with_the_remedy():
    with pytest.raises(mgpu.errors.Unsupported, match=r"test_arrays.py:\d+ .*dot_general.*\n?.*wgmma"):
        run(lambda x: jnp.dot(x, x.T), FLOATS)


def test_debug_print_shows_values_in_the_order_of_simulated_time(capsys):
    def body(x_ref, out_ref):
        mgpu_value = x_ref[0]
        lax.fori_loop(0, 2, lambda i, _: pl.debug_print("step {} of {}", i, mgpu_value), None)
        out_ref[...] = x_ref[...]

    x = np.full(128, 7, np.int32)
    mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.int32))(x)
    assert capsys.readouterr().out == "step 0 of 7\nstep 1 of 7\n"


def test_debug_print_shows_arrays_element_by_element(capsys):
    def body(x_ref, out_ref):
        pl.debug_print("x{}", x_ref[...])
        pl.debug_print("{} of {}", x_ref[0, 1], 4)
        out_ref[...] = x_ref[...]

    x = np.array([[1.5, 2, 3, 4], [5, 6, 7, -8]], np.float32)
    mgpu.kernel(body, out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32))(x)
    *elements, last = capsys.readouterr().out.splitlines()
    assert elements == [f"x[{i}, {j}]: {float(x[i, j])}" for i in range(2) for j in range(4)]
    assert last == "2.0 of 4"


def test_a_debug_check_that_fails_stops_the_run_at_its_line():
    def body(x_ref, out_ref):
        first = x_ref[0]
        pl.debug_check(first > 0, "the first element is not positive")
        out_ref[...] = x_ref[...]

    run_checked = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.int32))
    x = np.arange(128, dtype=np.int32)
    with pl.enable_debug_checks():
        np.testing.assert_array_equal(run_checked(x + 1), x + 1)
        with pytest.raises(mgpu.errors.SimulationError, match=r"test_arrays.py:\d+ .*first element is not positive"):
            mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.int32))(x)
