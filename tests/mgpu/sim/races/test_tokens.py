"""CTAs that pass a token on by a semaphore and change GMEM in turns: legal ones are quiet, each mistake is caught."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from support.pipelines import run_checked

SIDE = 8


def make_kernel(ctas, rounds, by_tma, mistake, seed):
    """Every CTA, in turns, adds one to a sum in GMEM that all share, `rounds` times."""

    def body(x, total, smem):
        cta, token = lax.axis_index("cta"), pl.get_global(mgpu.SemaphoreType.REGULAR)

        def turn(number, _):
            place = number * ctas + cta

            def wait():
                needed = place - int(mistake == "wait for one signal too few")
                pl.when(place > 0)(lambda: mgpu.semaphore_wait(token, needed, decrement=False))

            if mistake not in ("no wait", "wait after reading"):
                wait()
            before = jnp.where(place > 0, total[...], x[...])
            if mistake == "wait after reading":
                wait()
            if by_tma:
                smem[...] = before + 1
                mgpu.commit_smem()
                mgpu.copy_smem_to_gmem(smem, total)
                if mistake == "signal before the store is done":
                    mgpu.semaphore_signal(token)
                mgpu.wait_smem_to_gmem(0, wait_read_only=mistake == "wait for reading only")
            else:
                if mistake == "signal before the store is done":
                    mgpu.semaphore_signal(token)
                total[...] = before + 1
            if mistake not in ("no signal", "signal before the store is done"):
                mgpu.semaphore_signal(token)

        lax.fori_loop(0, rounds, turn, None)

    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((SIDE,), jnp.int32),
        scratch_types=[mgpu.SMEM((SIDE,), jnp.int32)],
        grid=(ctas,),
        grid_names=("cta",),
        interpret=mgpu.InterpretGPUParams(seed=seed, detect_races=True),
    )


RINGS = {
    "ctas": st.integers(2, 6),
    "rounds": st.integers(1, 3),
    "by_tma": st.booleans(),
    "seed": st.one_of(st.none(), st.integers(0, 2**32)),
}
X = np.arange(SIDE, dtype=np.int32)


@given(**RINGS)
@settings(max_examples=6, deadline=None)
def test_legal_turns_are_right_under_every_seed_and_quiet(ctas, rounds, by_tma, seed):
    out, found = run_checked(make_kernel(ctas, rounds, by_tma, "", seed), X)
    assert found == ""
    np.testing.assert_array_equal(out, X + ctas * rounds)


@pytest.mark.parametrize(
    "mistake",
    [
        "no wait",
        "wait after reading",
        "wait for one signal too few",
        "no signal",
        "signal before the store is done",
        "wait for reading only",
    ],
)
@given(**RINGS)
@settings(max_examples=4, deadline=None)
def test_each_mistake_is_caught(mistake, ctas, rounds, by_tma, seed):
    _, found = run_checked(make_kernel(ctas, rounds, by_tma, mistake, seed), X)
    assert bool(found) == (by_tma or mistake != "wait for reading only")
