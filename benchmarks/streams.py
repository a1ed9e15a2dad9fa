"""A kernel that does nothing but load: what more stages bring it depends on who delivers, HBM or L2."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu

CTAS, COLUMNS = 132, 64


def make_stream(
    *,
    tiles: int,
    rows: int,
    stages: int,
    use_ns: int = 0,
    shared: bool = False,
    params: Any = None,
    interpret: Any = None,
) -> Any:
    """Returns the kernel; its operand is float32[rows_of_stream(...), 64].

    Args:
      tiles: tiles of `rows` x 64 that each of 132 CTAs loads, one after the other.
      rows: of a tile.
      stages: slots of the ring.
      use_ns: how long the consumer keeps a tile.
      shared: all CTAs load the same tiles, so that L2 delivers; else each its own, from HBM.
      params, interpret: as for `mgpu.kernel`.
    """

    def body(x: Any, _out: Any, x_smem: Any, full: Any, empty: Any) -> None:
        warpgroup = lax.axis_index("wg")

        @pl.when(warpgroup == 1)
        def _load() -> None:
            def load(tile: Any, _: None) -> None:
                slot = lax.rem(tile, stages)
                pl.when(tile >= stages)(lambda: plgpu.barrier_wait(empty.at[slot]))
                number = tile if shared else tile * CTAS + lax.axis_index("cta")
                plgpu.copy_gmem_to_smem(x.at[pl.ds(number * rows, rows)], x_smem.at[slot], full.at[slot])

            lax.fori_loop(0, tiles, load, None)

        @pl.when(warpgroup == 0)
        def _use() -> None:
            def use(tile: Any, _: None) -> None:
                slot = lax.rem(tile, stages)
                plgpu.barrier_wait(full.at[slot])
                if use_ns:
                    pl.delay(use_ns)
                plgpu.barrier_arrive(empty.at[slot])

            lax.fori_loop(0, tiles, use, None)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((COLUMNS,), jnp.float32),
        scratch_types={
            "x_smem": plgpu.SMEM((stages, rows, COLUMNS), jnp.float32),
            "full": plgpu.Barrier(num_barriers=stages),
            "empty": plgpu.Barrier(num_barriers=stages),
        },
        grid=(CTAS,),
        grid_names=("cta",),
        num_threads=2,
        thread_name="wg",
        compiler_params=params,
        interpret=interpret,
        name="stream",
    )


def rows_of_stream(*, tiles: int, rows: int, shared: bool) -> int:
    """Returns how many rows the operand of such a kernel has."""
    return tiles * rows * (1 if shared else CTAS)
