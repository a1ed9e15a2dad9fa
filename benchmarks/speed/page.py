"""Writes docs/performance.md from measured figures."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.dashboard.section import dashboard_section
from benchmarks.decode.section import decode_section

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "performance.md"

_HEAD = """# How fast kernels are simulated

Written by `python -m benchmarks.speed`; do not edit. All runs are warm: traced and compiled before. Seconds belong to
the machine below and to whatever else ran on it: where the two cores were shared, processor seconds say more than wall
seconds, and they too grow, up to twice as long when more processes want the cores.

- *matmul*: a warp-specialised bf16 matmul of `size`^3 (tiles of 128 x 256 x 64, three stages, TMA stores).
- *attention*: causal `attention_mgpu` of the `jax` package, float16, 16 heads of 128, `size` queries and keys.
"""

_COMPARISON = """
## Against JAX's own interpreter

The `jax` package's `hopper_matmul_mgpu`, float16, tiles of 128 x 128 x 64 for each of two warpgroups and four slots,
through `mgpu.from_pallas` with timing, recording and the default checks, against the same function under
`force_gpu_interpret_mode`: one process, both warm (`python -m benchmarks.speed.interpreter`).

| size | mgpu, s | JAX, s | ratio | mgpu, CPU s | JAX, CPU s | ratio of CPU s |
|---:|---:|---:|---:|---:|---:|---:|"""

_WHERE = """
## Where the time goes

Shares of processor time of the main thread, sampled each millisecond, with no other core that multiplies ahead.
"""

_TRIED = """
## What was tried

Figures are of `hopper_matmul_mgpu` with recording and checks, unless said otherwise.

- **Nothing for the cyclic collector.** It is off during a run, and a run leaves no cycles: objects refer to each other
  until their CTA exits. Before, collections over all that JAX has loaded took 40 % of a launch of 512^3.
- **Waits for one's own work are no events.** How long a warpgroup waits for its wgmmas and stores is known when it
  asks, so the wait is joined with the sleeps around it: 26 % fewer events at 1024^3, the same timeline to the cycle.
- **Late products, one for a whole loop over k.** A wgmma is computed when its accumulator is read, or before SMEM that
  it reads is overwritten. Where only TMA loads write a ring, they copy nothing: a slot refers to the box in GMEM. So
  the steps of a loop over k lie side by side in memory and are one product, 128 x 1024 x 128 instead of 16 of
  128 x 64 x 128, each from slots that no cache held: a quarter less processor time for *matmul* of 2048^3.
- **Another core multiplies ahead.** A product is known when its last wgmma has been issued, long before the kernel
  reads the accumulator. A thread computes what it finds, newest first, and BLAS does not hold the interpreter
  meanwhile: 73 ms instead of 84 ms at 1024^3, and 0.7 to 0.8 of the time for *matmul* of 1024^3 to 4096^3; with both
  cores busy otherwise no gain and no loss. Oldest first, the simulation waits for the very product that the thread is
  at: 5 % are gained instead of 14 %. Which wgmmas are one product depends on their order alone, so the sums are the
  same to the bit, whoever computes them.
- **Time alone computes nothing.** With `numerics=False`, what follows from loaded data is charged but not computed:
  with the next but one point, 30 % less processor time for *matmul* of 1024^3.
- **Late allocation.** SMEM and barriers are made at the first access: of 132 persistent CTAs, 512^3 occupies four.
- **A wait for a barrier takes the sleeps around it along.** Who waits says how far ahead its wait begins and how long
  it sleeps afterwards, so it is woken when both are over: a third fewer events for *matmul* of 4096^3.
- **Boxes remember their blocks.** A box is made once for each place and extent, with the blocks of L2 that it covers,
  since tiles are read again and again: 9 % of *matmul* of 2048^3 by time alone, 13 % of 4096^3.
- **The event queue is a ring of lists**, one for each of the next 8192 cycles, in one loop with the processes'
  continuation inlined: 0.2 to 0.3 us for an event of 450 or 128 processes, where a heap of entries took 0.5 us.
