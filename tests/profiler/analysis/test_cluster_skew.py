"""A cluster whose CTAs share their loads, one of them slower: the advice says so, and its gain is what it gains."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
import profiler
from profiler import Report

STEPS, SLOTS = 12, 3


def shared_ring(x: Any, out: Any, smem: Any, full: Any, empty: Any, *, slow_ns: int) -> None:
    """Loads reach both CTAs of a cluster, and a slot is free when both have released it."""

    @pl.when(lax.axis_index("wg") == 0)
    def _produce() -> None:
        def step(k: Any, _: None) -> None:
            slot = lax.rem(k, SLOTS)
            pl.when(k >= SLOTS)(lambda: mgpu.barrier_wait(empty.at[slot]))
            mgpu.copy_gmem_to_smem(x.at[k], smem.at[slot], full.at[slot], collective_axes="c")

        lax.fori_loop(0, STEPS, step, None)

    @pl.when(lax.axis_index("wg") == 1)
    def _consume() -> None:
        def step(k: Any, _: None) -> None:
            slot = lax.rem(k, SLOTS)
            mgpu.barrier_wait(full.at[slot])
            with jax.named_scope("consume"):
                pl.delay(300)
                pl.when(lax.axis_index("c") == 1)(lambda: pl.delay(slow_ns))
            mgpu.barrier_arrive(empty.at[slot])

        lax.fori_loop(0, STEPS, step, None)


def report_of(directory: Path, slow_ns: int) -> Report:
    kernel = mgpu.kernel(
        functools.partial(shared_ring, slow_ns=slow_ns),
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[
            mgpu.SMEM((SLOTS, 64, 64), jnp.float32),
            mgpu.Barrier(num_barriers=SLOTS),
            mgpu.ClusterBarrier(collective_axes=("c",), num_barriers=SLOTS),
        ],
        grid=(2,),
        grid_names=("g",),
        cluster=(2,),
        cluster_names=("c",),
        num_threads=2,
        thread_name="wg",
        compiler_params=mgpu.CompilerParams(profile_space=256, profile_dir=str(directory)),
        interpret=mgpu.InterpretGPUParams(numerics=False),
    )
    kernel(np.zeros((STEPS, 64, 64), np.float32))
    return profiler.build_report(profiler.open(directory)[0].load_trace())


def test_the_slow_cta_of_a_cluster_is_named_with_its_cost(tmp_path: Path) -> None:
    skewed, even = (report_of(tmp_path / str(ns), ns) for ns in (800, 0))
    (item,) = [item for item in skewed.advice.items if item.remedy.startswith("give the CTAs of a cluster equal work")]
    predicted = max((i for i in skewed.advice.items if i.basis == "replay"), key=lambda one: one.gain_cycles)
    assert item == predicted
    assert item.evidence.startswith("WG1 of the CTA with rank 1 in its cluster works")
    assert skewed.kernel_cycles - item.gain_cycles == pytest.approx(even.kernel_cycles, rel=0.02)
    assert not [one for one in even.advice.items if "equal work" in one.remedy]
