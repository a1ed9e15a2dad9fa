"""A Hopper matmul in one warpgroup: a pipeline feeds the tensor core.

`emit_pipeline` loads the operand tiles ahead. Each step starts a wgmma and waits for that of the step before: so there
is always one in flight, and its operands must stay where they are for one step longer, which is what `delay_release=1`
says.

    python examples/03_matmul.py
"""

from __future__ import annotations

import argparse
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu

TILE_M, TILE_N, TILE_K = 64, 128, 64
TRANSFORMS = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))


def matmul_body(a_gmem: Any, b_gmem: Any, out_gmem: Any, *, out_smem: Any, slots: int) -> None:
    """Computes one tile of `a @ b`."""
    m, n = lax.axis_index("m"), lax.axis_index("n")

    def accumulate(acc: Any) -> jax.Array:
        def multiply_step(_: Any, a_smem: Any, b_smem: Any) -> None:
            plgpu.wgmma(acc, a_smem, b_smem)
            plgpu.wgmma_wait(1)

        pipeline = plgpu.emit_pipeline(
            multiply_step,
            grid=(a_gmem.shape[1] // TILE_K,),
            in_specs=[
                plgpu.BlockSpec((TILE_M, TILE_K), lambda k: (m, k), transforms=TRANSFORMS, delay_release=1),
                plgpu.BlockSpec((TILE_K, TILE_N), lambda k: (k, n), transforms=TRANSFORMS, delay_release=1),
            ],
            max_concurrent_steps=slots,
        )
        pipeline(a_gmem, b_gmem)
        return acc[...]

    result = pl.run_scoped(accumulate, plgpu.ACC((TILE_M, TILE_N)))
    out_smem[...] = result.astype(out_gmem.dtype)
    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(out_smem, out_gmem.at[pl.ds(m * TILE_M, TILE_M), pl.ds(n * TILE_N, TILE_N)])
    plgpu.wait_smem_to_gmem(0)


def make_matmul(m: int, n: int, *, slots: int = 4, params: Any = None) -> Any:
    """Returns the JAX function `matmul(a, b)` for an m x n result; a and b are bfloat16."""

    def body(*gmem: Any, out_smem: Any) -> None:
        matmul_body(*gmem, out_smem=out_smem, slots=slots)

    return plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((m, n), jnp.bfloat16),
        scratch_types={"out_smem": plgpu.SMEM((TILE_M, TILE_N), jnp.bfloat16, transforms=TRANSFORMS)},
        grid=(m // TILE_M, n // TILE_N),
        grid_names=("m", "n"),
        compiler_params=params,
        name="matmul",
    )


def main(arguments: list[str] | None = None) -> None:
    """Runs the matmul and checks it against NumPy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="M, N and K (default 512)")
    size = parser.parse_args(arguments).size

    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((size, size)).astype(jnp.bfloat16) for _ in range(2))
    result = np.asarray(make_matmul(size, size)(a, b)).astype(np.float32)

    expected = a.astype(np.float32) @ b.astype(np.float32)
    # bfloat16 keeps 8 bits: half a unit in the last place of the result, plus the sum's own rounding.
    tolerance = 2**-8 * np.abs(expected) + 1e-5 * math.sqrt(size)
    assert (np.abs(result - expected) <= tolerance).all()
    print(f"matmul {size} x {size} x {size} bf16: equal to NumPy in float32 within bfloat16 rounding")


if __name__ == "__main__":
    main()
