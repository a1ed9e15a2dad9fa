"""Carriers and rounding, against ml_dtypes, which rounds by another algorithm."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mgpu.sim.values import (
    carrier_dtype,
    convert,
    from_carrier,
    holds_uninitialised,
    rounding,
    to_carrier,
    uninitialised,
)

NARROW = [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]
any_float = st.floats(width=32, allow_nan=True, allow_infinity=True)


@pytest.mark.parametrize("dtype", NARROW)
@given(values=hnp.arrays(np.float32, 7, elements=any_float))
def test_rounding_is_to_nearest_even(dtype: Any, values: np.ndarray) -> None:
    round_values = rounding(dtype)
    assert round_values is not None
    with np.errstate(over="ignore", invalid="ignore"):
        reference = values.astype(dtype).astype(np.float32)
    np.testing.assert_array_equal(round_values(values), reference)


@pytest.mark.parametrize("dtype", NARROW)
def test_every_value_survives_its_carrier(dtype: Any) -> None:
    bits = np.arange(2 ** (8 * np.dtype(dtype).itemsize), dtype=f"u{np.dtype(dtype).itemsize}")
    values = bits.view(dtype)
    back = from_carrier(to_carrier(values), dtype)
    number = ~np.isnan(values.astype(np.float32))
    np.testing.assert_array_equal(back.view(bits.dtype)[number], bits[number])
    assert np.isnan(back.astype(np.float32)[~number]).all()


@pytest.mark.parametrize("zeros", [0, 1, 5, 100_000])
def test_float16_is_cast_as_numpy_does_whatever_the_share_of_rare_values(zeros: int) -> None:
    """More elements than are converted at a time, in an array that is not contiguous."""
    bits = np.random.default_rng(0).permutation(np.arange(1 << 16, dtype=np.uint16))
    values = np.concatenate([bits.view(np.float16), np.zeros(zeros, np.float16)])[::-1]
    wide = to_carrier(values)
    assert wide.dtype == np.float32
    np.testing.assert_array_equal(wide, values.astype(np.float32))
    assert np.signbit(wide).tolist() == np.signbit(values).tolist()
    np.testing.assert_array_equal(from_carrier(wide, np.float16), values)
    assert from_carrier(wide[3:6].reshape(3, 1), np.float16).shape == (3, 1)
    assert to_carrier(np.array(1.5, np.float16)).item() == 1.5


def test_ties_go_to_even_at_every_bfloat16_border() -> None:
    low = np.arange(0x3F80, 0x4080, dtype=np.uint32) << 16
    half = (low | 0x8000).view(np.float32)
    rounding_function = rounding(ml_dtypes.bfloat16)
    assert rounding_function is not None
    mantissas = rounding_function(half).view(np.uint32) >> 16
    assert (mantissas % 2 == 0).all()


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("nudge", [-1, 0, 1])
def test_float16_is_exact_around_every_tie(sign: int, nudge: int) -> None:
    """Halfway between all neighbours, zero and subnormals included, and one float32 to either side."""
    float16 = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    half = (float16[:-1] + float16[1:]) / 2
    values = sign * np.nextafter(half, half + nudge, dtype=np.float32)
    rounding_function = rounding(np.float16)
    assert rounding_function is not None
    rounded = rounding_function(values)
    lower = np.arange(len(half))
    upward = nudge > 0 if nudge else lower % 2 == 1
    expected = sign * float16[lower + upward]
    assert rounded.tobytes() == expected.astype(np.float32).tobytes()
    few = values[:64]  # without a value so large that another way is taken
    assert rounding_function(few).tobytes() == rounded[:64].tobytes()


@pytest.mark.parametrize("source", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.uint8, np.bool_])
@pytest.mark.parametrize("target", [np.float32, np.float16, ml_dtypes.bfloat16, np.int32, np.int8, np.uint8])
def test_conversion_agrees_with_jax(source: Any, target: Any) -> None:
    values = np.array([0, 1, -1, 2.5, -2.5, 3.5, 100, -100, 300, 70000.4, -70000.4]).astype(np.float32)
    values = np.abs(values) if np.dtype(source).kind == "u" else values
    with np.errstate(invalid="ignore", over="ignore"):
        given_values = values.astype(source)
    ours = from_carrier(convert(to_carrier(given_values), source, target), target)
    if np.dtype(source).kind in "iu" or np.dtype(target).kind not in "iu":
        theirs = np.asarray(jnp.asarray(given_values).astype(target))
        np.testing.assert_array_equal(ours, theirs)
    else:  # float to integer: truncated and saturated
        limits = np.iinfo(target)
        exact = np.trunc(given_values.astype(np.float64)).clip(limits.min, limits.max)
        np.testing.assert_array_equal(ours.astype(np.float64), exact)


def test_nan_becomes_zero_and_infinity_the_limit() -> None:
    values = np.array([np.nan, np.inf, -np.inf], np.float32)
    np.testing.assert_array_equal(convert(values, np.float32, np.int32), [0, 2**31 - 1, -(2**31)])


@pytest.mark.parametrize("dtype", [*NARROW, np.float32, np.int32, np.bool_])
def test_uninitialised_memory_shows(dtype: Any) -> None:
    buffer = uninitialised((2, 3), dtype)
    assert buffer.dtype == carrier_dtype(dtype)
    if np.dtype(dtype) != np.bool_:
        assert np.isnan(buffer).all() or (buffer == np.iinfo(np.int32).min).all()


@pytest.mark.parametrize(
    ("dtype", "shows"),
    [("float32", True), ("bfloat16", True), ("float8_e5m2", True), ("int32", True), ("uint8", False), ("int4", False)],
)
def test_what_nobody_has_written_shows_in_most_types(dtype: str, shows: bool) -> None:
    kind = jnp.dtype(dtype)
    fresh = uninitialised((4,), kind)
    assert holds_uninitialised(fresh) == shows
    assert holds_uninitialised(fresh.astype(kind)) == shows
    assert not holds_uninitialised(np.ones(4, kind))
