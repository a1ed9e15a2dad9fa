"""The three matmuls of Triton's Gluon tutorial on persistent kernels, wait by wait.

github triton-lang/triton, python/tutorials/gluon/07-persistence.py, on Hopper: tiles of 128 x 256 x 64, three buffers,
eight warps that do everything together. Its loop asks for step k + 1, waits for the loads of step k, waits until the
wgmma of step k - 1 has ended, and issues that of step k. The compiler puts two barriers of the CTA into it (github
triton-lang/triton, lib/Analysis/Membar.cpp): between a wgmma and the load that overwrites its buffers, and between a
load and the wgmma that reads them. One thread issues the loads and the store.

Tiles go down the columns of tiles. "non-persistent": a CTA for each tile. "persistent": each CTA takes a stretch of
consecutive tiles. "pipelined": persistent, and a tile's first loads are under way before the tile before is stored.
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
from benchmarks.accuracy.pipelines import swizzled

TILE_M, TILE_N, TILE_K = 128, 256, 64
BUFFERS = 3
WARPGROUPS = 2
STRIP_N = 64  # widest box of 16-bit values with a swizzle of 128 bytes
NUM_SMS = 132
KINDS = ("non-persistent", "persistent", "pipelined")


def make_gluon_matmul(kind: str, m: int, n: int, k: int) -> Any:
    """Returns the kernel for an (m, k) by (k, n) product of f16 matrices.

    Args:
      kind: one of `KINDS`.
      m, n, k: multiples of the tile; at least three steps deep.
    """
    tiles = m // TILE_M * (n // TILE_N)
    # The tutorial starts a CTA on each SM; those for which no tile is left exit at once.
    tiles_per_cta = 1 if kind == "non-persistent" else -(-tiles // NUM_SMS)
    plan = _Plan(tiles, tiles_per_cta, m // TILE_M, k // TILE_K)
    return plgpu.kernel(
        partial(_body, plan=plan, is_pipelined=kind == "pipelined"),
        out_type=jax.ShapeDtypeStruct((m, n), jnp.float16),
        scratch_types={
            "a_smem": swizzled(BUFFERS, TILE_M, TILE_K, dtype=jnp.float16),
            "b_smem": swizzled(BUFFERS, TILE_K, TILE_N, dtype=jnp.float16),
            "out_smem": swizzled(TILE_N // STRIP_N, TILE_M, STRIP_N, dtype=jnp.float16),
            "full": plgpu.Barrier(num_arrivals=2, num_barriers=BUFFERS),
        },
        grid=(-(-tiles // tiles_per_cta),),
        grid_names=("cta",),
        num_threads=WARPGROUPS,
        thread_name="wg",
        name=f"gluon_{kind.replace('-', '_')}",
    )


@dataclasses.dataclass(frozen=True)
class _Plan:
    """Which tiles a CTA computes: `tiles_per_cta` consecutive ones of `tiles`, each in `steps` steps."""

    tiles: int
    tiles_per_cta: int
    rows: int
    steps: int

    def position(self, turn: Any) -> tuple[Any, Any]:
        """Returns first row and first column of the CTA's tile number `turn`."""
        tile = lax.axis_index("cta") * self.tiles_per_cta + turn
        return lax.rem(tile, self.rows) * TILE_M, lax.div(tile, self.rows) * TILE_N

    def exists(self, turn: Any) -> Any:
        """True if the CTA has a tile number `turn`."""
        is_own = jnp.asarray(turn) < self.tiles_per_cta
        return jnp.logical_and(is_own, lax.axis_index("cta") * self.tiles_per_cta + turn < self.tiles)


@dataclasses.dataclass(frozen=True)
class _Refs:
    a_gmem: Any
    b_gmem: Any
    out_gmem: Any
    a_smem: Any
    b_smem: Any
    out_smem: Any
    full: Any


def _body(a_gmem: Any, b_gmem: Any, out_gmem: Any, *, plan: _Plan, is_pipelined: bool, **scratch: Any) -> None:
    refs = _Refs(a_gmem, b_gmem, out_gmem, **scratch)
    run_tile = partial(_pipelined_tile if is_pipelined else _tile, refs, plan)
    if is_pipelined:
        for count in range(BUFFERS - 1):
            _load(refs, plan, 0, count, count)
    if plan.tiles_per_cta == 1:
        run_tile(0)
    else:
        lax.fori_loop(0, plan.tiles_per_cta, lambda turn, _: pl.when(plan.exists(turn))(lambda: run_tile(turn)), None)
    if is_pipelined:
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)


