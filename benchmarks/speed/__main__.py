"""Measures warm simulated runs of a warp-specialised matmul, saves them, and rewrites docs/performance.md."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.accuracy.matmuls import Matmul, make_matmul
from benchmarks.dashboard.section import dashboard_section
from mgpu import InterpretGPUParams
from mgpu.devices import load_device
from mgpu.sim.simulation import RunResult, prepare, simulate

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results.json"
PAGE = HERE.parents[1] / "docs" / "performance.md"
COMPARED_SIZES = (512, 1024)
KERNEL = Matmul(128, 256, stages=3, consumers=2, release_early=True, tma_store=True)
MODES: dict[str, dict[str, Any]] = {
    "values, default checks": {},
    "values, races in all CTAs": {"detect_races": True},
    "values, no race detection": {"detect_races": False},
    "time only": {"numerics": False},
}
CASES = [
    *[(size, mode) for size in (512, 1024, 2048) for mode in MODES],
    (4096, "values, default checks"),
    (4096, "time only"),
    (8192, "time only"),
]

_HEAD = """# How fast kernels are simulated

Written by `python -m benchmarks.speed`; do not edit. A warp-specialised bf16 matmul of `size`^3 (tiles of
128 x 256 x 64, three stages, TMA stores) on the simulated H100, warm: traced and compiled before. Seconds belong to
the machine below and to whatever else ran on it.
"""

_COMPARISON = """
## Against JAX's own interpreter

The `jax` package's `hopper_matmul_mgpu`, float16, tiles of 128 x 128 x 64 for each of two warpgroups and four slots,
through `mgpu.from_pallas` with timing, recording and the default checks, against the same function under
`force_gpu_interpret_mode`: one process, both warm (`python -m benchmarks.speed.interpreter`). On a busy machine the
ratio of processor seconds says more than that of wall seconds.

| size | mgpu, s | JAX, s | ratio | mgpu, CPU s | JAX, CPU s | ratio of CPU s |
|---:|---:|---:|---:|---:|---:|---:|"""

_TAIL = """
## Where the time goes

With values, the tiles' matrix products (BLAS on one thread: several threads spin against each other on products
this small) come on top of generated code, landing copies and the event queue; the split was not measured.
Time only, it is the event queue and
the look-up of blocks in L2. Cost grows with the number of events.

## Race detection

By default the first four CTAs of a launch are watched, which costs a test for each access elsewhere. With
`detect_races=True` every CTA is: each access is compared with the last ones to overlapping regions, and clocks are
joined at every arrival and wait.
"""


def measure(size: int, mode: str) -> dict[str, Any]:
    """Runs one case in this process and returns its figures."""
    dtype = jnp.bfloat16
    generator = np.random.default_rng(0)
    operands = [np.zeros((size, size), dtype) for _ in range(2)]
    if MODES[mode].get("numerics", True):
        operands = [generator.standard_normal((size, size), dtype=np.float32).astype(dtype) for _ in range(2)]
    program, consts = make_matmul(KERNEL, size, size, size)._program(jax.tree.structure(tuple(operands)), operands)
    device = load_device("h100")
    prepared = prepare(program, device, device.num_sms, InterpretGPUParams(**MODES[mode]))
    runs = [_timed(lambda: simulate(prepared, consts, operands)) for _ in range(3 if size <= 1024 else 1)]
    result = runs[0][1]
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {
        "size": size,
        "mode": mode,
        "seconds": min(seconds for seconds, _ in runs),
        "events": result.events,
        "peak_bytes": peak_bytes,
        "races": len(result.races),
    }


def _timed(run: Callable[[], RunResult]) -> tuple[float, RunResult]:
    begin = time.perf_counter()
    result = run()
    return time.perf_counter() - begin, result


def _measure_apart(size: int, mode: str) -> dict[str, Any]:
    """Runs a case in a process of its own, so that the peak of memory is its own."""
    command = [sys.executable, "-m", "benchmarks.speed", "--case", str(size), mode]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE.parents[1])
    return json.loads(done.stdout.splitlines()[-1])


def compare_with_jax(python: str) -> list[dict[str, Any]]:
    """Times JAX's GPU interpret mode beside the simulator, in one process of `python`, which needs JAX 0.12."""
    command = [python, "-m", "benchmarks.speed.interpreter", *map(str, COMPARED_SIZES)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE.parents[1])
    return [json.loads(line) for line in done.stdout.splitlines()]


def write_page(rows: list[dict[str, Any]], compared: list[dict[str, Any]], machine: str) -> None:
    """Writes docs/performance.md from measured rows."""
    lines = [_HEAD, f"Machine: {machine}.", ""]
    lines += ["| size | mode | seconds | events | events per second | peak memory |", "|---:|---|---:|---:|---:|---:|"]
    for row in rows:
        rate, gibibytes = row["events"] / row["seconds"], row["peak_bytes"] / 2**30
        figures = f"{row['seconds']:.3g} | {row['events']:,} | {rate:,.0f} | {gibibytes:.2f} GiB"
        lines.append(f"| {row['size']} | {row['mode']} | {figures} |")
    lines += [_COMPARISON] if compared else []
    for row in compared:
        seconds = " | ".join(
            f"{row[name]:.3g}" for name in ("ours", "jax", "ratio", "ours_cpu", "jax_cpu", "ratio_cpu")
        )
        lines.append(f"| {row['size']} | {seconds} |")
    PAGE.write_text("\n".join([*lines, _TAIL, dashboard_section()]).rstrip() + "\n")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", nargs=2, metavar=("SIZE", "MODE"), help="measure one case and print it as JSON")
    parser.add_argument(
        "--jax-python", metavar="PYTHON", help="an interpreter with JAX 0.12, to compare with JAX's own"
    )
    parser.add_argument("--only-compare", action="store_true", help="keep the saved figures of everything else")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(int(options.case[0]), options.case[1])))
        return
    saved = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows = saved.get("rows", []) if options.only_compare else []
    for size, mode in [] if options.only_compare else CASES:
        rows.append(_measure_apart(size, mode))
        print(rows[-1], flush=True)
    compared = saved.get("compared", [])
    if options.jax_python:
        compared = compare_with_jax(options.jax_python)
        print(*compared, sep="\n", flush=True)
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, NumPy {np.__version__}"
    )
    RESULTS.write_text(json.dumps({"machine": machine, "rows": rows, "compared": compared}, indent=1) + "\n")
    write_page(rows, compared, machine)


if __name__ == "__main__":
    main()
