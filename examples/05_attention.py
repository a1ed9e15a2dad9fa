"""FlashAttention-3's forward pass, in ping-pong: one warpgroup's softmax runs under the other's matmuls.

Each CTA attends with the queries of two compute warpgroups, 64 each, of one head. The memory warpgroup brings blocks of
keys and values through two rings of SMEM slots, the last block first. A compute warpgroup keeps its output, running
maximum and running sum in registers: new scores rescale what the blocks before gave (online softmax). In a step, it
multiplies the queries by a block of keys, and the probabilities of the block before by its values; then comes the
softmax of the new scores, during which the tensor core gets nothing from it. So the two take turns: `turn[w]` lets w
multiply. A single compute warpgroup leaves the tensor core idle meanwhile, which is what the last lines compare.

The algorithm is that of FlashAttention-3 (arXiv 2407.08608, section 3.1), without the overlap inside a warpgroup.

    python examples/05_attention.py --causal
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
import profiler

HEAD_DIM = 128
ROWS = 64
BLOCK = 128  # keys of a step
STAGES = 2
# Softmax is of q k^T / sqrt(HEAD_DIM); the hardware has exp2, hence log2(e).
SCALE = math.log2(math.e) / math.sqrt(HEAD_DIM)


def load_blocks(refs: SimpleNamespace, head: Any, first_query: Any, steps: Any) -> None:
    """Runs the memory warpgroup: the queries once, then keys and values as slots become free."""
    plgpu.set_max_registers(40, action="decrease")
    for warpgroup in range(refs.q_smem.shape[0]):
        rows = pl.ds(first_query + warpgroup * ROWS, ROWS)
        plgpu.copy_gmem_to_smem(refs.q_gmem.at[head, rows], refs.q_smem.at[warpgroup], refs.q_full.at[warpgroup])

    def load_step(step: Any, _: None) -> None:
        slot, rows = lax.rem(step, STAGES), pl.ds((steps - 1 - step) * BLOCK, BLOCK)
        pl.when(step >= STAGES)(lambda: plgpu.barrier_wait(refs.k_empty.at[slot]))
        plgpu.copy_gmem_to_smem(refs.k_gmem.at[head, rows], refs.k_smem.at[slot], refs.k_full.at[slot])
        pl.when(step >= STAGES)(lambda: plgpu.barrier_wait(refs.v_empty.at[slot]))
        plgpu.copy_gmem_to_smem(refs.v_gmem.at[head, rows], refs.v_smem.at[slot], refs.v_full.at[slot])

    lax.fori_loop(0, steps, load_step, None)


def across(of_row: jax.Array, columns: int) -> jax.Array:
    """Repeats each row's value along the row."""
    return lax.broadcast_in_dim(of_row, (ROWS, columns), (0,))


def hide_later_keys(scores: jax.Array, first_query: Any, first_key: Any) -> jax.Array:
    """Masks a block of scores for causal attention: a query sees its own key and those before it."""
    query = plgpu.broadcasted_iota(jnp.int32, scores.shape, 0, layout=plgpu.Layout.WGMMA) + first_query
    key = plgpu.broadcasted_iota(jnp.int32, scores.shape, 1, layout=plgpu.Layout.WGMMA) + first_key
    return jnp.where(query >= key, scores, -jnp.inf)


def online_softmax(scores: jax.Array, out: jax.Array, largest: jax.Array, total: jax.Array) -> tuple[jax.Array, ...]:
    """Adds a block of scores to the running softmax.

    Args:
      scores: (ROWS, BLOCK) float32.
      out, largest, total: output (ROWS, HEAD_DIM), largest scaled score and sum of each row, of the blocks before.

    Returns:
      The block's probabilities in bfloat16, and the new out, largest and total, all relative to the new largest.
    """
    with jax.named_scope("softmax"):
        new_largest = jnp.maximum(largest, scores.max(axis=1) * SCALE)
        probabilities = jnp.exp2(scores * SCALE - across(new_largest, BLOCK))
        rescale = jnp.exp2(largest - new_largest)
        total = total * rescale + probabilities.sum(axis=1)
        return probabilities.astype(jnp.bfloat16), out * across(rescale, HEAD_DIM), new_largest, total


