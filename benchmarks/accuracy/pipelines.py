"""Producer-consumer pipelines of GH200 R13, without an epilogue worth the name.

github hibouwu/CUDA_optimazation, gh200_sm90/access_rules/R13-async-retirement.md: one CTA on each of 132 SMs, a
producer and two consumer warpgroups, 32 k tiles through a ring of 1, 2 or 4 stages, out of four reserved slots. All
CTAs read the same A (stored tile by tile) and the same B. A consumer releases a slot at once, after 64 dependent
FFMAs, or after its wgmmas: with one stage after `wait 0`, with more one tile later, after `wait 1`. Before it gives a
slot back, each of its lanes writes a word to SMEM, and its warps meet. The measured window
reaches from a CTA's first instruction to its last tile; the result is stored outside it, so only a piece of it is here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu

TILE_M, TILE_K = 128, 64
RESERVED_SLOTS = 4
NUM_TILES = 32
CONSUMERS = 2
DEPENDENT_FMAS = 64


def swizzled(*shape: int, dtype: Any = jnp.bfloat16) -> Any:
    """Returns a buffer type in the layout that wgmma reads."""
    tiling = plgpu.TilingTransform((8, 128 // jnp.dtype(dtype).itemsize))
    return plgpu.SMEM(shape, dtype, transforms=(tiling, plgpu.SwizzleTransform(128)))


def make_pipeline(tile_n: int, stages: int, consumer: str) -> Any:
    """Returns the pipeline kernel; its operands are A (32 * 128, 64) and B (32 * 64, tile_n).

    Args:
      tile_n: 128 gives stages of 32 KiB, 256 of 48 KiB.
      stages: slots in use.
      consumer: "direct", "ffma" or "wgmma".
    """
    consume = {
        "direct": partial(_consume_values, fmas=0),
        "ffma": partial(_consume_values, fmas=DEPENDENT_FMAS),
        "wgmma": _consume_by_wgmma,
    }[consumer]
    return plgpu.kernel(
        partial(_pipeline_body, stages=stages, consume=consume),
        out_type=jax.ShapeDtypeStruct((132 * TILE_M, 2), jnp.float32),
        scratch_types={
            "a_smem": swizzled(RESERVED_SLOTS, TILE_M, TILE_K),
            "b_smem": swizzled(RESERVED_SLOTS, TILE_K, tile_n),
            "full": plgpu.Barrier(num_arrivals=2, num_barriers=stages),
            "empty": plgpu.Barrier(num_arrivals=CONSUMERS, num_barriers=stages),
            "words": plgpu.SMEM((CONSUMERS, 64, 2), jnp.float32),
        },
        grid=(132,),
        grid_names=("cta",),
        num_threads=CONSUMERS + 1,
        thread_name="wg",
        name=f"pipeline_{consumer}_{tile_n}_{stages}",
    )


def _pipeline_body(
    a_gmem: Any,
    b_gmem: Any,
    out_gmem: Any,
    *,
    a_smem: Any,
    b_smem: Any,
    full: Any,
    empty: Any,
    words: Any,
    stages: int,
    consume: Callable[..., None],
) -> None:
    warpgroup = lax.axis_index("wg")

    @pl.when(warpgroup == CONSUMERS)
    def _produce() -> None:
        def load(tile: Any, _: None) -> None:
            slot = lax.rem(tile, stages)
            pl.when(tile >= stages)(lambda: plgpu.barrier_wait(empty.at[slot]))
            plgpu.copy_gmem_to_smem(a_gmem.at[pl.ds(tile * TILE_M, TILE_M)], a_smem.at[slot], full.at[slot])
            plgpu.copy_gmem_to_smem(b_gmem.at[pl.ds(tile * TILE_K, TILE_K)], b_smem.at[slot], full.at[slot])

        lax.fori_loop(0, NUM_TILES, load, None)

    @pl.when(warpgroup < CONSUMERS)
    def _consume() -> None:
        rows = pl.ds(warpgroup * 64, 64)
        out = out_gmem.at[pl.ds(lax.axis_index("cta") * TILE_M + warpgroup * 64, 64)]
        consume(a_smem, b_smem, full, empty, words.at[warpgroup], rows, out, stages=stages)


def _release(words: Any, empty: Any, slot: Any, values: jax.Array) -> None:
    words[...] = values
    plgpu.commit_smem()
    plgpu.barrier_arrive(empty.at[slot])


def _consume_values(
    _a_smem: Any, _b_smem: Any, full: Any, empty: Any, words: Any, _rows: Any, out: Any, *, stages: int, fmas: int
) -> None:
    def step(tile: Any, values: jax.Array) -> jax.Array:
        slot = lax.rem(tile, stages)
        plgpu.barrier_wait(full.at[slot])
        if fmas:
            # A lane of the probe reads one value of the tile; a single value of a swizzled tile cannot be read here.
            values = words[...]
        for _ in range(fmas):
            values = values * 1.5
        _release(words, empty, slot, values)
        return values

    out[...] = lax.fori_loop(0, NUM_TILES, step, jnp.zeros((64, 2), jnp.float32))


def _consume_by_wgmma(
    a_smem: Any, b_smem: Any, full: Any, empty: Any, words: Any, rows: Any, out: Any, *, stages: int
) -> None:
    tile_n = b_smem.shape[-1]
    word = jnp.zeros((64, 2), jnp.float32)

    def accumulate(acc: Any) -> jax.Array:
        def step(tile: Any, _: None) -> None:
            slot = lax.rem(tile, stages)
            plgpu.barrier_wait(full.at[slot])
            plgpu.wgmma(acc, a_smem.at[slot, rows], b_smem.at[slot])
            if stages == 1:
                plgpu.wgmma_wait(0)
                _release(words, empty, slot, word)
            else:
                plgpu.wgmma_wait(1)
                pl.when(tile > 0)(lambda: _release(words, empty, lax.rem(tile - 1, stages), word))

        lax.fori_loop(0, NUM_TILES, step, None)
        return acc[...]

    out[...] = pl.run_scoped(accumulate, plgpu.ACC((64, tile_n)))[:, :2]
