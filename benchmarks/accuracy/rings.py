"""Rings of TMA loads that nobody consumes, after the flash-vla probe `tma_ring`.

github revollllt/flash-vla, .agents/skills/hardware-unit-test, units/tma_ring, mode 0: one CTA on each of some SMs, one
or two producer warps in it, each with a ring of four boxes of its own that it fills, waits for, and fills again. Every
warp walks a stream of its own, so each byte of GMEM is read once.
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

STAGES = 4
ROW_BYTES = 128
LEAST_STEPS = 8 * STAGES
LEAST_BYTES = 66_000_000  # that all CTAs read together
LOOP_NS = 220
"""Instructions of the probe's warp for each box besides those of the copy. With them a warp issues a box every 264 ns,
as it does where nothing else binds: 132 warps read 507 GB/s in boxes of 1 KiB."""


def ring_steps(ctas: int, warps: int, box_bytes: int) -> int:
    """Returns how many boxes each warp reads."""
    return max(LEAST_STEPS, -(-LEAST_BYTES // (ctas * warps * box_bytes)))


def make_ring(ctas: int, warps: int, box_bytes: int) -> Any:
    """Returns the kernel; its operand is all that it reads, as rows of 64 16-bit values.

    Args:
      ctas: one for each SM that reads.
      warps: producers in a CTA; a warpgroup stands for each.
      box_bytes: of a load, a multiple of 1024.
    """
    rows, steps = box_bytes // ROW_BYTES, ring_steps(ctas, warps, box_bytes)
    return plgpu.kernel(
        partial(_body, warps=warps, rows=rows, steps=steps),
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.bfloat16),  # stays unwritten
        scratch_types={
            "boxes": swizzled(STAGES * warps, rows, ROW_BYTES // 2),
            "full": plgpu.Barrier(num_barriers=STAGES * warps),
        },
        grid=(ctas,),
        grid_names=("cta",),
        num_threads=warps,
        thread_name="wg",
        name=f"ring_{ctas}x{warps}",
    )


def _body(source: Any, _out: Any, *, boxes: Any, full: Any, warps: int, rows: int, steps: int) -> None:
    producer = lax.axis_index("wg")
    first = (lax.axis_index("cta") * warps + producer) * steps

    def load(step: Any, _: None) -> None:
        slot = producer * STAGES + lax.rem(step, STAGES)
        pl.when(step >= STAGES)(lambda: plgpu.barrier_wait(full.at[slot]))
        pl.delay(LOOP_NS)
        plgpu.copy_gmem_to_smem(source.at[pl.ds((first + step) * rows, rows)], boxes.at[slot], full.at[slot])

    lax.fori_loop(0, steps, load, None)
    for step in range(steps - STAGES, steps):
        plgpu.barrier_wait(full.at[producer * STAGES + step % STAGES])
