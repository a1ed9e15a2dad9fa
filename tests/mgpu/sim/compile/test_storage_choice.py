"""Which buffers are slotted, and that their values are those of the loads."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.sim.compile.storage_choice import find_slotted
from mgpu.sim.slots import Slots
from support.kernels import swizzled

TILE, STEPS = 64, 4
X = (np.arange(STEPS * TILE * TILE) % 17 - 8).reshape(STEPS * TILE, TILE).astype(np.float16)
RING = swizzled(2, TILE, TILE)


def load(x, smem, barrier, step):
    mgpu.copy_gmem_to_smem(x.at[pl.ds(step * TILE, TILE)], smem, barrier)
    mgpu.barrier_wait(barrier)


def add_up(out, x, smem, barrier, use):
    """Loads tile after tile into the slots of a ring, and adds up what `use` makes of each."""

    def step(index, total):
        slot = smem.at[index % 2]
        load(x, slot, barrier, index)
        return total + use(slot)

    out[...] = lax.fori_loop(0, STEPS, step, jnp.zeros((TILE, TILE), jnp.float32))


def as_is(slot):
    return slot[...].astype(jnp.float32)


def squared(slot, transpose=False):
    def product(acc):
        mgpu.wgmma(acc, slot, slot.T if transpose else slot)
        return acc[...]

    return pl.run_scoped(product, mgpu.ACC((TILE, TILE)))


def doubled(slot):
    slot[...] = slot[...] * 2
    mgpu.commit_smem()
    return as_is(slot)


def halves(out, x, smem, barrier):
    half = pl.ds(TILE // 2, TILE // 2)

    def step(index, total):
        load(x, smem.at[0], barrier, index)
        mgpu.copy_gmem_to_smem(x.at[half], smem.at[0, half], barrier)
        mgpu.barrier_wait(barrier)
        return total + as_is(smem.at[0])

    out[...] = lax.fori_loop(0, STEPS, step, jnp.zeros((TILE, TILE), jnp.float32))


def whole_ring_is_read(out, x, smem, barrier):
    for slot in range(2):
        load(x, smem.at[slot], barrier, slot)
    out[...] = smem[...].astype(jnp.float32).sum(0)


def stored(out, x, smem, barrier):
    add_up(out, x, smem, barrier, as_is)
    mgpu.copy_smem_to_gmem(smem.at[1], x.at[pl.ds(0, TILE)])
    mgpu.wait_smem_to_gmem(0)


def changed_in_gmem(out, x, smem, barrier):
    """What was loaded stays what it was."""
    load(x, smem.at[0], barrier, 0)
    mgpu.atomic_add(x.at[pl.ds(0, TILE)], jnp.ones((TILE, TILE), jnp.float16))
    out[...] = as_is(smem.at[0])


TILES = X.astype(np.float32).reshape(STEPS, TILE, TILE)
SUM = TILES.sum(0)
CASES = {
    "read": (partial(add_up, use=as_is), True, SUM),
    "multiplied": (partial(add_up, use=squared), True, (TILES @ TILES).sum(0)),
    "multiplied, transposed": (
        partial(add_up, use=partial(squared, transpose=True)),
        True,
        (TILES @ TILES.transpose(0, 2, 1)).sum(0),
    ),
    "written by the warpgroup": (partial(add_up, use=doubled), False, 2 * SUM),
    "loaded in halves": (halves, False, np.concatenate([SUM[:32], STEPS * X[32:64].astype(np.float32)])),
    "read across slots": (whole_ring_is_read, False, TILES[:2].sum(0)),
    "stored, and its source written": (stored, False, SUM),
    "loaded from what atomics change": (changed_in_gmem, False, TILES[0]),
}


@pytest.mark.parametrize("case", CASES)
def test_rings_that_only_loads_write_are_slotted(case):
    use, is_slotted, expected = CASES[case]

    def body(x, out, smem, barrier):
        use(out, x, smem, barrier)

    kernel = mgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((TILE, TILE), jnp.float32), scratch_types=[RING, mgpu.Barrier()]
    )
    program, _ = kernel._program(jax.tree.structure((X,)), [X])
    assert list(find_slotted(program).values()) == ([Slots((2,), (TILE, TILE))] if is_slotted else [])
    np.testing.assert_array_equal(kernel(X), expected)


def test_a_buffer_without_slots_is_one():
    def body(x, out, smem, barrier):
        load(x, smem, barrier, 0)
        out[...] = smem[...]

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((TILE, TILE), jnp.float16),
        scratch_types=[swizzled(TILE, TILE), mgpu.Barrier()],
    )
    program, _ = kernel._program(jax.tree.structure((X,)), [X])
    assert list(find_slotted(program).values()) == [Slots((), (TILE, TILE))]
    np.testing.assert_array_equal(kernel(X), X[:TILE])


def test_a_slot_that_nothing_was_loaded_into_holds_no_number():
    def body(x, out, smem, barrier):
        load(x, smem.at[0], barrier, 0)
        out[...] = smem[1]

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((TILE, TILE), jnp.float16),
        scratch_types=[RING, mgpu.Barrier()],
    )
    with pytest.warns(mgpu.errors.UnwrittenWarning, match=r"read of smem .* \(smem\[1, 0:64, 0:64\]\)"):
        assert np.isnan(kernel(X)).all()


def test_two_leading_dimensions_number_the_slots():
    def body(x, out, smem, barrier):
        def step(index, total):
            slot = smem.at[index // 2, index % 2]
            load(x, slot, barrier, index)
            return total + (index + 1) * as_is(smem.at[index // 2].at[index % 2])

        out[...] = lax.fori_loop(0, STEPS, step, jnp.zeros((TILE, TILE), jnp.float32))

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((TILE, TILE), jnp.float32),
        scratch_types=[swizzled(2, 2, TILE, TILE), mgpu.Barrier()],
    )
    np.testing.assert_array_equal(kernel(X), np.tensordot(np.arange(1, 5, dtype=np.float32), TILES, 1))
