"""What generated code tells the recorder."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import mgpu
from mgpu import CompilerParams
from mgpu.capture import unpack_tags
from mgpu.devices import load_device
from mgpu.sim.options import InterpretGPUParams
from mgpu.sim.simulation import prepare, simulate
from mgpu.sites import Edge, SiteKind

H100 = load_device("h100")
SLOTS = 4


def fill_slots(a, out, slots, barriers):
    def load(slot, _):
        mgpu.copy_gmem_to_smem(a.at[slot], slots.at[slot], barriers.at[slot])

    lax.fori_loop(0, SLOTS, load, None)
    for slot in range(SLOTS):
        mgpu.barrier_wait(barriers.at[slot])
    out[...] = slots[SLOTS - 1]


def capture_of(capacity):
    operand = np.zeros((SLOTS, 64), np.float32)
    kernel = mgpu.kernel(
        fill_slots,
        out_type=jax.ShapeDtypeStruct((64,), jnp.float32),
        scratch_types=[mgpu.SMEM((SLOTS, 64), jnp.float32), mgpu.Barrier(num_barriers=SLOTS)],
        compiler_params=CompilerParams(profile_space=capacity, profile_dir="unused"),
    )
    program, consts = kernel._program(jax.tree.structure((operand,)), [operand])
    capture = simulate(prepare(program, H100, H100.num_sms, InterpretGPUParams()), consts, [operand]).capture
    assert capture is not None
    return capture


def test_both_events_of_a_load_name_the_slot_of_their_own_turn():
    """The loop's counter is the slot, and changes between the second event and the next turn."""
    capture = capture_of(100)
    site = next(site.id for site in capture.header.sites if site.kind is SiteKind.TMA_LOAD)
    sites, edges, payloads = unpack_tags(capture.words[:, 0])
    for edge in (Edge.BEGIN, Edge.END):
        assert payloads[(sites == site) & (edges == edge)].tolist() == list(range(SLOTS))


def test_events_that_are_recorded_together_fill_the_buffer_to_its_last_place():
    whole = capture_of(100)
    for capacity in range(1, len(whole.words) + 2):
        capture = capture_of(capacity)
        assert capture.tracks["count"].tolist() == [len(whole.words)]
        np.testing.assert_array_equal(capture.words, whole.words[:capacity])
