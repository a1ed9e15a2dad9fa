"""What all of this is for: record a kernel, read why it is slow, change one thing, and see whether that was it.

The kernel is the matmul of the fourth example with a ring of two stages, one too few: while the tensor core reads one
slot, the load of the next but one waits for the other. The report says so, names the barrier and the line, and predicts
what a third stage would gain. The second run is the proof: its difference is broken down by cause, to the cycle.

    python examples/06_profile_it.py
"""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import mgpu as plgpu
import profiler


def load_example(name: str) -> Any:
    """Returns another example as a module; its name begins with a digit, so `import` cannot name it."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(a: np.ndarray, b: np.ndarray, stages: int) -> profiler.Report:
    """Runs the matmul with so many stages, checks it, and returns what the profiler says about it."""
    make_matmul = load_example("04_warp_specialized_matmul").make_matmul
    result, captures = plgpu.profile(make_matmul(a.shape[0], b.shape[1], stages=stages))(a, b)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(np.asarray(result, np.float32), expected, rtol=2**-8, atol=1e-3)
    return profiler.build_report(profiler.build_trace(captures[0]))


def name_cause(row: dict[str, Any]) -> str:
    """Returns cause, detail and barrier of a group of bubbles, as far as it has them."""
    return ", ".join(filter(None, (row["cause"], row["detail"], row["barrier"])))


def describe(report: profiler.Report) -> str:
    """Returns what to look at first: the length, the bubbles, the barrier that costs most."""
    bubble = report.bubbles.largest(1).row(0, named=True)
    waits = report.barrier_waits.barriers.sort("uncovered_cycles", "barrier", descending=[True, False])
    wait = waits.row(0, named=True)
    return (
        f"  {report.kernel_cycles:,} cycles, {report.bubbles.bubble_share:.1%} of them tensor-core bubbles\n"
        f"  largest loss: {name_cause(bubble)}: {bubble['kernel_share']:.1%} of the kernel, at {bubble['source']}\n"
        f"  costliest barrier: {wait['barrier']}: the {wait['role']} warpgroups were blocked for "
        f"{wait['blocked_cycles']:,} cycles,\n"
        f"    {wait['uncovered_cycles']:,} of them with nothing on the tensor core\n"
    )


def describe_difference(before: profiler.Report, after: profiler.Report) -> str:
    """Returns where the time went, per SM; the rows sum to the difference."""
    compared = profiler.compare_reports(before, after)
    lines = [f"  {compared.change:+.1%}: {compared.delta_cycles:+,.0f} cycles, of which (mean of the SMs in use)"]
    for row in compared.largest().iter_rows(named=True):
        cycles = f"{row['a_cycles']:>8,.0f} to {row['b_cycles']:>6,.0f}"
        lines.append(f"  {row['delta_cycles']:>+8,.0f}  {name_cause(row):<36}{cycles}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> None:
    """Records the matmul with two and with three stages, and compares."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512, help="M and N (default 512)")
    parser.add_argument("--depth", type=int, default=1024, help="K (default 1024)")
    options = parser.parse_args(arguments)

    generator = np.random.default_rng(0)
    a = generator.standard_normal((options.size, options.depth)).astype(jnp.bfloat16)
    b = generator.standard_normal((options.depth, options.size)).astype(jnp.bfloat16)

    before = record(a, b, stages=2)
    print(f"two stages\n{describe(before)}")
    predicted = before.what_if.gain("one more stage")
    print(f"what if there were one more stage? by replay of what was recorded, {-predicted:+.1%}\n")
    after = record(a, b, stages=3)
    print(f"three stages\n{describe(after)}")
    print(f"the difference\n{describe_difference(before, after)}")


if __name__ == "__main__":
    main()
