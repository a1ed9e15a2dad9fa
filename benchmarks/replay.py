"""How near replays are: each what-if of a recorded launch, predicted on its event graph and simulated as a real change.

    python -m benchmarks.replay

Simulates the example kernels, asks `profiler.analysis.what_if` for its predictions, makes the same change in the device
table or the kernel, simulates again, and writes docs/replay.md.
"""

from __future__ import annotations

import pathlib
import runpy
import statistics
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import jax.numpy as jnp
import numpy as np

import mgpu
from benchmarks.streams import COLUMNS, make_stream, rows_of_stream
from mgpu.devices import load_device
from profiler.analysis.what_if import predict_changes
from profiler.store import newest_launch, open_profile
from profiler.trace import Trace

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "replay.md"
DEVICE = "h100"
MANY = 1_000_000_000
TENTH_FASTER = 1.1
WITHIN_POINTS = 2

_MATMUL = runpy.run_path(str(ROOT / "examples" / "04_warp_specialized_matmul.py"))
_ATTENTION = runpy.run_path(str(ROOT / "examples" / "05_attention.py"))

_HEAD = f"""# How near replays are

Written by `python -m benchmarks.replay`; do not edit.

`mgpu whatif` and the advice predict what a change gains by replaying the launch's event graph, without its script.
Here the same changes are made for real, in the numbers of the device or in the kernel, and simulated again. Both gains
are parts of the recorded launch's time on the simulated {DEVICE}.
"""

_LIMITS = """
A replay keeps the order in which loads, MMAs and CTAs took their turns, lets loads last as long as they did, and lets
HBM deliver no more than its bandwidth. So it is furthest off where a change makes more loads queue for L2 or HBM, gives
CTAs to other SMs, or takes SMs that work in step out of step.
"""


@dataclass(frozen=True)
class Kernel:
    """A kernel that can be run with another number of stages.

    Attributes:
      name: what the page calls it.
      launch: runs it, given its stages, the recording and the simulation's options.
      stages: slots of its rings.
      compute_warpgroups: how many compute; they come first.
    """

    name: str
    launch: Callable[[int, mgpu.CompilerParams, mgpu.InterpretGPUParams], Any]
    stages: int
    compute_warpgroups: int = 2

    def simulate(self, *, stages: int = 0, numbers: dict[str, Any] | None = None, **options: Any) -> Trace:
        """Returns the trace of one launch, with something changed."""
        with tempfile.TemporaryDirectory() as folder, mgpu.device(DEVICE, **(numbers or {})):
            params = mgpu.CompilerParams(approx_math=True, profile_space=4096, profile_dir=folder)
            self.launch(stages or self.stages, params, mgpu.InterpretGPUParams(numerics=False, **options))
            return newest_launch(open_profile(folder)).load_trace()


@dataclass(frozen=True)
class Change:
    """One what-if, and how it is made for real.

    Attributes:
      scenario: how the scenario's name begins.
      numbers: device numbers that are replaced.
      options: options of the simulation.
      more_stages: slots that each ring gets more.
      scales_compute: whether the compute warpgroups' own work takes half the time.
    """

    scenario: str
    numbers: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    more_stages: int = 0
    scales_compute: bool = False

    def make(self, kernel: Kernel) -> Trace:
        """Simulates a kernel with this change."""
        options = dict(self.options)
        if self.scales_compute:
            options["compute_scale"] = dict.fromkeys(range(kernel.compute_warpgroups), 0.5)
        return kernel.simulate(stages=kernel.stages + self.more_stages, numbers=self.numbers, **options)


def _matmul(size: int) -> Callable[..., Any]:
    operand = jnp.zeros((size, size), jnp.bfloat16)
    make = _MATMUL["make_matmul"]
    return lambda stages, params, options: make(size, size, stages=stages, params=params, interpret=options)(
        operand, operand
    )


def _attention(heads: int, length: int, warpgroups: int) -> Callable[..., Any]:
    operand = jnp.zeros((heads, length, 128), jnp.bfloat16)
    make = _ATTENTION["make_attention"]

    def launch(stages: int, params: Any, options: Any) -> Any:
        make.__globals__["STAGES"] = stages  # a constant of the example
        return make(heads, length, compute_warpgroups=warpgroups, params=params, interpret=options)(
            operand, operand, operand
        )

    return launch


def _stream(rows: int, shared: bool) -> Callable[..., Any]:
    shape = {"tiles": 64, "rows": rows, "shared": shared}
    operand = np.broadcast_to(np.zeros((), np.float32), (rows_of_stream(**shape), COLUMNS))
    return lambda stages, params, options: make_stream(**shape, stages=stages, params=params, interpret=options)(
        operand
    )


