"""FlashAttention-3's forward pass, with the parts that its ablation takes away.

arXiv 2407.08608, section 3 and table 2: each consumer warpgroup of a CTA computes 64 query rows, over key/value blocks
in two stages each; CTAs are persistent. Tiles are those of the authors' code (github Dao-AILab/flash-attention,
hopper/flash_fwd_launch_template.h, July 2024), and so is the order of loads and waits
(hopper/mainloop_fwd_sm90_tma_gmma_ws.hpp): keys are asked for a block ahead of values, the next tile's first keys
before its queries, and a tile is stored by way of the values' slots.

`ping_pong`: barriers let the consumers take turns on the tensor core, each with the value matmul of one block and the
score matmul of the next, so that one's softmax runs under the others' matmuls. `overlap`: a warpgroup's softmax of a
block runs under its own value matmul of the block before, which is issued after the scores and waited for after the
softmax. `specialised`: a producer warpgroup loads; without it the first consumer does, after a barrier of the CTA in
each block, as in a kernel that knows no slots to be released (FlashAttention-2).
"""

from __future__ import annotations

import dataclasses
import enum
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from benchmarks.accuracy.pipelines import swizzled

ROWS = 64
STAGES = 2
NUM_CTAS = 132


@dataclasses.dataclass(frozen=True)
class Attention:
    """One kernel.

    Attributes:
      head_dim: of queries, keys and values.
      consumers: consumer warpgroups.
      block: keys in a block. The last block of a length that is no multiple of it counts as a whole one: the original
        computes all of it, and masks.
      overlap, ping_pong, specialised: which of the techniques it uses.
    """

    head_dim: int = 128
    consumers: int = 2
    block: int = 176
    overlap: bool = True
    ping_pong: bool = True
    specialised: bool = True

    @property
    def scale(self) -> float:
        """Factor of the scores, for exponentials to base 2."""
        return math.log2(math.e) / math.sqrt(self.head_dim)


class _Met(enum.IntEnum):
    """What all consumers have done when they have arrived on one of the barriers `met`."""

    BLOCK_READ = 0
    VALUES_READ = 1
    OUT_STORED = 2


@dataclasses.dataclass(frozen=True)
class _Refs:
    q_gmem: Any
    k_gmem: Any
    v_gmem: Any
    out_gmem: Any
    q_smem: Any
    k_smem: Any
    v_smem: Any
    q_full: Any
    q_empty: Any
    k_full: Any
    v_full: Any
    k_empty: Any
    v_empty: Any
    turn: Any
    met: Any


def make_attention(shape: Attention, heads: int, length: int, dtype: Any = jnp.float16) -> Any:
    """Returns the kernel; q, k and v are (heads * length, head_dim), head after head."""
    consumers, head_dim = shape.consumers, shape.head_dim
    barrier = partial(plgpu.Barrier, num_barriers=STAGES)
    return plgpu.kernel(
        partial(_body, shape=shape, heads=heads, length=length),
        out_type=jax.ShapeDtypeStruct((heads * length, head_dim), dtype),
        scratch_types={
            "q_smem": swizzled(consumers, ROWS, head_dim, dtype=dtype),
            "k_smem": swizzled(STAGES, shape.block, head_dim, dtype=dtype),
            "v_smem": swizzled(STAGES, shape.block, head_dim, dtype=dtype),
            "q_full": plgpu.Barrier(num_barriers=consumers),
            "q_empty": plgpu.Barrier(num_barriers=consumers),
            "k_full": barrier(),
            "v_full": barrier(),
            "k_empty": barrier(num_arrivals=consumers),
            "v_empty": barrier(num_arrivals=consumers),
            "turn": plgpu.Barrier(num_barriers=consumers),
            "met": plgpu.Barrier(num_arrivals=consumers, num_barriers=len(_Met)),
        },
        grid=(NUM_CTAS,),
        grid_names=("cta",),
        num_threads=consumers + shape.specialised,
        thread_name="wg",
        compiler_params=plgpu.CompilerParams(approx_math=True),
        name="attention",
    )


