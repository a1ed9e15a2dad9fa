"""Mistakes between the roles of a kernel, and unusual orders that are legal."""

import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import DeadlockError
from tests.support.races import NUMBERS, find_races, needed, row

TILE = mgpu.SMEM((4,), jnp.int32)
ROLES = {"num_threads": 2, "thread_name": "wg"}
SQUARE = mgpu.SMEM((64, 64), jnp.bfloat16, transforms=(mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128)))


def role(number):
    return pl.when(lax.axis_index("wg") == number)


@pytest.mark.parametrize("when", ["issued", "over"])
def test_a_turn_on_the_tensor_core_does_not_free_its_operand(when):
    """Warpgroup 1 hands over when its wgmma has been issued, as ping-pong kernels do; that one still reads SMEM."""

    def body(out, smem, turn):
        @role(0)
        def _():
            smem[...] = jnp.ones((64, 64), jnp.bfloat16)
            mgpu.commit_smem()
            mgpu.barrier_arrive(turn.at[0])
            mgpu.barrier_wait(turn.at[1])
            smem[...] = jnp.zeros((64, 64), jnp.bfloat16)

        @role(1)
        def _():
            def multiply(acc):
                mgpu.barrier_wait(turn.at[0])
                mgpu.wgmma(acc, smem, smem)
                if when == "over":
                    mgpu.wgmma_wait(0)
                mgpu.barrier_arrive(turn.at[1])
                mgpu.wgmma_wait(0)
                return acc[0, 0]

            out[...] = row(pl.run_scoped(multiply, mgpu.ACC((64, 64))).astype(jnp.int32))

    races = find_races(body, (4,), scratch=[SQUARE, mgpu.Barrier(num_barriers=2)], **ROLES)
    hand_over = (
        "Needs wgmma_wait(n) with a smaller n, then barrier_arrive by warpgroup 1 and barrier_wait by warpgroup 0"
    )
    assert needed(races).startswith("" if when == "over" else hand_over)
    assert bool(races) == (when == "issued")


@pytest.mark.parametrize("asks_first", [True, False])
def test_an_order_by_way_of_a_third_warpgroup(asks_first):
    def body(out, smem, first, second):
        @role(0)
        def _():
            smem[...] = row(1)
            mgpu.barrier_arrive(first)

        @role(1)
        def _():
            if asks_first:
                mgpu.barrier_wait(first)
            mgpu.barrier_arrive(second)

        @role(2)
        def _():
            mgpu.barrier_wait(second)
            out[...] = smem[...]

    races = find_races(body, (4,), scratch=[TILE, mgpu.Barrier(), mgpu.Barrier()], num_threads=3, thread_name="wg")
    assert bool(races) == (not asks_first)


@pytest.mark.parametrize("meets", [True, False])
def test_a_hand_over_needs_a_way_back(meets):
    """A writer that does not wait until its reader has read completes phases that nobody has waited for."""

    def body(out, smem, ready, taken):
        @role(0)
        def _():
            for value in range(4):
                if value and meets:
                    mgpu.barrier_wait(taken)
                smem[...] = row(value)
                mgpu.barrier_arrive(ready)
            mgpu.barrier_wait(taken)

        @role(1)
        def _():
            for value in range(4):
                mgpu.barrier_wait(ready)
                out[value] = smem[...]
                mgpu.barrier_arrive(taken)

    scratch = [TILE, mgpu.Barrier(), mgpu.Barrier()]
    if meets:
        assert not find_races(body, (4, 4), scratch=scratch, **ROLES)
        return
    message = r"ready\[0\] was completed 4 times, but the one who waits there has waited 2 times before: a phase"
    with pytest.raises(DeadlockError, match=message):
        find_races(body, (4, 4), scratch=scratch, **ROLES)


@pytest.mark.parametrize(("loads", "uses"), [(4, 4), (5, 4), (4, 5)])
def test_roles_with_other_trip_counts(loads, uses):
    def body(x, out, smem, full, empty):
        @role(0)
        def _():
            def load(step, _):
                pl.when(step >= 2)(lambda: mgpu.barrier_wait(empty.at[lax.rem(step, 2)]))
                slot = lax.rem(step, 2)
                mgpu.copy_gmem_to_smem(x.at[lax.rem(step, 4)], smem.at[slot], full.at[slot])

            lax.fori_loop(0, loads, load, None)

        @role(1)
        def _():
            def use(step, total):
                slot = lax.rem(step, 2)
                mgpu.barrier_wait(full.at[slot])
                total += smem[slot]
                mgpu.barrier_arrive(empty.at[slot])
                return total

            out[...] = lax.fori_loop(0, uses, use, row(0))

    scratch = [mgpu.SMEM((2, 4), jnp.int32), mgpu.Barrier(num_barriers=2), mgpu.Barrier(num_barriers=2)]

    def run():
        return find_races(body, (4,), NUMBERS.reshape(4, 4), scratch=scratch, **ROLES)

    if loads < uses:
        with pytest.raises(DeadlockError, match=r"full\[0\] was completed 2 times and is waited for once more"):
            run()
        return
    needs = "Needs barrier_wait on the barrier of that load before the end." if loads > uses else ""
    assert needed(run()) == needs


@pytest.mark.parametrize("leaves", [True, False])
def test_a_warpgroup_that_leaves_before_the_cluster_meets(leaves):
    def body(out, together):
        rank, warpgroup = lax.axis_index("c"), lax.axis_index("wg")

        @pl.when((warpgroup == 0) | (rank == 0) | (not leaves))
        def _():
            mgpu.barrier_arrive(together)
            mgpu.barrier_wait(together)

        pl.when(warpgroup == 0)(lambda: out.__setitem__(rank, row(1)))

    def run():
        together = mgpu.ClusterBarrier(collective_axes=("c",), num_arrivals=2)
        return find_races(body, (2, 4), scratch=[together], cluster=(2,), cluster_names=("c",), **ROLES)

    if not leaves:
        assert not run()
        return
    with pytest.raises(DeadlockError) as caught:
        run()
    assert "together[0] got 3 of 4 arrivals: lower num_arrivals, or let everybody arrive" in str(caught.value)


def test_a_semaphore_as_a_barrier_of_all_ctas():
    def body(parts, out):
        cta, count = lax.axis_index("cta"), pl.get_global(mgpu.SemaphoreType.REGULAR)
        parts[cta] = row(cta)
        mgpu.semaphore_signal(count)
        mgpu.semaphore_wait(count, 4, decrement=False)
        out[cta] = parts[lax.rem(cta + 1, 4)]

    assert not find_races(body, (4, 4), np.zeros((4, 4), np.int32), grid=(4,), grid_names=("cta",))
