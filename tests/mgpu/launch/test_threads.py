"""Kernels that run at once, in several Python threads, eagerly and inside jitted functions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mgpu
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from support.kernels import make_copy, make_map

ROUNDS = 3
X = np.arange(256 * 64, dtype=np.float32).reshape(256, 64)


def test_kernels_in_several_threads_do_not_wait_for_each_other(tmp_path: Path) -> None:
    record = mgpu.CompilerParams(profile_space=64, profile_dir=str(tmp_path / "together"))
    copy = make_copy(X.shape, 32, compiler_params=record, name="copy")
    double = make_map(lambda x: 2 * x, X.shape, jnp.float32)

    def chain(x: Any) -> Any:
        return jax.lax.fori_loop(0, 2, lambda _, y: double(copy(y)), x)

    tasks = [
        (copy, X),
        (jax.jit(copy), X),
        (jax.jit(lambda x: copy(x) + double(x)), 3 * X),
        (jax.jit(chain), 4 * X),
        (lambda x: double(copy(x)), 2 * X),
    ]

    def run(task: tuple[Any, np.ndarray]) -> None:
        function, expected = task
        for _ in range(ROUNDS):
            np.testing.assert_array_equal(np.asarray(function(X)), expected)

    with ThreadPoolExecutor(len(tasks)) as pool:
        futures = [pool.submit(run, task) for task in tasks]
        for future in futures:
            future.result(timeout=60)

    launches = list_launches(tmp_path / "together")
    assert len(launches) == ROUNDS * 6  # the chain copies twice
    # Beside each other, they take the same course as alone: only the number of the launch differs.
    captures = [recorded(path) for path in launches]
    assert all(capture == captures[0] for capture in captures)


def recorded(path: Path) -> list[bytes]:
    with np.load(path / CAPTURE_FILE) as arrays:
        return [arrays[name].tobytes() for name in sorted(arrays) if name != "header"]
