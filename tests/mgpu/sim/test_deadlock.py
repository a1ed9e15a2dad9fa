"""The report of a deadlock: who waits on which barrier and phase, who could have arrived, and where that one stands."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import DeadlockError


def make_kernel(*, releases, stages=2):
    """A producer fills a ring whose slots a consumer gives back only if `releases`."""

    def body(x, out, smem, full, empty):
        @pl.when(lax.axis_index("wg") == 0)
        def _():
            def load(turn, _):
                slot = lax.rem(turn, stages)
                pl.when(turn >= stages)(lambda: mgpu.barrier_wait(empty.at[slot]))
                mgpu.copy_gmem_to_smem(x, smem.at[slot], full.at[slot])

            lax.fori_loop(0, 5, load, None)

        @pl.when(lax.axis_index("wg") == 1)
        def _():
            def take(turn, _):
                slot = lax.rem(turn, stages)
                mgpu.barrier_wait(full.at[slot])
                out[...] = smem[slot]
                if releases:
                    mgpu.barrier_arrive(empty.at[slot])

            lax.fori_loop(0, 5, take, None)

    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[
            mgpu.SMEM((stages, 64, 64), jnp.float32),
            mgpu.Barrier(num_barriers=stages),
            mgpu.Barrier(num_barriers=stages),
        ],
        num_threads=2,
        thread_name="wg",
    )


def test_the_report_names_waits_phases_and_possible_arrivals():
    with pytest.raises(DeadlockError) as caught:
        make_kernel(releases=False)(np.ones((64, 64), np.float32))
    text = str(caught.value)
    line = r"test_deadlock\.py:\d+"
    assert re.search(rf"warpgroup 0 at {line} waits on empty\[0\] phase 0 parity 0 \(0 of 1 arrivals\)", text)
    assert re.search(rf"warpgroup 1 at {line} waits on full\[0\] phase 1 parity 1 \(0 of 1 arrivals\)", text)
    assert "arrivals on empty come from: nowhere" in text
    assert re.search(rf"arrivals on full come from: tma load at {line} by warpgroup 0, which is at {line}", text)


def test_the_same_kernel_with_its_arrivals_runs():
    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    np.testing.assert_array_equal(make_kernel(releases=True)(x), x)