def _count(stages: int) -> str:
    return "1 stage" if stages == 1 else f"{stages} stages"


KERNELS = (
    *(Kernel(f"matmul {size}^3, {stages} stages", _matmul(size), stages) for size, stages in ((1024, 2), (1024, 3))),
    *(Kernel(f"matmul {size}^3, {stages} stages", _matmul(size), stages) for size, stages in ((2048, 3), (4096, 3))),
    Kernel("attention 4 x 2048", _attention(4, 2048, 2), 2),
    Kernel("attention 16 x 1024", _attention(16, 1024, 2), 2),
    Kernel("attention 8 x 1024, one warpgroup", _attention(8, 1024, 1), 2, compute_warpgroups=1),
    *(Kernel(f"HBM stream, {_count(stages)}", _stream(64, False), stages, 0) for stages in (1, 2)),
    *(Kernel(f"L2 stream, {_count(stages)}", _stream(64, True), stages, 0) for stages in (2, 4)),
)


def changes() -> tuple[Change, ...]:
    """Returns the changes that both a replay and a simulation can make."""
    device = load_device(DEVICE)
    faster = {
        "wgmma_flops_per_cycle": round(device.wgmma_flops_per_cycle * TENTH_FASTER),
        "wgmma_smem_bytes_per_cycle": round(device.wgmma_smem_bytes_per_cycle * TENTH_FASTER),
        "wgmma_interval_overhead_cycles": device.wgmma_interval_overhead_cycles / TENTH_FASTER,
        "wgmma_latency_cycles": round(device.wgmma_latency_cycles / TENTH_FASTER),
        "wgmma_latency_per_column_cycles": device.wgmma_latency_per_column_cycles / TENTH_FASTER,
    }
    no_latency = (
        "tma_latency_l2",
        "tma_latency_dram",
        "tma_descriptor_fetch",
        "tma_issue",
        "l2_latency",
        "dram_latency",
    )
    no_limit = ("tma_rows_per_cycle", "tma_bytes_per_cycle")
    at_once = {f"{name}_cycles": 0 for name in no_latency} | dict.fromkeys(no_limit, MANY)
    at_once |= dict.fromkeys(("hbm_bandwidth", "l2_bandwidth", "l2_shared_bandwidth"), MANY * MANY)
    return (
        Change("one more stage in", more_stages=1),
        Change("no recording", options={"record_cycles": 0}),
        Change("barrier hops at once", {"mbarrier_hop_cycles": 0}),
        Change("TMA loads at once", at_once),
        Change("MMAs take 10% less time", faster),
        Change("compute warpgroups work twice as fast", scales_compute=True),
        Change("CTAs start at once", dict.fromkeys(("launch_ramp_ns", "cta_dispatch_ns", "cta_setup_ns"), 0)),
    )


def compare(kernel: Kernel) -> Iterator[tuple[str, float, float]]:
    """Yields each change's name, the gain by replay and the gain by simulation, both parts of the recorded time."""
    before = kernel.simulate()
    scenarios = predict_changes(before).scenarios
    for change in changes():
        rows = scenarios.filter(scenarios["scenario"].str.starts_with(change.scenario))
        if rows.height:
            replayed, simulated = int(rows["predicted_cycles"][0]), change.make(kernel).end
            yield rows["scenario"][0], 1 - replayed / before.end, 1 - simulated / before.end


def render(results: dict[str, list[tuple[str, float, float]]]) -> str:
    """Returns the page."""
    off = [100 * abs(replayed - simulated) for rows in results.values() for _, replayed, simulated in rows]
    within = sum(points <= WITHIN_POINTS for points in off)
    lines = [
        _HEAD,
        f"Of {len(off)} predictions, {within} are within {WITHIN_POINTS} points of the simulated gain; the median is "
        f"{statistics.median(off):.1f} points off, the worst {max(off):.1f}.\n",
        "| kernel | change | gain by replay | gain by simulation | points off |",
        "|---|---|---:|---:|---:|",
    ]
    for name, rows in results.items():
        for change, replayed, simulated in rows:
            points = 100 * (replayed - simulated)
            lines.append(f"| {name} | {change} | {replayed:.1%} | {simulated:.1%} | {points:+.1f} |")
    return "\n".join(lines) + "\n" + _LIMITS


def main() -> None:
    """Measures and writes the page."""
    results = {}
    for kernel in KERNELS:
        results[kernel.name] = list(compare(kernel))
        print(kernel.name, *results[kernel.name], sep="\n  ", flush=True)
    PAGE.write_text(render(results))


if __name__ == "__main__":
    main()