def _body(
    q_gmem: Any, k_gmem: Any, v_gmem: Any, out_gmem: Any, *, shape: Attention, heads: int, length: int, **scratch: Any
) -> None:
    refs = _Refs(q_gmem, k_gmem, v_gmem, out_gmem, **scratch)
    warpgroup = lax.axis_index("wg")
    consumers = shape.consumers
    tiles_per_head = -(-length // (consumers * ROWS))
    num_tiles, num_blocks = heads * tiles_per_head, -(-length // shape.block)
    turns = -(-num_tiles // NUM_CTAS)

    def each_tile(run: Any) -> None:
        def turn(index: Any, _: None) -> None:
            tile = index * NUM_CTAS + lax.axis_index("cta")
            first_key = lax.div(tile, tiles_per_head) * length
            first_query = lax.rem(tile, tiles_per_head) * consumers * ROWS
            pl.when(tile < num_tiles)(lambda: run(index, first_query, first_key))

        lax.fori_loop(0, turns, turn, None)

    if shape.specialised:

        @pl.when(warpgroup == consumers)
        def _produce() -> None:
            plgpu.set_max_registers(24 if consumers == 2 else 32, action="decrease")
            each_tile(partial(_load_tile, refs, shape, num_blocks))

    @pl.when(warpgroup < consumers)
    def _consume() -> None:
        if shape.specialised:
            plgpu.set_max_registers(240 if consumers == 2 else 160, action="increase")
        if shape.ping_pong:
            pl.when(warpgroup == consumers - 1)(lambda: plgpu.barrier_arrive(refs.turn.at[0]))
        each_tile(partial(_attend_tile, refs, shape, num_blocks, length, warpgroup))


def _load_queries(refs: _Refs, first_row: Any) -> None:
    for consumer in range(refs.q_smem.shape[0]):
        rows = refs.q_gmem.at[pl.ds(first_row + consumer * ROWS, ROWS)]
        plgpu.copy_gmem_to_smem(rows, refs.q_smem.at[consumer], refs.q_full.at[consumer])


def _load_block(refs: _Refs, count: Any, row: Any, which: str) -> None:
    gmem, smem = getattr(refs, f"{which}_gmem"), getattr(refs, f"{which}_smem")
    full, empty = getattr(refs, f"{which}_full"), getattr(refs, f"{which}_empty")
    slot = lax.rem(count, STAGES)
    pl.when(count >= STAGES)(lambda: plgpu.barrier_wait(empty.at[slot]))
    plgpu.copy_gmem_to_smem(gmem.at[pl.ds(row, smem.shape[1])], smem.at[slot], full.at[slot])


def _load_tile(refs: _Refs, shape: Attention, num_blocks: int, turn: Any, first_query: Any, first_key: Any) -> None:
    first = turn * num_blocks
    _load_block(refs, first, first_key, "k")
    for consumer in range(shape.consumers):
        pl.when(turn > 0)(partial(plgpu.barrier_wait, refs.q_empty.at[consumer]))
    _load_queries(refs, first_key + first_query)
    pl.when(turn > 0)(lambda: plgpu.barrier_wait(refs.met.at[_Met.OUT_STORED]))

    def load(block: Any, _: None) -> None:
        row = first_key + block * shape.block
        _load_block(refs, first + block, row, "k")
        _load_block(refs, first + block - 1, row - shape.block, "v")

    lax.fori_loop(1, num_blocks, load, None)
    _load_block(refs, first + num_blocks - 1, first_key + (num_blocks - 1) * shape.block, "v")


def _softmax(scores: jax.Array, largest: jax.Array, total: jax.Array, scale: float) -> tuple[jax.Array, ...]:
    """Returns probabilities, and what rescales, the new running maximum and sum."""
    new_largest = jnp.maximum(largest, scores.max(axis=1) * scale)
    rescale = jnp.exp2(largest - new_largest)
    shifted = scores * scale - lax.broadcast_in_dim(new_largest, scores.shape, (0,))
    probabilities = jnp.exp2(shifted)
    return probabilities, rescale, new_largest, total * rescale + probabilities.sum(axis=1)


def _attend_tile(
    refs: _Refs,
    shape: Attention,
    num_blocks: int,
    length: int,
    warpgroup: Any,
    turn: Any,
    first_query: Any,
    first_key: Any,
) -> None:
    queries, dtype = refs.q_smem.at[warpgroup], refs.q_smem.dtype
    mine, other = refs.turn.at[warpgroup], refs.turn.at[lax.rem(warpgroup + 1, shape.consumers)]
    if not shape.specialised:
        is_later = jnp.logical_and(warpgroup == 0, turn > 0)
        pl.when(is_later)(lambda: plgpu.barrier_wait(refs.met.at[_Met.OUT_STORED]))
        pl.when(warpgroup == 0)(lambda: _load_queries(refs, first_key + first_query))
        load_ahead = partial(_load_ahead, refs, shape, num_blocks, turn, first_key, warpgroup)
        for which in ("k", "v"):
            for block in range(STAGES):
                load_ahead(which, block)
    else:
        load_ahead = None

    def take_turn() -> None:
        if shape.ping_pong:
            plgpu.barrier_wait(mine)

    def pass_turn() -> None:
        if shape.ping_pong:
            plgpu.barrier_arrive(other)

    plgpu.barrier_wait(refs.q_full.at[warpgroup])
    first = turn * num_blocks
    one_block = _overlapped_block if shape.overlap else _plain_block
    step = partial(one_block, refs, shape, queries, take_turn, pass_turn, load_ahead, first)
    zero = jnp.zeros((ROWS,), jnp.float32)
    carry = (jnp.zeros((ROWS, shape.head_dim), jnp.float32), jnp.full((ROWS,), -jnp.inf, jnp.float32), zero)
    take_turn()
    scores = _scores(refs, queries, lax.rem(first, STAGES))
    pass_turn()
    probabilities, rescale, largest, total = _softmax(scores, carry[1], carry[2], shape.scale)
    if load_ahead is not None:
        load_ahead("k", STAGES)
    carry = lax.fori_loop(1, num_blocks, step, (carry[0], largest, total, probabilities.astype(dtype), rescale))
    plgpu.barrier_arrive(refs.q_empty.at[warpgroup])
    take_turn()
    out = carry[0] * lax.broadcast_in_dim(carry[4], carry[0].shape, (0,))
    out = _add_values(refs, lax.rem(first + num_blocks - 1, STAGES), out, carry[3])
    pass_turn()
    result = (out * lax.broadcast_in_dim(1 / carry[2], out.shape, (0,))).astype(dtype)
    own_query = first_query + warpgroup * ROWS
    _store(refs, shape, warpgroup, result, first_key + own_query, own_query < length)


def _store(refs: _Refs, shape: Attention, warpgroup: Any, result: jax.Array, row: Any, is_inside: Any) -> None:
    """Stores a warpgroup's rows by way of the slots of the values, when all consumers have read these."""
    plgpu.barrier_arrive(refs.met.at[_Met.VALUES_READ])
    plgpu.barrier_wait(refs.met.at[_Met.VALUES_READ])
    in_slot = shape.block // ROWS
    place = refs.v_smem.at[lax.div(warpgroup, in_slot), pl.ds(lax.rem(warpgroup, in_slot) * ROWS, ROWS)]
    place[...] = result
    plgpu.commit_smem()
    pl.when(is_inside)(lambda: plgpu.copy_smem_to_gmem(place, refs.out_gmem.at[pl.ds(row, ROWS)]))
    plgpu.wait_smem_to_gmem(0, wait_read_only=True)
    plgpu.barrier_arrive(refs.met.at[_Met.OUT_STORED])


def _load_ahead(
    refs: _Refs, shape: Attention, num_blocks: int, turn: Any, first_key: Any, warpgroup: Any, which: str, block: Any
) -> None:
    @pl.when(jnp.logical_and(warpgroup == 0, block < num_blocks))
    def _load() -> None:
        _load_block(refs, turn * num_blocks + block, first_key + block * shape.block, which)


def _end_block(refs: _Refs, load_ahead: Any, keys: Any, values: Any) -> None:
    """Without a producer: waits until both warpgroups have read a block, and loads others in its place."""
    if load_ahead is not None:
        plgpu.barrier_arrive(refs.met.at[_Met.BLOCK_READ])
        plgpu.barrier_wait(refs.met.at[_Met.BLOCK_READ])
        load_ahead("k", keys)
        load_ahead("v", values)


def _scores(refs: _Refs, queries: Any, slot: Any) -> jax.Array:
    plgpu.barrier_wait(refs.k_full.at[slot])

    def multiply(acc: Any) -> jax.Array:
        plgpu.wgmma(acc, queries, plgpu.transpose_ref(refs.k_smem.at[slot], (1, 0)))
        return acc[...]

    scores = pl.run_scoped(multiply, plgpu.ACC((ROWS, refs.k_smem.shape[1])))
    plgpu.barrier_arrive(refs.k_empty.at[slot])
    return scores


def _add_values(refs: _Refs, slot: Any, out: jax.Array, probabilities: jax.Array) -> jax.Array:
    plgpu.barrier_wait(refs.v_full.at[slot])

    def multiply(acc: Any) -> None:
        plgpu.wgmma(acc, probabilities, refs.v_smem.at[slot])
        plgpu.wgmma_wait(0)

    start: Any = plgpu.ACC.init(out)
    out = pl.run_state(multiply)(start)
    plgpu.barrier_arrive(refs.v_empty.at[slot])
    return out


def _plain_block(
    refs: _Refs,
    shape: Attention,
    queries: Any,
    take_turn: Any,
    pass_turn: Any,
    load_ahead: Any,
    first: Any,
    block: Any,
    carry: Any,
) -> Any:
    """The values of the block before and the scores of this one, then the softmax."""
    out, largest, total, probabilities, rescale = carry
    slot, previous = lax.rem(first + block, STAGES), lax.rem(first + block - 1, STAGES)
    out = out * lax.broadcast_in_dim(rescale, out.shape, (0,))
    take_turn()
    out = _add_values(refs, previous, out, probabilities)
    scores = _scores(refs, queries, slot)
    pass_turn()
    probabilities, rescale, largest, total = _softmax(scores, largest, total, shape.scale)
    _end_block(refs, load_ahead, block + STAGES, block - 1 + STAGES)
    return out, largest, total, probabilities.astype(queries.dtype), rescale


def _overlapped_block(
    refs: _Refs,
    shape: Attention,
    queries: Any,
    take_turn: Any,
    pass_turn: Any,
    load_ahead: Any,
    first: Any,
    block: Any,
    carry: Any,
) -> Any:
    """Issues the scores of this block and the values of the one before, and does the softmax under the latter."""
    out, largest, total, probabilities, rescale = carry
    slot, previous = lax.rem(first + block, STAGES), lax.rem(first + block - 1, STAGES)

    def both(scores_acc: Any) -> Any:
        take_turn()
        plgpu.barrier_wait(refs.k_full.at[slot])
        plgpu.wgmma(scores_acc, queries, plgpu.transpose_ref(refs.k_smem.at[slot], (1, 0)))
        rescaled = out * lax.broadcast_in_dim(rescale, out.shape, (0,))

        def values(state: Any) -> None:
            acc, p_ref, rescale_ref, largest_ref, total_ref = state
            plgpu.barrier_wait(refs.v_full.at[previous])
            plgpu.wgmma(acc, p_ref[...], refs.v_smem.at[previous])
            pass_turn()
            scores = plgpu.wgmma_accumulator_load(scores_acc, wait_n=1)
            plgpu.barrier_arrive(refs.k_empty.at[slot])
            p, rescale_ref[...], largest_ref[...], total_ref[...] = _softmax(scores, largest, total, shape.scale)
            plgpu.wgmma_wait(0)
            p_ref[...] = p.astype(queries.dtype)

        state: Any = (plgpu.ACC.init(rescaled), probabilities, total, largest, total)
        return pl.run_state(values)(state)

    out, probabilities, rescale, largest, total = pl.run_scoped(both, plgpu.ACC((ROWS, shape.block)))
    plgpu.barrier_arrive(refs.v_empty.at[previous])
    _end_block(refs, load_ahead, block + STAGES, block - 1 + STAGES)
    return out, largest, total, probabilities, rescale
