"""A load pipeline, the wgmma loop that it feeds, and both together, after the flash-vla probe `pipeline_ws`.

github revollllt/flash-vla, hardware-unit-test, unit-mma: one CTA on each of 132 SMs, a producer and one consumer
warpgroup over CUTLASS's `PipelineTmaAsync`, k tiles of 64 x 64 and 64 x 128 16-bit values. The consumer gives a slot
back one tile late, after `wait 1`. Published is how much longer the pair takes than the slower one of its sides alone,
with one k tile that all CTAs read again and again ("L2"), and with a walk over 300 MB ("cold"), on which each CTA
starts one tile after the one before.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from benchmarks.accuracy.pipelines import swizzled

ROWS, COLUMNS, DEPTH = 64, 128, 64
NUM_STEPS = 256
WALK_TILES = NUM_STEPS + 132
LOOP_NS = {"producer": 105, "both": 200}
"""Instructions of the probe's producer for each tile besides those of the copies: a division by a run-time value, reads
of the clock for a watchdog, the second wait of `producer_acquire`. With three or more stages they bound its loop: 346
cycles alone, 464 in the pair, whatever the number of stages."""


def make_coupled_pipeline(stages: int, sides: str, *, walks: bool) -> Any:
    """Returns the kernel; its operands are A (tiles * 64, 64) and B (tiles * 64, 128).

    Args:
      stages: slots of the ring.
      sides: "producer", "consumer" or "both".
      walks: whether the k tile changes; the operands then hold `WALK_TILES` tiles, else one.
    """
    return plgpu.kernel(
        partial(_body, stages=stages, sides=sides, walks=walks),
        out_type=jax.ShapeDtypeStruct((132 * ROWS, 2), jnp.float32),
        scratch_types={
            "a_smem": swizzled(stages, ROWS, DEPTH),
            "b_smem": swizzled(stages, DEPTH, COLUMNS),
            "full": plgpu.Barrier(num_arrivals=2, num_barriers=stages),
            "empty": plgpu.Barrier(num_barriers=stages),
        },
        grid=(132,),
        grid_names=("cta",),
        num_threads=2,
        thread_name="wg",
        name=f"coupled_{sides}_{stages}",
    )


def _body(a_gmem: Any, b_gmem: Any, out_gmem: Any, *, stages: int, sides: str, walks: bool, **scratch: Any) -> None:
    warpgroup = lax.axis_index("wg")
    if sides != "consumer":
        produce = partial(_produce, a_gmem, b_gmem, stages=stages, sides=sides, walks=walks, **scratch)
        pl.when(warpgroup == 1)(produce)
    if sides != "producer":
        consume = partial(_consume, out_gmem, stages=stages, waits=sides == "both", **scratch)
        pl.when(warpgroup == 0)(consume)


def _produce(
    a_gmem: Any,
    b_gmem: Any,
    *,
    a_smem: Any,
    b_smem: Any,
    full: Any,
    empty: Any,
    stages: int,
    sides: str,
    walks: bool,
) -> None:
    # Alone, the producer waits for its own loads.
    free = empty if sides == "both" else full

    def load(step: Any, _: None) -> None:
        slot = lax.rem(step, stages)
        pl.delay(LOOP_NS[sides])
        pl.when(step >= stages)(lambda: plgpu.barrier_wait(free.at[slot]))
        tile = lax.axis_index("cta") + step if walks else 0
        plgpu.copy_gmem_to_smem(a_gmem.at[pl.ds(tile * ROWS, ROWS)], a_smem.at[slot], full.at[slot])
        plgpu.copy_gmem_to_smem(b_gmem.at[pl.ds(tile * DEPTH, DEPTH)], b_smem.at[slot], full.at[slot])

    lax.fori_loop(0, NUM_STEPS, load, None)
    if sides == "producer":
        for step in range(NUM_STEPS - stages, NUM_STEPS):
            plgpu.barrier_wait(full.at[step % stages])


def _consume(out_gmem: Any, *, a_smem: Any, b_smem: Any, full: Any, empty: Any, stages: int, waits: bool) -> None:
    def accumulate(acc: Any) -> jax.Array:
        def step(index: Any, _: None) -> None:
            slot = lax.rem(index, stages)
            if waits:
                plgpu.barrier_wait(full.at[slot])
            plgpu.wgmma(acc, a_smem.at[slot], b_smem.at[slot])
            plgpu.wgmma_wait(1)
            if waits:
                before = lax.rem(index + stages - 1, stages)
                pl.when(index > 0)(lambda: plgpu.barrier_arrive(empty.at[before]))

        lax.fori_loop(0, NUM_STEPS, step, None)
        return acc[...]

    # Only a piece of the result, which the measured window leaves out.
    result = pl.run_scoped(accumulate, plgpu.ACC((ROWS, COLUMNS)))
    out_gmem[pl.ds(lax.axis_index("cta") * ROWS, ROWS)] = result[:, :2]
