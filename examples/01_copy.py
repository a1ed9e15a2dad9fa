"""The smallest kernel that moves data: every CTA copies one tile through its shared memory.

The TMA engine copies in the background, so the kernel has to say when it depends on a copy: it waits on the barrier
that the load signals before it touches the tile, and makes its own writes visible with `commit_smem` before the store
reads them.

    python examples/01_copy.py
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu

TILE = 64


def double_body(x_gmem: Any, out_gmem: Any, *, tile_smem: Any, loaded: Any) -> None:
    """Doubles one tile."""
    rows = pl.ds(lax.axis_index("row") * TILE, TILE)
    columns = pl.ds(lax.axis_index("column") * TILE, TILE)

    plgpu.copy_gmem_to_smem(x_gmem.at[rows, columns], tile_smem, loaded)
    plgpu.barrier_wait(loaded)

    tile_smem[...] = tile_smem[...] * 2

    plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(tile_smem, out_gmem.at[rows, columns])
    plgpu.wait_smem_to_gmem(0)


def make_double(rows: int, columns: int, params: Any = None) -> Any:
    """Returns the JAX function `double(x)` for a float32 matrix."""
    return plgpu.kernel(
        double_body,
        out_type=jax.ShapeDtypeStruct((rows, columns), jnp.float32),
        scratch_types={"tile_smem": plgpu.SMEM((TILE, TILE), jnp.float32), "loaded": plgpu.Barrier()},
        grid=(rows // TILE, columns // TILE),
        grid_names=("row", "column"),
        compiler_params=params,
        name="double",
    )


def main(arguments: list[str] | None = None) -> None:
    """Runs the kernel and checks it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="rows and columns (default 1024)")
    size = parser.parse_args(arguments).size

    x = np.random.default_rng(0).standard_normal((size, size), np.float32)
    result = make_double(size, size)(x)

    np.testing.assert_array_equal(result, 2 * x)
    print(f"doubled {size} x {size} float32 in {(size // TILE) ** 2} tiles: equal to NumPy")


if __name__ == "__main__":
    main()
