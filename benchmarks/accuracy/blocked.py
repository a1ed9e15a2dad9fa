"""The matmuls of Triton's Gluon tutorials in which each CTA computes one tile, for any tile and number of buffers.

github triton-lang/triton, python/tutorials/gluon/05-wgmma.py and 07-persistence.py, on Hopper. One or two warpgroups do
everything together. With one buffer: load a step, wait for it, multiply, wait for the wgmma. With several: ask for a
step, wait for the oldest load, wait until the wgmma of the step before has ended, issue the wgmma; so at most one
wgmma and `buffers - 1` loads are in flight. The compiler puts a barrier of the CTA between a wgmma and the load that
overwrites its buffers, and one between a load and the wgmma that reads them (lib/Analysis/Membar.cpp).

Buffers of the operands and of the result are not alive at the same time, so they take the same SMEM. Tiles go down the
columns of tiles.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from benchmarks.accuracy.matmuls import SMEM_PER_SM_BYTES, SMEM_RESERVED_BYTES
from benchmarks.accuracy.pipelines import swizzled

STRIP_N = 64  # widest box of 16-bit values with a swizzle of 128 bytes


@dataclasses.dataclass(frozen=True)
class Blocked:
    """One configuration.

    Attributes:
      tile_m, tile_n, tile_k: tile of a CTA, and depth of a step.
      warpgroups: that share the rows of a tile.
      buffers: slots of the operands.
      resident_ctas: CTAs that an SM holds at most.
    """

    tile_m: int
    tile_n: int
    tile_k: int
    warpgroups: int
    buffers: int = 1
    resident_ctas: int = 1


@dataclasses.dataclass(frozen=True)
class _Operands:
    a_gmem: Any
    b_gmem: Any
    a_smem: Any
    b_smem: Any
    full: Any
    row: Any
    column: Any


def make_blocked_matmul(shape: Blocked, m: int, n: int, k: int) -> Any:
    """Returns the kernel for an (m, k) by (k, n) product of f16 matrices; the sizes are multiples of the tile's."""
    return plgpu.kernel(
        partial(_body, shape=shape, rows=m // shape.tile_m, steps=k // shape.tile_k),
        out_type=jax.ShapeDtypeStruct((m, n), jnp.float16),
        scratch_types={"unused_smem": plgpu.SMEM((_padding_bytes(shape),), jnp.int8)},
        grid=(m // shape.tile_m * (n // shape.tile_n),),
        grid_names=("cta",),
        num_threads=shape.warpgroups,
        thread_name="wg",
        name=f"blocked_{shape.tile_m}x{shape.tile_n}x{shape.tile_k}x{shape.buffers}",
    )


def _padding_bytes(shape: Blocked) -> int:
    """Returns the SMEM that a CTA has to take besides its tiles, so that no more than `resident_ctas` fit."""
    operands = 2 * shape.buffers * shape.tile_k * (shape.tile_m + shape.tile_n)
    tiles = max(operands, 2 * shape.tile_m * shape.tile_n)
    return max(1024, (SMEM_PER_SM_BYTES // shape.resident_ctas - SMEM_RESERVED_BYTES - tiles) // 1024 * 1024 - 1024)


def _body(a_gmem: Any, b_gmem: Any, out_gmem: Any, *, shape: Blocked, rows: int, steps: int, unused_smem: Any) -> None:
    del unused_smem
    tile = lax.axis_index("cta")
    row, column = lax.rem(tile, rows) * shape.tile_m, lax.div(tile, rows) * shape.tile_n
    own_rows = shape.tile_m // shape.warpgroups

    def accumulate(acc: Any) -> jax.Array:
        def multiply(a_smem: Any, b_smem: Any, full: Any) -> None:
            operands = _Operands(a_gmem, b_gmem, a_smem, b_smem, full, row, column)
            (_one_by_one if shape.buffers == 1 else _pipelined)(operands, acc, shape, steps)
            plgpu.wgmma_wait(0)

        pl.run_scoped(
            multiply,
            swizzled(shape.buffers, shape.tile_m, shape.tile_k, dtype=jnp.float16),
            swizzled(shape.buffers, shape.tile_k, shape.tile_n, dtype=jnp.float16),
            plgpu.Barrier(num_arrivals=2, num_barriers=shape.buffers),
            collective_axes="wg",
        )
        return acc[...]

    result = pl.run_scoped(accumulate, plgpu.ACC((own_rows, shape.tile_n))).astype(jnp.float16)
    pl.run_scoped(
        partial(_store, result, out_gmem, shape, row, column),
        swizzled(shape.tile_n // STRIP_N, shape.tile_m, STRIP_N, dtype=jnp.float16),
        collective_axes="wg",
    )


def _meet() -> None:
    """A barrier of the CTA: a scope with a barrier of its own begins with one."""
    pl.run_scoped(lambda _: None, plgpu.Barrier(), collective_axes="wg")


def _load(operands: _Operands, shape: Blocked, step: Any) -> None:
    @pl.when(lax.axis_index("wg") == 0)
    def _issue() -> None:
        slot, depth = lax.rem(step, shape.buffers), pl.ds(step * shape.tile_k, shape.tile_k)
        full = operands.full.at[slot]
        a_tile = operands.a_gmem.at[pl.ds(operands.row, shape.tile_m), depth]
        b_tile = operands.b_gmem.at[depth, pl.ds(operands.column, shape.tile_n)]
        plgpu.copy_gmem_to_smem(a_tile, operands.a_smem.at[slot], full)
        plgpu.copy_gmem_to_smem(b_tile, operands.b_smem.at[slot], full)


def _multiply(operands: _Operands, acc: Any, shape: Blocked, step: Any) -> None:
    slot = lax.rem(step, shape.buffers)
    own_rows = shape.tile_m // shape.warpgroups
    rows = pl.ds(lax.axis_index("wg") * own_rows, own_rows)
    plgpu.barrier_wait(operands.full.at[slot])
    plgpu.wgmma_wait(0)
    _meet()
    plgpu.wgmma(acc, operands.a_smem.at[slot, rows], operands.b_smem.at[slot])


def _one_by_one(operands: _Operands, acc: Any, shape: Blocked, steps: int) -> None:
    def step(index: Any, _: None) -> None:
        _meet()
        _load(operands, shape, index)
        _multiply(operands, acc, shape, index)
        plgpu.wgmma_wait(0)

    lax.fori_loop(0, steps, step, None)


def _pipelined(operands: _Operands, acc: Any, shape: Blocked, steps: int) -> None:
    ahead = shape.buffers - 2
    for index in range(ahead):
        _load(operands, shape, index)

    def step(index: Any, _: None) -> None:
        _meet()
        _load(operands, shape, index + ahead)
        _multiply(operands, acc, shape, index)

    lax.fori_loop(0, steps - ahead, step, None)
    for index in range(steps - ahead, steps):
        _multiply(operands, acc, shape, index)


def _store(result: jax.Array, out_gmem: Any, shape: Blocked, row: Any, column: Any, out_smem: Any) -> None:
    own_rows = shape.tile_m // shape.warpgroups
    rows = pl.ds(lax.axis_index("wg") * own_rows, own_rows)
    for strip in range(shape.tile_n // STRIP_N):
        out_smem[strip, rows] = result[:, strip * STRIP_N : (strip + 1) * STRIP_N]
    plgpu.commit_smem()
    _meet()

    @pl.when(lax.axis_index("wg") == 0)
    def _issue() -> None:
        for strip in range(shape.tile_n // STRIP_N):
            target = out_gmem.at[pl.ds(row, shape.tile_m), pl.ds(column + strip * STRIP_N, STRIP_N)]
            plgpu.copy_smem_to_gmem(out_smem.at[strip], target)
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)