- **float16 by arithmetic on bits**: 0.45 ms instead of 1.9 ms to widen 1024 x 1024, 0.75 ms instead of 3.2 ms to narrow
  it, and rounding a tile of 128 x 128 takes 15 us instead of 22 us.
- **Logs are arrays of numbers** that take each row as a list: its numbers are packed while they are in the processor's
  caches. 2 to 3 % at 1024^3, compared with flat lists that are packed now and then; a row given as a tuple takes an
  array twice as long.
- **Tiles know their place in GMEM**: to see whether two steps of a loop over k are neighbours costs 1 us less.
- **Events between two waits are recorded by one call**: 1 to 2 % at 1024^3.
- **Freed memory stays in the process**, up to 64 MiB: 70 instead of 2,600 page faults and 67 ms instead of 73 ms for a
  call of 1024^3.
- **Deflate level 1** for captures, 13.5 ms to 3.5 ms at 1024^3.
- *Not done:* joining the sleeps on both sides of a branch behind a wait (2 % fewer events at 2048^3, and events of
  equal times change places), tile arithmetic in XLA (a call costs 10 to 50 us, as much as NumPy's operation on a tile),
  BLAS that accumulates in place (20 us instead of 22 us for a product of 128 x 128 x 64), one computation for CTAs that
  do the same (their products take the time, and their operands differ), several threads of BLAS for one product (they
  spin against each other on products as small as a tile's; where another process wants a core, the launch of 1024^3
  took 1.6 times as long), products on a second thread that are needed at once (waking the other core takes as long as
  it saves).

## Race detection

By default four CTAs of a launch are watched in full (the first two, the last and the middle one; of clusters with more
than one CTA, fewer clusters), and of the others what clusters do to each other in GMEM.
With `detect_races=True` every CTA is: each access is compared with the last ones to overlapping regions, and clocks are
joined at every arrival and wait.
"""


def write_page(results: Mapping[str, Any]) -> None:
    """Writes the page.

    Args:
      results: `machine` and `load` in words, `rows` of `cases.measure`, `profiles` of `cases.profile`, and `compared`
        of `interpreter.compare`.
    """
    lines = [_HEAD, f"Machine: {results['machine']}. {results['load']}", ""]
    lines += ["| kernel | size | mode | seconds | CPU s | events | events per CPU s | peak memory |"]
    lines += ["|---|---:|---|---:|---:|---:|---:|---:|", *map(_case_row, results["rows"])]
    if results["compared"]:
        lines += [_COMPARISON, *map(_compared_row, results["compared"])]
    if results["profiles"]:
        lines += [_WHERE, *_shares_table(results["profiles"])]
    PAGE.write_text("\n".join([*lines, _TRIED, decode_section(), dashboard_section()]).rstrip() + "\n")


def _case_row(row: Mapping[str, Any]) -> str:
    rate, gibibytes = row["events"] / row["cpu_seconds"], row["peak_bytes"] / 2**30
    figures = f"{row['seconds']:.3g} | {row['cpu_seconds']:.3g} | {row['events']:,} | {rate:,.0f} | {gibibytes:.2f} GiB"
    return f"| {row['kernel']} | {row['size']} | {row['mode']} | {figures} |"


def _compared_row(row: Mapping[str, Any]) -> str:
    names = ("ours", "jax", "ratio", "ours_cpu", "jax_cpu", "ratio_cpu")
    return f"| {row['size']} | {' | '.join(f'{row[name]:.3g}' for name in names)} |"


def _shares_table(profiles: Sequence[Mapping[str, Any]]) -> list[str]:
    titles = [f"{each['kernel']} {each['size']}, {each['mode'].partition(',')[0]}" for each in profiles]
    activities = sorted(
        {name for each in profiles for name in each["shares"]},
        key=lambda name: -sum(each["shares"].get(name, 0) for each in profiles),
    )
    lines = [f"| | {' | '.join(titles)} |", f"|---|{'---:|' * len(titles)}"]
    for name in activities:
        shares = [f"{each['shares'].get(name, 0):.0%}" for each in profiles]
        lines.append(f"| {name} | {' | '.join(shares)} |")
    return lines
