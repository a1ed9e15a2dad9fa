"""Subnormal numbers inside and outside of `jax.jit`."""

import jax
import jax.numpy as jnp
import numpy as np

import mgpu


def test_subnormal_numbers_survive_inside_and_outside_of_jit() -> None:
    def body(x_ref, out_ref):
        out_ref[...] = x_ref[...] * x_ref[...]

    square = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32))
    x = np.full(128, 1e-20, np.float32)
    expected = x * x
    assert (expected > 0).all()
    np.testing.assert_array_equal(square(x), expected)
    np.testing.assert_array_equal(np.asarray(jax.jit(square)(x)), expected)


def test_the_thread_gets_its_own_environment_back() -> None:
    """JAX's callback threads flush subnormal numbers; what runs there after a simulation finds them as before."""
    found = []

    def look(x: np.ndarray) -> np.ndarray:
        found.append(bool((np.full(64, 1e-20, np.float32) ** 2).any()))
        return x

    def body(x_ref, out_ref):
        out_ref[...] = x_ref[...]

    x = jax.ShapeDtypeStruct((128,), jnp.float32)
    copy = mgpu.kernel(body, out_type=x)
    run = jax.jit(lambda y: jax.pure_callback(look, x, copy(jax.pure_callback(look, x, y))))
    run(np.zeros(128, np.float32)).block_until_ready()
    assert len(found) == 2
    assert found[0] == found[1]
