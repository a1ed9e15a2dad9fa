"""Matmul kernels of the published ladders, from one CTA that waits for every step to a persistent warp-specialised one.

A is (m, k) and B is (k, n). Each step of a ladder is one `Matmul`: which tile, how many stages and consumers, when a
slot is given back, in which order the tiles are computed, and how the result leaves.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from benchmarks.accuracy.pipelines import swizzled
from benchmarks.accuracy.tile_orders import along_hilbert_curve, in_groups, row_by_row

STRIP_N = 64
LANE_ARRIVAL_CYCLES = 2 * 120
"""What arrivals of all 128 lanes take longer than those of one, on two barriers: a round in which all lanes of a CTA
arrive and wait takes 218 cycles with 128 lanes, 226 with 256 (github hibouwu/CUDA_optimazation, gh200_sm90 EXP-11), so
it is latency that warpgroups do not share; here a round of one arrival takes 98."""

DEPENDENT_CYCLES = 4  # of a dependent multiplication (github hibouwu/CUDA_optimazation, gh200_sm90 R02)

SMEM_PER_SM_BYTES, SMEM_RESERVED_BYTES = 228 * 1024, 1024  # CUDA C++ Programming Guide, compute capability 9.0


@dataclasses.dataclass(frozen=True)
class Matmul:
    """One matmul kernel.

    Attributes:
      tile_m, tile_n, tile_k: tile of a CTA, and depth of a step.
      stages: slots of the ring.
      consumers: consumer warpgroups; 0 for a single warpgroup that loads, multiplies and stores.
      release_early: give slot k - 1 back when the wgmmas of step k are in the queue, instead of waiting for them all.
      num_ctas: CTAs of a persistent grid, each of which computes several tiles; None for one CTA for each tile.
      group_m, group_n: tiles are computed in groups of so many rows and columns of tiles; 0 for row after row.
      hilbert: tiles are computed along a Hilbert curve instead; a square number of them, a power of two on each side.
      cluster: CTAs of a cluster; they compute tiles below each other and share each tile of B by multicast. Orders
        then count the tiles of a cluster.
      tma_store: store through SMEM by TMA; otherwise each lane writes its own elements to GMEM.
      lane_arrivals: all lanes of all consumers arrive on `empty`, and on `full` before they wait for it, as with
        `cuda::barrier`; so the consumers run in step. The language has one arrival for a warpgroup. The other 127 of
        each barrier are work of `LANE_ARRIVAL_CYCLES`.
      resident_ctas: CTAs that an SM holds at most, where the registers of the original allow fewer than the estimate
        for this kernel; unused SMEM makes it so. 0 for as many as fit.
      joint_store: store by TMA strips of the whole tile, which all consumers write and one of them stores.
      handoff_cycles: what a consumer does between two tiles that the language does not charge.
    """

    tile_m: int
    tile_n: int
    tile_k: int = 64
    stages: int = 1
    consumers: int = 0
    release_early: bool = False
    num_ctas: int | None = None
    group_m: int = 0
    group_n: int = 0
    hilbert: bool = False
    cluster: int = 1
    tma_store: bool = False
    lane_arrivals: bool = False
    resident_ctas: int = 0
    joint_store: bool = False
    handoff_cycles: int = 0


def make_matmul(shape: Matmul, m: int, n: int, k: int, dtype: Any = jnp.bfloat16, out_dtype: Any = None) -> Any:
    """Returns the kernel for an (m, k) by (k, n) product."""
    tiles = (m // (shape.tile_m * shape.cluster)) * (n // shape.tile_n)
    workers = max(shape.consumers, 1)
    is_cluster = shape.cluster > 1
    empty = partial(plgpu.ClusterBarrier, collective_axes=("member",)) if is_cluster else plgpu.Barrier
    scratch = {
        "a_smem": swizzled(shape.stages, shape.tile_m, shape.tile_k, dtype=dtype),
        "b_smem": swizzled(shape.stages, shape.tile_k, shape.tile_n, dtype=dtype),
        "full": plgpu.Barrier(num_arrivals=2 + workers * shape.lane_arrivals, num_barriers=shape.stages),
        "empty": empty(num_arrivals=workers, num_barriers=shape.stages),
    }
    if shape.resident_ctas:
        scratch["unused_smem"] = plgpu.SMEM((_padding_bytes(shape),), jnp.int8)
    out_dtype = dtype if out_dtype is None else out_dtype
    if shape.joint_store:
        scratch["out_smem"] = swizzled(2, shape.tile_m, 128 // jnp.dtype(out_dtype).itemsize, dtype=out_dtype)
        scratch["together"] = plgpu.Barrier(num_arrivals=workers, num_barriers=2)
    elif shape.tma_store:
        scratch["out_smem"] = swizzled(workers, 2, shape.tile_m // workers, STRIP_N, dtype=out_dtype)
    return plgpu.kernel(
        partial(_body, shape=shape, k=k, n=n, num_tiles=tiles),
        out_type=jax.ShapeDtypeStruct((m, n), out_dtype),
        scratch_types=scratch,
        grid=(shape.num_ctas // shape.cluster if shape.num_ctas else tiles,),
        grid_names=("cta",),
        cluster=(shape.cluster,) if is_cluster else (),
        cluster_names=("member",) if is_cluster else (),
        num_threads=shape.consumers + 1 if shape.consumers else 1,
        thread_name="wg",
        name=f"matmul_{shape.tile_m}x{shape.tile_n}x{shape.tile_k}",
    )


@dataclasses.dataclass(frozen=True)
class _Refs:
    a_gmem: Any
    b_gmem: Any
    out_gmem: Any
    a_smem: Any
    b_smem: Any
    full: Any
    empty: Any
    out_smem: Any = None
    unused_smem: Any = None
    together: Any = None


def _padding_bytes(shape: Matmul) -> int:
    """Returns the SMEM that a CTA has to take besides its tiles, so that `resident_ctas` fit and one more does not."""
    tiles = 2 * shape.stages * shape.tile_k * (shape.tile_m + shape.tile_n)
    return (SMEM_PER_SM_BYTES // shape.resident_ctas - SMEM_RESERVED_BYTES - tiles) // 1024 * 1024 - 1024


def _body(
    a_gmem: Any, b_gmem: Any, out_gmem: Any, *, shape: Matmul, k: int, n: int, num_tiles: int, **scratch: Any
) -> None:
    refs = _Refs(a_gmem, b_gmem, out_gmem, **scratch)
    steps = k // shape.tile_k
    if not shape.consumers:
        _load_and_multiply(refs, shape, n, steps)
        return
    warpgroup, cta = lax.axis_index("wg"), lax.axis_index("cta")
    stride = shape.num_ctas // shape.cluster if shape.num_ctas else 1
    turns = -(-num_tiles // stride) if shape.num_ctas else 1

    def each_tile(run: Any) -> None:
        def turn(index: Any, _: None) -> None:
            tile = index * stride + cta
            row, column = _position(tile, shape, n)
            if num_tiles % stride or not shape.num_ctas:
                pl.when(tile < num_tiles)(lambda: run(index * steps, row, column))
            else:
                run(index * steps, row, column)

        if turns == 1:
            turn(0, None)
        else:
            lax.fori_loop(0, turns, turn, None)

    @pl.when(warpgroup == shape.consumers)
    def _produce() -> None:
        plgpu.set_max_registers(40, action="decrease")
        each_tile(partial(_load_tile, refs, shape, steps))
        if shape.cluster > 1:
            _await_peers(refs, shape, (num_tiles - cta + stride - 1) // stride * steps if shape.num_ctas else steps)

    @pl.when(warpgroup < shape.consumers)
    def _consume() -> None:
        plgpu.set_max_registers(232, action="increase")
        each_tile(partial(_multiply_tile, refs, shape, steps, warpgroup))
        if shape.joint_store:
            plgpu.wait_smem_to_gmem(0, wait_read_only=True)


def _position(number: Any, shape: Matmul, n: int) -> tuple[Any, Any]:
    """Returns first row and first column of a tile number."""
    columns = n // shape.tile_n
    if shape.hilbert:
        row, column = along_hilbert_curve(number, columns)
    elif shape.group_m:
        row, column = in_groups(number, columns, (shape.group_m, shape.group_n))
    else:
        row, column = row_by_row(number, columns)
    if shape.cluster > 1:
        row = row * shape.cluster + lax.axis_index("member")
    return row * shape.tile_m, column * shape.tile_n


def _load_and_multiply(refs: _Refs, shape: Matmul, n: int, steps: int) -> None:
    """One warpgroup does everything, one step after the other."""
    row, column = _position(lax.axis_index("cta"), shape, n)

    def accumulate(acc: Any) -> jax.Array:
        def step(index: Any, _: None) -> None:
            depth = pl.ds(index * shape.tile_k, shape.tile_k)
            a_tile = refs.a_gmem.at[pl.ds(row, shape.tile_m), depth]
            b_tile = refs.b_gmem.at[depth, pl.ds(column, shape.tile_n)]
            plgpu.copy_gmem_to_smem(a_tile, refs.a_smem.at[0], refs.full.at[0])
            plgpu.copy_gmem_to_smem(b_tile, refs.b_smem.at[0], refs.full.at[0])
            _arrive_lane_by_lane(refs.full.at[0], shape)
            plgpu.barrier_wait(refs.full.at[0])
            plgpu.wgmma(acc, refs.a_smem.at[0], refs.b_smem.at[0])
            plgpu.wgmma_wait(0)

        lax.fori_loop(0, steps, step, None)
        return acc[...]

    result = pl.run_scoped(accumulate, plgpu.ACC((shape.tile_m, shape.tile_n)))
    refs.out_gmem[pl.ds(row, shape.tile_m), pl.ds(column, shape.tile_n)] = result.astype(refs.out_gmem.dtype)


def _arrive_lane_by_lane(barrier: Any, shape: Matmul) -> None:
    if not shape.lane_arrivals:
        return
    _after(LANE_ARRIVAL_CYCLES, lambda: plgpu.barrier_arrive(barrier))  # the language has no such arrivals


def _after(cycles: int, run: Callable[[], Any]) -> None:
    """Runs what follows a chain of dependent multiplications, a value in each lane, which takes so many cycles."""
    values = lax.broadcast(lax.axis_index("cta").astype(jnp.float32), (128, 1))
    for _ in range(cycles // DEPENDENT_CYCLES):
        values = values * 1.5
    pl.when(values[0, 0] >= 0)(run)  # always; so that the products have a use


def _load_tile(refs: _Refs, shape: Matmul, steps: int, first_step: Any, row: Any, column: Any) -> None:
    lax.fori_loop(0, steps, lambda index, _: _load_step(refs, shape, first_step, index, row, column), None)


def _await_peers(refs: _Refs, shape: Matmul, num_steps: Any) -> None:
    """Waits until all slots are released: peers must not arrive at a CTA that has exited."""

    def wait(step: Any, _: None) -> None:
        plgpu.barrier_wait(refs.empty.at[lax.rem(step, shape.stages)])

    lax.fori_loop(jnp.maximum(num_steps - shape.stages, 0), num_steps, wait, None)


def _load_step(refs: _Refs, shape: Matmul, first_step: Any, index: Any, row: Any, column: Any) -> None:
    slot = lax.rem(first_step + index, shape.stages)
    pl.when(first_step + index >= shape.stages)(lambda: plgpu.barrier_wait(refs.empty.at[slot]))
    depth = pl.ds(index * shape.tile_k, shape.tile_k)
    a_tile = refs.a_gmem.at[pl.ds(row, shape.tile_m), depth]
    b_tile = refs.b_gmem.at[depth, pl.ds(column, shape.tile_n)]
    plgpu.copy_gmem_to_smem(a_tile, refs.a_smem.at[slot], refs.full.at[slot])
    shared = "member" if shape.cluster > 1 else None
    plgpu.copy_gmem_to_smem(b_tile, refs.b_smem.at[slot], refs.full.at[slot], collective_axes=shared)


def _multiply_tile(
    refs: _Refs, shape: Matmul, steps: int, warpgroup: Any, first_step: Any, row: Any, column: Any
) -> None:
    tile_rows = shape.tile_m // shape.consumers
    rows = pl.ds(warpgroup * tile_rows, tile_rows)
    if shape.handoff_cycles:
        pl.when(first_step > 0)(partial(_after, shape.handoff_cycles, plgpu.commit_smem))

    def accumulate(acc: Any) -> jax.Array:
        def step(index: Any, _: None) -> None:
            turn = first_step + index
            slot = lax.rem(turn, shape.stages)
            _arrive_lane_by_lane(refs.full.at[slot], shape)
            plgpu.barrier_wait(refs.full.at[slot])
            plgpu.wgmma(acc, refs.a_smem.at[slot, rows], refs.b_smem.at[slot])
            if shape.release_early:
                plgpu.wgmma_wait(1)
                previous = lax.rem(turn + shape.stages - 1, shape.stages)
                pl.when(index > 0)(lambda: plgpu.barrier_arrive(refs.empty.at[previous]))
            else:
                plgpu.wgmma_wait(0)
                plgpu.barrier_arrive(refs.empty.at[slot])

        lax.fori_loop(0, steps, step, None)
        result = acc[...]
        if shape.release_early:
            plgpu.barrier_arrive(refs.empty.at[lax.rem(first_step + steps - 1, shape.stages)])
        return result

    result = pl.run_scoped(accumulate, plgpu.ACC((tile_rows, shape.tile_n))).astype(refs.out_gmem.dtype)
    if shape.joint_store:
        _store_together(refs, shape, warpgroup, result, row, column)
        return
    first_row = row + warpgroup * tile_rows
    if not shape.tma_store:
        refs.out_gmem[pl.ds(first_row, tile_rows), pl.ds(column, shape.tile_n)] = result
        return
    for strip in range(shape.tile_n // STRIP_N):
        buffer = refs.out_smem.at[warpgroup, strip % 2]
        plgpu.wait_smem_to_gmem(1, wait_read_only=True)
        buffer[...] = result[:, strip * STRIP_N : (strip + 1) * STRIP_N]
        plgpu.commit_smem()
        target = refs.out_gmem.at[pl.ds(first_row, tile_rows), pl.ds(column + strip * STRIP_N, STRIP_N)]
        plgpu.copy_smem_to_gmem(buffer, target)
    if shape.num_ctas is None:
        plgpu.wait_smem_to_gmem(0)


def _store_together(
    refs: _Refs, shape: Matmul, warpgroup: Any, result: jax.Array, first_row: Any, first_column: Any
) -> None:
    """Stores a tile in strips by way of two buffers, with two barriers of the consumers for each strip."""
    width = refs.out_smem.shape[-1]
    own_rows = pl.ds(warpgroup * result.shape[0], result.shape[0])

    def meet(barrier: Any) -> None:
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)

    def store(buffer: Any, column: int) -> None:
        target = refs.out_gmem.at[pl.ds(first_row, shape.tile_m), pl.ds(first_column + column, width)]
        plgpu.copy_smem_to_gmem(buffer, target)
        plgpu.wait_smem_to_gmem(1, wait_read_only=True)

    for column in range(0, shape.tile_n, width):
        buffer = refs.out_smem.at[column // width % 2]
        buffer[own_rows] = result[:, column : column + width]
        plgpu.commit_smem()
        meet(refs.together.at[0])
        pl.when(warpgroup == 0)(partial(store, buffer, column))
        meet(refs.together.at[1])
