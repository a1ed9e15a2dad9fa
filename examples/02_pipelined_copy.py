"""The same work in a pipeline: each CTA goes through many tiles and loads ahead of the one it works on.

With one slot, every step waits for its load and then for its store. With several, the loads of the coming steps and the
stores of the past ones are in flight while a step computes, and the memory system never idles.

    python examples/02_pipelined_copy.py
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import mgpu as plgpu
import profiler

TILE = 64


def make_double(rows: int, columns: int, *, slots: int, params: Any = None) -> Any:
    """Returns the JAX function `double(x)`: a CTA for each row of tiles, with `slots` tiles in flight."""

    def double_row(x_gmem: Any, out_gmem: Any) -> None:
        row = lax.axis_index("row")

        def double_tile(_: Any, x_smem: Any, out_smem: Any) -> None:
            out_smem[...] = x_smem[...] * 2

        tile = plgpu.BlockSpec((TILE, TILE), lambda column: (row, column))
        pipeline = plgpu.emit_pipeline(
            double_tile, grid=(columns // TILE,), in_specs=[tile], out_specs=[tile], max_concurrent_steps=slots
        )
        pipeline(x_gmem, out_gmem)

    return plgpu.kernel(
        double_row,
        out_type=jax.ShapeDtypeStruct((rows, columns), jnp.float32),
        grid=(rows // TILE,),
        grid_names=("row",),
        compiler_params=params,
        name="double",
    )


def measure_cycles(x: np.ndarray, slots: int) -> int:
    """Runs the kernel, checks it, and returns how many cycles it took."""
    with tempfile.TemporaryDirectory() as directory:
        params = plgpu.CompilerParams(profile_space=512, profile_dir=directory)
        result = make_double(*x.shape, slots=slots, params=params)(x)
        np.testing.assert_array_equal(result, 2 * x)
        tracks = profiler.open(directory)[-1].load_capture().tracks
    return int(tracks["clock_end"].max() - tracks["clock_begin"].min())


def main(arguments: list[str] | None = None) -> None:
    """Runs the pipeline with more and more slots, and compares the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=1024, help="rows and columns (default 1024)")
    parser.add_argument("--cycles", action="store_true", help="print the cycles of each run")
    options = parser.parse_args(arguments)

    x = np.random.default_rng(0).standard_normal((options.size, options.size), np.float32)
    print(f"doubling {options.size} x {options.size} float32 on {options.size // TILE} CTAs")
    previous = 0
    for slots in (1, 2, 4):
        cycles = measure_cycles(x, slots)
        text = f"{slots} in flight: equal to NumPy"
        if previous:
            text += f", {'faster' if cycles < previous else 'not faster'} than with {slots // 2}"
        print(text + (f"  ({cycles:,} cycles)" if options.cycles else ""))
        previous = cycles


if __name__ == "__main__":
    main()
