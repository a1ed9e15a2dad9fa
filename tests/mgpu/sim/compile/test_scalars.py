"""Scalar arithmetic of generated code, against two's complement arithmetic in NumPy and against JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import mgpu as plgpu
from mgpu.sim.compile.scalars import c_divide, c_remainder, floor_remainder, wrap

int32 = st.integers(-(2**31), 2**31 - 1)


@given(int32, int32.filter(bool))
def test_division_truncates_as_c_does(a: int, b: int) -> None:
    quotient, remainder = c_divide(a, b), c_remainder(a, b)
    assert quotient * b + remainder == a
    assert abs(remainder) < abs(b)
    assert remainder == 0 or (remainder < 0) == (a < 0)
    assert floor_remainder(a, b) == a % b


EDGES: dict[str, Any] = {
    "divide": lax.div,
    "remainder": lax.rem,
    "floor_remainder": jnp.remainder,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
}


@pytest.mark.parametrize("name", EDGES)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
@pytest.mark.parametrize("form", ["tile", "scalar", "known"])
def test_zero_divisors_and_wide_shifts_give_what_xla_defines(name: str, dtype: Any, form: str) -> None:
    pairs = np.array([(7, 0), (-7, 0), (0, 0), (-(2**31), 31), (-9, 32), (9, 40), (-9, -1), (-2, 1)])
    pairs = pairs.astype(np.int64).astype(dtype)

    def body(x_ref: Any, out_ref: Any) -> None:
        if form == "tile":
            x = x_ref[...]
            out_ref[...] = EDGES[name](x[:, 0], x[:, 1])
            return
        for i, (a, b) in enumerate(pairs):
            left, right = (dtype(a), dtype(b)) if form == "known" else (x_ref[i, 0], x_ref[i, 1])
            out_ref[i] = EDGES[name](jnp.asarray(left), jnp.asarray(right))

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((len(pairs),), dtype))
    np.testing.assert_array_equal(kernel(pairs), EDGES[name](pairs[:, 0], pairs[:, 1]))


@given(st.integers(-(2**40), 2**40), st.sampled_from([8, 16, 32]), st.booleans())
def test_wrap_is_twos_complement(value: int, bits: int, signed: bool) -> None:
    dtype = np.dtype(f"{'i' if signed else 'u'}{bits // 8}")
    assert wrap(value, bits, signed) == int(np.array([value], np.int64).astype(dtype)[0])


OPERATIONS: dict[str, Any] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "floor_divide": lambda a, b: a // b,
    "remainder": lambda a, b: a % b,
    "lax_div": lax.div,
    "lax_rem": lax.rem,
    "max": jnp.maximum,
    "min": jnp.minimum,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a, b: ~a,
    "shift_left": lambda a, b: a << (b & 7),
    "shift_right": lambda a, b: a >> (b & 7),
    "shift_right_logical": lambda a, b: lax.shift_right_logical(a, b & 7),
    "select": lambda a, b: jnp.where(a < b, a, b),
    "clip": lambda a, b: jnp.clip(a, -5, 5) + 0 * b,
    "sign": lambda a, b: jnp.sign(a) + 0 * b,
    "power": lambda a, b: a**3,
    "bool": lambda a, b: ((a > b) & (a != 0)).astype(jnp.int32),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("dtype", [np.int32, np.uint32])
def test_scalars_agree_with_jax(name: str, dtype: Any) -> None:
    pairs = np.array([(7, 3), (-7, 3), (7, -3), (2**31 - 1, 5), (-(2**31), 2), (0, 1), (123456, 654321)])
    pairs = pairs.astype(np.int64).astype(dtype)
    operation = OPERATIONS[name]

    def body(x_ref: Any, out_ref: Any) -> None:
        for i in range(len(pairs)):
            out_ref[i] = operation(x_ref[i, 0], x_ref[i, 1]).astype(dtype)

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((len(pairs),), dtype))
    theirs = jax.vmap(lambda pair: operation(pair[0], pair[1]).astype(dtype))(jnp.asarray(pairs))
    np.testing.assert_array_equal(np.asarray(kernel(pairs)), np.asarray(theirs))


def test_known_scalars_are_folded_and_roles_disappear() -> None:
    """A branch on the warpgroup's own index leaves no trace in the code of the other warpgroup."""
    from mgpu.launch.kernel import _Kernel

    def body(out_ref: Any) -> None:
        warpgroup = lax.axis_index("wg")

        @jax.named_call
        def store(value: int) -> None:
            out_ref[warpgroup] = jnp.int32(value)

        lax.cond(warpgroup == 1, lambda: store(11), lambda: store(22))

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((2,), jnp.int32), num_threads=2, thread_name="wg")
    assert isinstance(kernel, _Kernel)
    np.testing.assert_array_equal(kernel(), [22, 11])
    (simulated,) = kernel._prepared.values()
    first, second = (code.text for code in simulated.prepared.codes)
    assert "22" in first
    assert "11" not in first
    assert "11" in second
    assert "if v" not in first