def _meet() -> None:
    """A barrier of the CTA: a scope with a barrier of its own begins with one."""
    pl.run_scoped(lambda _: None, plgpu.Barrier(), collective_axes="wg")


def _is_issuer() -> Any:
    return lax.axis_index("wg") == 0


def _load(refs: _Refs, plan: _Plan, turn: Any, step: Any, count: Any) -> None:
    """Asks for a step's operands; `count` is its number among all steps of the CTA."""

    @pl.when(jnp.logical_and(_is_issuer(), plan.exists(turn)))
    def _issue() -> None:
        row, column = plan.position(turn)
        slot, depth = lax.rem(count, BUFFERS), pl.ds(step * TILE_K, TILE_K)
        full = refs.full.at[slot]
        plgpu.copy_gmem_to_smem(refs.a_gmem.at[pl.ds(row, TILE_M), depth], refs.a_smem.at[slot], full)
        plgpu.copy_gmem_to_smem(refs.b_gmem.at[depth, pl.ds(column, TILE_N)], refs.b_smem.at[slot], full)


def _multiply(refs: _Refs, acc: Any, count: Any) -> None:
    slot = lax.rem(count, BUFFERS)
    rows = pl.ds(lax.axis_index("wg") * (TILE_M // WARPGROUPS), TILE_M // WARPGROUPS)
    plgpu.barrier_wait(refs.full.at[slot])
    plgpu.wgmma_wait(0)
    _meet()
    plgpu.wgmma(acc, refs.a_smem.at[slot, rows], refs.b_smem.at[slot])


def _tile(refs: _Refs, plan: _Plan, turn: Any) -> None:
    first = turn * plan.steps
    _load(refs, plan, turn, 0, first)

    def accumulate(acc: Any) -> jax.Array:
        def step(index: Any, _: None) -> None:
            _meet()
            _load(refs, plan, turn, index + 1, first + index + 1)
            _multiply(refs, acc, first + index)

        lax.fori_loop(0, plan.steps - 1, step, None)
        _multiply(refs, acc, first + plan.steps - 1)
        return acc[...]

    _store(refs, plan, turn, pl.run_scoped(accumulate, plgpu.ACC((TILE_M // WARPGROUPS, TILE_N))))
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
    _meet()


def _pipelined_tile(refs: _Refs, plan: _Plan, turn: Any) -> None:
    first, steps = turn * plan.steps, plan.steps

    def accumulate(acc: Any) -> jax.Array:
        _multiply(refs, acc, first)

        def step(index: Any, _: None) -> None:
            _meet()
            _load(refs, plan, turn, index + 1, first + index + 1)
            _multiply(refs, acc, first + index)

        lax.fori_loop(1, steps - 1, step, None)
        _meet()
        _load(refs, plan, turn + 1, 0, first + steps)
        _multiply(refs, acc, first + steps - 1)
        _meet()
        _load(refs, plan, turn + 1, 1, first + steps + 1)
        return acc[...]

    result = pl.run_scoped(accumulate, plgpu.ACC((TILE_M // WARPGROUPS, TILE_N)))
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
    _store(refs, plan, turn, result)


def _store(refs: _Refs, plan: _Plan, turn: Any, result: jax.Array) -> None:
    """Stores a tile through SMEM."""
    rows = pl.ds(lax.axis_index("wg") * (TILE_M // WARPGROUPS), TILE_M // WARPGROUPS)
    row, column = plan.position(turn)
    _meet()
    for strip in range(TILE_N // STRIP_N):
        part = result[:, strip * STRIP_N : (strip + 1) * STRIP_N]
        refs.out_smem[strip, rows] = part.astype(jnp.float16)
    plgpu.commit_smem()
    _meet()

    @pl.when(_is_issuer())
    def _issue() -> None:
        for strip in range(TILE_N // STRIP_N):
            target = refs.out_gmem.at[pl.ds(row, TILE_M), pl.ds(column + strip * STRIP_N, STRIP_N)]
            plgpu.copy_smem_to_gmem(refs.out_smem.at[strip], target)
