"""The launches that are timed: a matmul of several sizes and JAX's causal attention, each in several modes."""

from __future__ import annotations

import dataclasses
import functools
import resource
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import mgpu
from benchmarks.accuracy.matmuls import Matmul, make_matmul
from benchmarks.speed.where import sample
from mgpu import InterpretGPUParams
from mgpu.devices import load_device
from mgpu.launch import operation
from mgpu.sim.simulation import RunResult, prepare, simulate

MATMUL = Matmul(128, 256, stages=3, consumers=2, release_early=True, tma_store=True)
ATTENTION_HEADS, HEAD_DIM = 16, 128
MODES: dict[str, dict[str, Any]] = {
    "values, default checks": {},
    "values, races in all CTAs": {"detect_races": True},
    "values, no race detection": {"detect_races": False},
    "time only": {"numerics": False},
}
REPEATS = {512: 20, 1024: 10, 2048: 3}
"""Runs of a small case, of which the fastest counts; larger ones run once."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One launch.

    Attributes:
      kernel: "matmul" of `size`^3, or "attention" of `size` queries and keys.
      size: see `kernel`.
      mode: key of `MODES`.
    """

    kernel: str
    size: int
    mode: str


CASES = [
    *[Case("matmul", size, mode) for size in (512, 1024, 2048) for mode in MODES],
    Case("matmul", 4096, "values, default checks"),
    Case("matmul", 4096, "values, races in all CTAs"),
    Case("matmul", 4096, "time only"),
    Case("matmul", 8192, "time only"),
    Case("attention", 1024, "values, default checks"),
    Case("attention", 2048, "values, default checks"),
    Case("attention", 4096, "values, default checks"),
]
PROFILED = [
    Case("matmul", 1024, "values, default checks"),
    Case("matmul", 4096, "values, default checks"),
    Case("matmul", 4096, "time only"),
    Case("attention", 2048, "values, default checks"),
]


def measure(case: Case) -> dict[str, Any]:
    """Runs a case in this process, warm: traced and compiled before.

    Returns:
      `seconds` of wall time and `cpu_seconds` of the process in the fastest run; `events` and `peak_bytes` of memory.
    """
    run = _LAUNCHES[case.kernel](case.size, MODES[case.mode])
    runs = [_timed(run) for _ in range(REPEATS.get(case.size, 1))]
    return {
        **dataclasses.asdict(case),
        "seconds": min(seconds for seconds, _, _ in runs),
        "cpu_seconds": min(seconds for _, seconds, _ in runs),
        "events": runs[0][2].events,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def profile(case: Case) -> dict[str, Any]:
    """Runs a case until there are samples enough, and returns the `shares` of processor time of each activity."""
    return {**dataclasses.asdict(case), "shares": sample(_LAUNCHES[case.kernel](case.size, MODES[case.mode]))}


def _timed(run: Callable[[], RunResult]) -> tuple[float, float, RunResult]:
    wall, processor = time.perf_counter(), time.process_time()
    result = run()
    return time.perf_counter() - wall, time.process_time() - processor, result


def _matmul(size: int, options: dict[str, Any]) -> Callable[[], RunResult]:
    dtype, generator = jnp.bfloat16, np.random.default_rng(0)
    operands = [np.zeros((size, size), dtype) for _ in range(2)]
    if options.get("numerics", True):
        operands = [generator.standard_normal((size, size), dtype=np.float32).astype(dtype) for _ in range(2)]
    program, consts = make_matmul(MATMUL, size, size, size)._program(jax.tree.structure(tuple(operands)), operands)
    device = load_device("h100")
    prepared = prepare(program, device, device.num_sms, InterpretGPUParams(**options))
    return lambda: simulate(prepared, consts, operands)


def _attention(length: int, options: dict[str, Any]) -> Callable[[], RunResult]:
    from jax.experimental.pallas.ops.gpu import attention_mgpu

    generator = np.random.default_rng(0)
    shape = (1, length, ATTENTION_HEADS, HEAD_DIM)
    operands = [generator.standard_normal(shape, dtype=np.float32).astype(np.float16) for _ in range(3)]
    config = attention_mgpu.TuningConfig(block_q=64, block_kv=128, max_concurrent_steps=2, causal=True)
    imported = mgpu.from_pallas(
        functools.partial(attention_mgpu.attention, config=config), interpret=InterpretGPUParams(**options)
    )
    # The imported function hands out arrays alone: the launch itself is noted on its way.
    launches: list[Callable[[], RunResult]] = []
    launch = operation.simulate

    def note(*arguments: Any) -> RunResult:
        launches.append(lambda: launch(*arguments))
        return launch(*arguments)

    operation.simulate = note
    try:
        jax.block_until_ready(imported(*operands))
    finally:
        operation.simulate = launch
    return launches[0]


_LAUNCHES = {"matmul": _matmul, "attention": _attention}
