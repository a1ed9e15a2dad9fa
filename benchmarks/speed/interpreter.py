"""Times the `jax` package's Hopper matmul twice in one process: by this simulator, and by JAX's GPU interpret mode.

    python -m benchmarks.speed.interpreter [SIZE ...]

Both run warm, one after the other: ours through `mgpu.from_pallas`, with timing, recording and the default checks on.
JAX has the interpret mode from version 0.12 on. In two rounds, ours is called several times, as a call takes
milliseconds, and JAX's once; the best of each counts, since a machine may be slower in one minute than in the next.
Prints one JSON object for each size.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.pallas import mosaic_gpu
from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu

import mgpu
from mgpu.launch.device_choice import current_choice
from mgpu.launch.gpu_presence import as_if_on_gpu

CONFIG = hopper_matmul_mgpu.TuningConfig(128, 128, 64, max_concurrent_steps=4)
PROFILE_SPACE = 256
SIZES = (512, 1024)
REPEATS = 15
ROUNDS = 2


def compare(size: int) -> dict[str, Any]:
    """Times both on a product of two float16 matrices of `size` x `size`.

    Returns:
      `ours` and `jax`: seconds of wall time of a warm call; `ours_cpu` and `jax_cpu`: seconds of processor time;
      `ratio`: of the wall times; `ratio_cpu`: of the processor times.

    Raises:
      AssertionError: the two results differ by more than float16 rounding.
    """
    interpret_mode = getattr(mosaic_gpu, "force_gpu_interpret_mode", None)
    if interpret_mode is None:
        raise SystemExit(f"JAX {jax.__version__} has no GPU interpret mode: run this with JAX 0.12 or newer.")
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((size, size), dtype=np.float32).astype(jnp.float16) for _ in range(2))
    interpreted = jax.jit(lambda a, b: hopper_matmul_mgpu.matmul(a, b, None, CONFIG))

    def interpret() -> Any:
        with interpret_mode(), as_if_on_gpu(current_choice()):
            return interpreted(a, b)

    with tempfile.TemporaryDirectory() as directory:
        recorded = {"profile_space": PROFILE_SPACE, "profile_dir": directory}
        simulated = mgpu.from_pallas(hopper_matmul_mgpu.matmul, compiler_params=recorded)

        def simulate() -> Any:
            return simulated(a, b, None, CONFIG)

        result, expected = np.asarray(simulate()), np.asarray(interpret())
        rounds = [(_least(simulate, REPEATS), _least(interpret, 1)) for _ in range(ROUNDS)]
    ours, theirs = (tuple(map(min, zip(*times, strict=True))) for times in zip(*rounds, strict=True))
    np.testing.assert_allclose(
        result.astype(np.float32), expected.astype(np.float32), rtol=2**-9, atol=2**-10 * size**0.5
    )
    return {
        "size": size,
        "jax_version": jax.__version__,
        "ours": ours[0],
        "ours_cpu": ours[1],
        "jax": theirs[0],
        "jax_cpu": theirs[1],
        "ratio": theirs[0] / ours[0],
        "ratio_cpu": theirs[1] / ours[1],
    }


def _least(call: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Returns the least wall and processor seconds of so many calls."""
    seconds = []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        np.asarray(call())
        seconds.append((time.perf_counter() - wall, time.process_time() - processor))
    return min(wall for wall, _ in seconds), min(processor for _, processor in seconds)


if __name__ == "__main__":
    for size in map(int, sys.argv[1:] or SIZES):
        print(json.dumps(compare(size)), flush=True)