def attend(refs: SimpleNamespace, warpgroup: Any, first_query: Any, steps: Any, *, causal: bool) -> jax.Array:
    """Runs one compute warpgroup; returns its rows of the output."""
    plgpu.set_max_registers(232, action="increase")
    row_layout = plgpu.Layout.WGMMA.reduce(1)
    in_turns = refs.q_smem.shape[0] == 2

    def start_scores(acc: Any, step: Any) -> None:
        slot = lax.rem(step, STAGES)
        plgpu.barrier_wait(refs.k_full.at[slot])
        plgpu.wgmma(acc, refs.q_smem.at[warpgroup], plgpu.transpose_ref(refs.k_smem.at[slot], (1, 0)))

    def start_values(acc: Any, step: Any, probabilities: jax.Array) -> None:
        slot = lax.rem(step, STAGES)
        plgpu.barrier_wait(refs.v_full.at[slot])
        plgpu.wgmma(acc, probabilities, refs.v_smem.at[slot])

    @contextmanager
    def my_turn() -> Iterator[None]:
        """Lets only this warpgroup issue wgmmas. They run in order, so the other's may queue behind them."""
        if in_turns:
            plgpu.barrier_wait(refs.turn.at[warpgroup])
        yield
        if in_turns:
            plgpu.barrier_arrive(refs.turn.at[1 - warpgroup])
        plgpu.wgmma_wait(0)

    def first_scores(acc: Any) -> jax.Array:
        with my_turn():
            start_scores(acc, 0)
        plgpu.barrier_arrive(refs.k_empty.at[0])
        return acc[...]

    def one_step(step: Any, carry: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        probabilities, out, largest, total = carry

        def multiply(accumulators: Any) -> None:
            scores_acc, out_acc = accumulators
            with my_turn():
                start_scores(scores_acc, step)
                start_values(out_acc, step - 1, probabilities)
            plgpu.barrier_arrive(refs.k_empty.at[lax.rem(step, STAGES)])
            plgpu.barrier_arrive(refs.v_empty.at[lax.rem(step - 1, STAGES)])

        zeros = plgpu.layout_cast(jnp.zeros((ROWS, BLOCK), jnp.float32), plgpu.Layout.WGMMA)
        products: Any = pl.run_state(multiply)((plgpu.ACC.init(zeros), plgpu.ACC.init(out)))
        scores, out = products
        return online_softmax(scores, out, largest, total)

    def last_values(acc: Any, probabilities: jax.Array) -> None:
        with my_turn():
            start_values(acc, steps - 1, probabilities)

    if in_turns:
        pl.when(warpgroup == 1)(lambda: plgpu.barrier_arrive(refs.turn.at[0]))
    plgpu.barrier_wait(refs.q_full.at[warpgroup])
    scores = pl.run_scoped(first_scores, plgpu.ACC((ROWS, BLOCK)))
    if causal:
        scores = hide_later_keys(scores, first_query, (steps - 1) * BLOCK)
    out = plgpu.layout_cast(jnp.zeros((ROWS, HEAD_DIM), jnp.float32), plgpu.Layout.WGMMA)
    largest = plgpu.layout_cast(jnp.full((ROWS,), -jnp.inf, jnp.float32), row_layout)
    total = plgpu.layout_cast(jnp.zeros((ROWS,), jnp.float32), row_layout)
    carry = online_softmax(scores, out, largest, total)
    probabilities, out, _, total = lax.fori_loop(1, steps, one_step, carry)
    weighted: Any = pl.run_state(partial(last_values, probabilities=probabilities))(plgpu.ACC.init(out))
    return weighted / across(total, HEAD_DIM)


def attention_body(q_gmem: Any, k_gmem: Any, v_gmem: Any, out_gmem: Any, *, causal: bool, **scratch: Any) -> None:
    """Computes the output of one tile of queries."""
    refs = SimpleNamespace(q_gmem=q_gmem, k_gmem=k_gmem, v_gmem=v_gmem, **scratch)
    compute_warpgroups = refs.q_smem.shape[0]
    head, warpgroup = lax.axis_index("head"), lax.axis_index("wg")
    first_query = lax.axis_index("tile") * compute_warpgroups * ROWS
    last_query = first_query + compute_warpgroups * ROWS - 1
    steps = last_query // BLOCK + 1 if causal else k_gmem.shape[1] // BLOCK

    @pl.when(warpgroup == compute_warpgroups)
    def _load() -> None:
        load_blocks(refs, head, first_query, steps)

    @pl.when(warpgroup < compute_warpgroups)
    def _compute() -> None:
        my_first_query = first_query + warpgroup * ROWS
        out = attend(refs, warpgroup, my_first_query, steps, causal=causal)
        buffer = refs.q_smem.at[warpgroup]  # the queries have been read
        buffer[...] = out.astype(out_gmem.dtype)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(buffer, out_gmem.at[head, pl.ds(my_first_query, ROWS)])
        plgpu.wait_smem_to_gmem(0)


def make_attention(
    heads: int,
    length: int,
    *,
    causal: bool = False,
    compute_warpgroups: int = 2,
    params: Any = None,
    interpret: Any = None,
) -> Any:
    """Returns the JAX function `attention(q, k, v)`, all of them and the result (heads, length, 128) bfloat16.

    Two compute warpgroups work in ping-pong; a single one has nobody to take turns with.
    """
    if length % BLOCK:
        raise ValueError(f"length={length}: must be a multiple of {BLOCK}, the keys of a step.")
    if compute_warpgroups not in (1, 2):
        raise ValueError(f"compute_warpgroups={compute_warpgroups}: must be 1 or 2, who take turns.")

    def swizzled(*shape: int) -> Any:
        tiling = plgpu.TilingTransform((8, 64))
        return plgpu.SMEM(shape, jnp.bfloat16, transforms=(tiling, plgpu.SwizzleTransform(128)))

    def released() -> Any:
        return plgpu.Barrier(num_arrivals=compute_warpgroups, num_barriers=STAGES)

    return plgpu.kernel(
        partial(attention_body, causal=causal),
        out_type=jax.ShapeDtypeStruct((heads, length, HEAD_DIM), jnp.bfloat16),
        scratch_types={
            "q_smem": swizzled(compute_warpgroups, ROWS, HEAD_DIM),
            "k_smem": swizzled(STAGES, BLOCK, HEAD_DIM),
            "v_smem": swizzled(STAGES, BLOCK, HEAD_DIM),
            "q_full": plgpu.Barrier(num_barriers=compute_warpgroups),
            "k_full": plgpu.Barrier(num_barriers=STAGES),
            "v_full": plgpu.Barrier(num_barriers=STAGES),
            "k_empty": released(),
            "v_empty": released(),
            "turn": plgpu.Barrier(num_barriers=compute_warpgroups),
        },
        grid=(heads, length // (compute_warpgroups * ROWS)),
        grid_names=("head", "tile"),
        num_threads=compute_warpgroups + 1,
        thread_name="wg",
        compiler_params=params,
        interpret=interpret,
        name="attention",
    )


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, *, causal: bool) -> tuple[np.ndarray, np.ndarray]:
    """Returns attention in float32 by NumPy, and by how much a bfloat16 kernel may differ from it."""
    q, k, v = (x.astype(np.float32) for x in (q, k, v))
    scores = q @ k.swapaxes(1, 2) / math.sqrt(HEAD_DIM)
    if causal:
        scores = np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf)
    probabilities = np.exp(scores - scores.max(axis=2, keepdims=True))
    probabilities /= probabilities.sum(axis=2, keepdims=True)
    expected = probabilities @ v
    # bfloat16 keeps 8 bits: half a unit in the last place of each probability and of the result, and float32 noise.
    return expected, 2**-8 * (probabilities @ np.abs(v) + np.abs(expected)) + 1e-5


