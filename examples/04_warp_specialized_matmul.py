"""A warp-specialised Hopper matmul: one memory warpgroup feeds two compute warpgroups through a ring of SMEM slots.

Each CTA computes a tile of the result. The memory warpgroup loads the operand tiles of step k into slot k mod stages
and signals `full[slot]`; each compute warpgroup waits for it, multiplies its half of the rows with wgmma, and, once the
tensor core has read a slot, arrives on `empty[slot]`. The result leaves in column strips through two SMEM buffers.

    python examples/04_warp_specialized_matmul.py --profile-dir build/demo
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
import profiler

TILE_M, TILE_N, TILE_K = 128, 256, 64
STRIP_N = 64
COMPUTE_WARPGROUPS = 2
MEMORY_WARPGROUP = COMPUTE_WARPGROUPS


def matmul_body(
    a_gmem: Any,
    b_gmem: Any,
    out_gmem: Any,
    *,
    a_smem: Any,
    b_smem: Any,
    out_smem: Any,
    full: Any,
    empty: Any,
    stages: int,
    producer_delay_ns: int,
) -> None:
    """Computes one tile of `a @ b`."""
    row, column = lax.axis_index("m") * TILE_M, lax.axis_index("n") * TILE_N
    warpgroup = lax.axis_index("wg")
    steps = a_gmem.shape[1] // TILE_K

    @pl.when(warpgroup == MEMORY_WARPGROUP)
    def _load() -> None:
        plgpu.set_max_registers(40, action="decrease")

        def load_step(k: Any, _: None) -> None:
            slot = lax.rem(k, stages)
            pl.when(k >= stages)(lambda: plgpu.barrier_wait(empty.at[slot]))
            if producer_delay_ns:  # to see what a slow producer does to the pipeline
                pl.delay(producer_delay_ns)
            depth = pl.ds(k * TILE_K, TILE_K)
            plgpu.copy_gmem_to_smem(a_gmem.at[pl.ds(row, TILE_M), depth], a_smem.at[slot], full.at[slot])
            plgpu.copy_gmem_to_smem(b_gmem.at[depth, pl.ds(column, TILE_N)], b_smem.at[slot], full.at[slot])

        lax.fori_loop(0, steps, load_step, None)

    @pl.when(warpgroup < COMPUTE_WARPGROUPS)
    def _compute() -> None:
        plgpu.set_max_registers(232, action="increase")
        rows = pl.ds(warpgroup * 64, 64)

        def accumulate(acc: Any) -> jax.Array:
            def multiply_step(k: Any, _: None) -> None:
                slot = lax.rem(k, stages)
                plgpu.barrier_wait(full.at[slot])
                plgpu.wgmma(acc, a_smem.at[slot, rows], b_smem.at[slot])
                plgpu.wgmma_wait(1)  # the previous step's wgmma has read its slot
                pl.when(k > 0)(lambda: plgpu.barrier_arrive(empty.at[lax.rem(k - 1, stages)]))

            lax.fori_loop(0, steps, multiply_step, None)
            return acc[...]

        result = pl.run_scoped(accumulate, plgpu.ACC((64, TILE_N))).astype(out_gmem.dtype)
        with jax.named_scope("epilogue"):
            for strip in range(TILE_N // STRIP_N):
                buffer = out_smem.at[warpgroup, strip % 2]
                plgpu.wait_smem_to_gmem(1, wait_read_only=True)
                buffer[...] = result[:, strip * STRIP_N : (strip + 1) * STRIP_N]
                plgpu.commit_smem()
                target = out_gmem.at[pl.ds(row + warpgroup * 64, 64), pl.ds(column + strip * STRIP_N, STRIP_N)]
                plgpu.copy_smem_to_gmem(buffer, target)
            plgpu.wait_smem_to_gmem(0)


def make_matmul(
    m: int, n: int, *, stages: int = 3, producer_delay_ns: int = 0, params: Any = None, interpret: Any = None
) -> Any:
    """Returns the JAX function `matmul(a, b)` for an m x n result; a and b are bfloat16.

    A slot is released one step after its wgmma was issued, so the ring needs at least two stages.
    """
    if stages < 2:
        raise ValueError(f"stages={stages}: the ring needs at least 2, since a slot is released one step late.")

    def swizzled(*shape: int) -> Any:
        tiling = plgpu.TilingTransform((8, 64))
        return plgpu.SMEM(shape, jnp.bfloat16, transforms=(tiling, plgpu.SwizzleTransform(128)))

    return plgpu.kernel(
        partial(matmul_body, stages=stages, producer_delay_ns=producer_delay_ns),
        out_type=jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
        scratch_types={
            "a_smem": swizzled(stages, TILE_M, TILE_K),
            "b_smem": swizzled(stages, TILE_K, TILE_N),
            "out_smem": swizzled(COMPUTE_WARPGROUPS, 2, 64, STRIP_N),
            "full": plgpu.Barrier(num_arrivals=2, num_barriers=stages),
            "empty": plgpu.Barrier(num_arrivals=COMPUTE_WARPGROUPS, num_barriers=stages),
        },
        grid=(m // TILE_M, n // TILE_N),
        grid_names=("m", "n"),
        num_threads=COMPUTE_WARPGROUPS + 1,
        thread_name="wg",
        compiler_params=params,
        interpret=interpret,
        name="matmul",
    )


def main(arguments: list[str] | None = None) -> None:
    """Runs the matmul, checks it against NumPy, and reports where the time went."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=2048, help="M, N and K (default 2048)")
    parser.add_argument("--stages", type=int, default=3, help="slots of the ring (default 3)")
    parser.add_argument("--producer-delay-ns", type=int, default=0, help="pause before each load, to see its effect")
    parser.add_argument("--profile-space", type=int, default=512, help="events per warpgroup (default 512)")
    parser.add_argument("--profile-dir", default="build/profile", help="where the profile goes")
    options = parser.parse_args(arguments)

    size = options.size
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((size, size)).astype(jnp.bfloat16) for _ in range(2))
    params = plgpu.CompilerParams(profile_space=options.profile_space, profile_dir=options.profile_dir)
    matmul = make_matmul(size, size, stages=options.stages, producer_delay_ns=options.producer_delay_ns, params=params)
    result = np.asarray(matmul(a, b)).astype(np.float32)

    expected = a.astype(np.float32) @ b.astype(np.float32)
    # bfloat16 keeps 8 bits: half a unit in the last place of the result, plus the sum's own rounding.
    tolerance = 2**-8 * np.abs(expected) + 1e-5 * math.sqrt(size)
    worst = float((np.abs(result - expected) / tolerance).max())
    assert worst <= 1, f"result differs from NumPy by {worst:.2f} times the tolerance"
    print(f"matmul {size} x {size} x {size} bf16: equal to NumPy in float32 within bfloat16 rounding\n")
    print(profiler.summarise(options.profile_dir))


if __name__ == "__main__":
    main()
