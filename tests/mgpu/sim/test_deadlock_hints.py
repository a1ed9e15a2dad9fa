"""The last lines of a deadlock's report say what to look at first, for the mistakes that are made most."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import DeadlockError

X = np.ones((4, 64, 64), np.float32)
RING = mgpu.SMEM((2, 64, 64), jnp.float32)


def deadlock(body, scratch, **options):
    """Returns the report of a kernel's deadlock."""
    out = jax.ShapeDtypeStruct((4, 64, 64), jnp.float32)
    with pytest.raises(DeadlockError) as caught:
        mgpu.kernel(body, out_type=out, scratch_types=scratch, **options)(X)
    return str(caught.value)


TWO = {"num_threads": 2, "thread_name": "wg"}


def ring(*, first_wait, release):
    def produce(x, smem, full, empty):
        def load(step, _):
            slot = lax.rem(step, 2)
            pl.when(step >= first_wait)(lambda: mgpu.barrier_wait(empty.at[slot]))
            mgpu.copy_gmem_to_smem(x.at[step], smem.at[slot], full.at[slot])

        lax.fori_loop(0, 4, load, None)

    def consume(out, smem, full, empty):
        def take(step, _):
            slot = lax.rem(step, 2)
            mgpu.barrier_wait(full.at[slot])
            out[step] = smem[slot]
            if release:
                mgpu.barrier_arrive(empty.at[slot])

        lax.fori_loop(0, 4, take, None)

    def body(x, out, smem, full, empty):
        pl.when(lax.axis_index("wg") == 0)(lambda: produce(x, smem, full, empty))
        pl.when(lax.axis_index("wg") == 1)(lambda: consume(out, smem, full, empty))

    barriers = [mgpu.Barrier(num_barriers=2), mgpu.Barrier(num_barriers=2)]
    return deadlock(body, [RING, *barriers], **TWO)


def test_a_barrier_on_which_nothing_arrives():
    last = ring(first_wait=2, release=False).splitlines()[-1]
    assert last == "Nothing arrives on empty: add barrier_arrive(empty), or give empty to the copy that is waited for."


def test_slots_that_are_free_in_the_beginning():
    last = ring(first_wait=0, release=True).splitlines()[-1]
    assert last.startswith("Nobody who arrives on empty gets that far before empty[0] completes for the first time.")
    assert last.endswith("slots are free in the beginning: wait only before a slot is used again.")


def test_a_wait_on_another_slot_than_the_load():
    def body(x, out, smem, full):
        mgpu.copy_gmem_to_smem(x.at[0], smem.at[0], full.at[0])
        mgpu.barrier_wait(full.at[1])
        out[0] = smem[0]

    last = deadlock(body, [RING, mgpu.Barrier(num_barriers=2)]).splitlines()[-1]
    assert last.startswith("Nobody but the one who waits arrives on full, and not on full[1] in this phase: see")


def test_more_arrivals_expected_than_come():
    def body(x, out, smem, full):
        mgpu.copy_gmem_to_smem(x.at[0], smem.at[0], full)
        mgpu.barrier_wait(full)
        out[0] = smem[0]

    last = deadlock(body, [RING, mgpu.Barrier(num_arrivals=2)]).splitlines()[-1]
    assert last.startswith("full[0] got 1 of 2 arrivals: lower num_arrivals, or let everybody arrive who is counted")


def test_a_phase_that_went_by():
    def body(x, out, ready):
        @pl.when(lax.axis_index("wg") == 0)
        def _():
            for _ in range(4):
                mgpu.barrier_arrive(ready)

        @pl.when(lax.axis_index("wg") == 1)
        def _():
            pl.delay(1000)
            lax.fori_loop(0, 4, lambda _, carry: mgpu.barrier_wait(ready), None)

    last = deadlock(body, [mgpu.Barrier()], **TWO).splitlines()[-1]
    assert last.startswith("ready[0] was completed 4 times and is waited for once more: make as many waits as")


def test_a_collective_copy_that_one_cta_issues():
    def body(x, out, smem, full):
        cta = lax.axis_index("c")
        pl.when(cta == 0)(lambda: mgpu.copy_gmem_to_smem(x.at[0], smem.at[0], full, collective_axes="c"))
        mgpu.barrier_wait(full)
        out[cta] = smem[0]

    *_, first, second = deadlock(body, [RING, mgpu.Barrier()], cluster=(2,), cluster_names=("c",)).splitlines()
    assert first.startswith("full[0] has its arrivals, but not all bytes: a copy with collective_axes has to be issued")
    assert second.startswith("Bytes of a peer's copy have landed on full[0], but this CTA has issued none")
