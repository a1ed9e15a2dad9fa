"""Ctrl-C during a simulation says how far it came."""

import jax
import jax.numpy as jnp
import pytest

import mgpu
from mgpu.sim.machine import Machine


def test_an_interrupted_simulation_says_how_far_it_came(monkeypatch):
    def body(out):
        out[...] = jnp.ones((128,), jnp.float32)

    exits = Machine._exit

    def interrupted(self, launch, place, cta):
        exits(self, launch, place, cta)
        if len(self.cta_log) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(Machine, "_exit", interrupted)
    kernel = mgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), grid=(8,), grid_names=("x",), name="ones"
    )
    with pytest.raises(
        KeyboardInterrupt,
        match=r"kernel ones: simulation stopped at cycle [\d,]+, after 3 of 8 CTAs and \d+ events, about 38%",
    ):
        kernel()
