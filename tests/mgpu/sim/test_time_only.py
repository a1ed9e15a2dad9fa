"""Time without values takes as long as with them, and computes nothing that follows from loaded data."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu import InterpretGPUParams
from mgpu.devices import load_device
from mgpu.sim.simulation import prepare, simulate

H100 = load_device("h100")
SIZE = 64
X = (np.arange(SIZE * SIZE) % 7 + 1).reshape(SIZE, SIZE).astype(np.float32)


def in_a_state(x):
    def double(ref):
        ref[...] = ref[...] * 2

    return pl.run_state(double)(x)


def in_a_buffer(x):
    def through(ref):
        ref[...] = x
        return ref[...] + 1

    return pl.run_scoped(through, mgpu.SMEM((SIZE, SIZE), jnp.float32))


CASES = {
    "elements": lambda x: jnp.exp2(-x) * 2,
    "rows": lambda x: x / x.sum(axis=1, keepdims=True),
    "a branch": lambda x: lax.cond(lax.axis_index("cta") == 0, lambda: x + 1, lambda: x * 0),
    "a loop": lambda x: lax.fori_loop(0, 3, lambda index, total: total + index * x, jnp.zeros_like(x)),
    "rows one by one": lambda x: lax.scan(lambda total, row: (total + row, total), jnp.zeros(SIZE, x.dtype), x)[1],
    "parts": lambda x: jnp.concatenate(jnp.split(x, 2)[::-1]),
    "an integer": lambda x: x + (x[3, 4].astype(jnp.int32) * 5 // 2).astype(x.dtype),
    "a state": in_a_state,
    "a buffer": in_a_buffer,
}


def launch(function, **options):
    def body(x, out, smem, barrier):
        mgpu.copy_gmem_to_smem(x, smem, barrier)
        mgpu.barrier_wait(barrier)
        out[...] = function(smem[...])

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((SIZE, SIZE), jnp.float32),
        scratch_types=[mgpu.SMEM((SIZE, SIZE), jnp.float32), mgpu.Barrier()],
        grid=(1,),
        grid_names=("cta",),
    )
    program, consts = kernel._program(jax.tree.structure((X,)), [X])
    prepared = prepare(program, H100, 1, InterpretGPUParams(detect_races=False, **options))
    return prepared, simulate(prepared, consts, [X])


@pytest.mark.parametrize("case", CASES)
def test_time_is_that_with_values(case):
    _, timed = launch(CASES[case], numerics=False)
    _, valued = launch(CASES[case])
    assert (timed.cycles, timed.events) == (valued.cycles, valued.events)
    assert not timed.outputs[0].any()
    assert valued.outputs[0].all() or case == "rows one by one"  # whose first row is the sum of none


def test_nothing_is_computed():
    prepared, _ = launch(CASES["elements"], numerics=False)
    text = prepared.codes[0].text
    assert re.findall(r"\bv\d+ = (.*)", text) == ["NO_VALUES"] * 4  # the load, the negation, exp2, the product
    assert "[...] =" not in text
    assert text.count("run_work") >= 3  # all of it is charged
