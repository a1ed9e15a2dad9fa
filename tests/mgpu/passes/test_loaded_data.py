"""Time without values: refused, with the author's line, where loaded data decides what the kernel does or where."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu import InterpretGPUParams
from mgpu.errors import Unsupported

SIZE = 64
FIVES = np.full(SIZE, 5, np.int32)


def run(steer, *, numerics, by_tma=True):
    """Runs a kernel in which `steer(load, out, smem)` does something with what `load()` returns."""

    def body(x, out, smem, other, barrier):
        if by_tma:
            mgpu.copy_gmem_to_smem(x, smem, barrier)
            mgpu.barrier_wait(barrier)
        steer(lambda: (smem if by_tma else x)[0], out, other)

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((SIZE,), jnp.int32),
        scratch_types=[mgpu.SMEM((SIZE,), jnp.int32), mgpu.SMEM((SIZE,), jnp.int32), mgpu.Barrier()],
        interpret=InterpretGPUParams(numerics=numerics, detect_races=False),
        name="steered",
    )
    return np.asarray(kernel(FIVES))


def write(out, index):
    out[index] = jnp.int32(1)


def loop(load, out, other):
    lax.fori_loop(0, load(), lambda index, _: write(out, index), None)


def branch(load, out, other):
    pl.when(load() > 3)(lambda: write(out, 4))


def index(load, out, other):
    write(out, load() - 1)


def predicate(load, out, other):
    mgpu.copy_smem_to_gmem(other, out, predicate=load() > 3)
    mgpu.wait_smem_to_gmem(0)


def carried(load, out, other):
    last = lax.fori_loop(0, 3, lambda _, carry: (carry[1], carry[1] + 1), (jnp.int32(0), load()))[0]
    pl.when(last > 3)(lambda: write(out, 4))


def condition_of_a_loop(load, out, other):
    def turn(state):
        write(out, state[0])
        return state[0] + 1, load()

    lax.while_loop(lambda state: state[0] < state[1], turn, (jnp.int32(0), jnp.int32(1)))


def through_memory(load, out, other):
    other[3] = load()
    write(out, other[3] - 1)


def through_registers(load, out, other):
    def halve(state):
        state[...] = state[...] // 2

    write(out, pl.run_state(halve)(load()))


STEERED = {
    loop: "the end of a loop",
    branch: "a branch",
    index: "an index",
    predicate: "a predicate",
    carried: "a branch",
    condition_of_a_loop: "the end of a loop",
    through_memory: "an index",
    through_registers: "an index",
}


@pytest.mark.parametrize("steer", STEERED, ids=lambda steer: steer.__name__)
def test_what_loaded_data_decides_needs_values(steer):
    run(steer, numerics=True)
    message = rf"test_loaded_data\.py:\d+.* kernel steered: {STEERED[steer]} depends on data that the kernel loads"
    with pytest.raises(Unsupported, match=message):
        run(steer, numerics=False)


@pytest.mark.parametrize("steer", [loop, branch, index, condition_of_a_loop], ids=lambda steer: steer.__name__)
def test_what_the_kernel_reads_from_gmem_itself_is_there(steer):
    written = [run(steer, numerics=numerics, by_tma=False) == 1 for numerics in (False, True)]
    assert written[0].any()
    np.testing.assert_array_equal(*written)


def test_loaded_data_that_decides_nothing_is_allowed():
    def scale(load, out, other):
        total = lax.fori_loop(0, 3, lambda index, sum: sum + load() * index, jnp.int32(0))
        out[1] = jnp.where(load() > 2, total, 7)

    run(scale, numerics=False)