def main(arguments: list[str] | None = None) -> None:
    """Runs attention with one and two compute warpgroups, checks it, and compares how they use the tensor core."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=1, help="heads (default 1)")
    parser.add_argument("--length", type=int, default=512, help="queries, and keys (default 512)")
    parser.add_argument("--causal", action="store_true", help="a query sees no later key")
    options = parser.parse_args(arguments)

    generator = np.random.default_rng(0)
    shape = (options.heads, options.length, HEAD_DIM)
    q, k, v = (generator.standard_normal(shape).astype(jnp.bfloat16) for _ in range(3))
    expected, tolerance = reference(q, k, v, causal=options.causal)
    print(f"{'causal ' * options.causal}attention {' x '.join(map(str, shape))} bf16")
    for count, name in ((1, "one compute warpgroup"), (2, "two in ping-pong")):
        with tempfile.TemporaryDirectory() as directory:
            params = plgpu.CompilerParams(approx_math=True, profile_space=512, profile_dir=directory)
            attention = make_attention(
                options.heads, options.length, causal=options.causal, compute_warpgroups=count, params=params
            )
            result = np.asarray(attention(q, k, v)).astype(np.float32)
            report = profiler.build_report(profiler.open(directory)[-1].load_trace())
        assert (np.abs(result - expected) <= tolerance).all(), f"{name}: differs from NumPy"
        sms = report.bubbles.sms
        in_use = int((sms["last_use"] - sms["first_use"]).sum())
        busy = int(sms["busy_cycles"].sum()) / in_use
        print(f"{name}: equal to NumPy within bfloat16 rounding")
        print(f"  tensor core {busy:.0%} busy between its first and last use; bubbles (cycles of all SMs):")
        for row in report.bubbles.groups.head(2).iter_rows(named=True):
            print(
                f"  {row['total_cycles']:>8,}  {', '.join(filter(None, (row['cause'], row['detail'], row['source'])))}"
            )


if __name__ == "__main__":
    main()
