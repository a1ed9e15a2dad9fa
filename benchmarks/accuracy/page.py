"""Renders saved results as docs/accuracy.md and a plot of predicted against measured values."""

from __future__ import annotations

import json
import pathlib
import statistics
from collections.abc import Mapping, Sequence

from benchmarks.accuracy.plot import render_plot
from benchmarks.accuracy.points import GROUPS, Point

_HEAD = """# How near the simulated times are

Written by `make bench` from `benchmarks/accuracy/results/`; do not edit.

Real kernels, written in the kernel language, run on the simulated H100 and are compared with published measurements.
**fit** marks a measurement that fixed a parameter; everything else is prediction. All other device numbers come from
the sources that `mgpu/devices/h100.toml` gives for each.

![Predicted against measured, relative to the largest measurement of each group](accuracy.svg)
"""

_TAIL = """
## What is fitted

| number | on what | where it acts |
|---|---|---|
| `l2_queueing_fraction` | the six points with direct release of the first group | all kernels |
| `l2_partial_sector_bytes` | cycle counters in two kernels of the ladder, not their rates | stores of single elements |
| `relaunch_gap_ns` | two points of the depth group | kernels with more CTAs than fit |
| `lone_warp_factor` | cycles of a softmax in a kernel on an H200, not on this page | tile arithmetic |
| `hbm_queueing_fraction`, `hbm_passing_fraction` | three points of the last group | loads from HBM |
| that a load waits for the stores before it (no number) | two points of the depth group | loads behind TMA stores |
| clock at full load | 1.58 GHz: GH200 V03; 1.46, 1.35 GHz: one point of depth, one of attention | times, not cycles |
| `power_base_load`, `power_hbm_bandwidth` | GH200 V03, which is not on this page | times, not cycles |
| times of a probe's own loop | second group, six stages over one tile in L2; last group, boxes of 1 KiB | that probe |

Every other number is what its source measured, and every kernel is written after its source's code. Where that does
what the language cannot say, its cost was measured elsewhere: arrivals of single lanes in K2 to K6 of the ladder (GH200
EXP-11), and what a CUTLASS kernel does between two tiles (GH200 V06, for another tile).

## The clock

Cycles are what the simulator computes; a rate in Tflop/s needs the clock too, and that depends on power. Under
`mgpu.device("h100", clock_hz="power_capped")` a kernel settles at

    left  = 1 - HBM traffic / power_hbm_bandwidth
    load  = (power_base_load + tensor cores' share of cycles) / (power_base_load + 1)
    clock = full_load_clock_hz x (left / load) ^ (1/3), at most the boost clock

because what the SMs draw goes with the cube of the clock. The three numbers are fitted to matmuls on a GH200 (github
hibouwu/CUDA_optimazation, gh200_sm90 V03), not to the kernels on this page. The first of them is lower when the load
lasts for seconds, and differs from machine to machine.

## What recording costs

An event costs `record_event_cycles` of the warpgroup that records it; `mgpu/devices/h100.toml` gives its source. With
`InterpretGPUParams(record_cycles=0)` the timeline is the one that the kernel has when nobody records.

## What is not modelled

- Distance: all SMs are equally far from L2 and HBM. Second level effects of DRAM (banks, refresh, read-write turns)
  are in the achieved bandwidth and in how requests queue only.
- L2: bytes per second do not follow the clock. Sets are not modelled one by one; that they fill up unevenly is.
- wgmmas of several warpgroups take turns by operation, not by instruction. With equal shares by instruction K8 to K11
  of the ladder are predicted 4 to 5 % too slow instead of 2 %, multicast (K8) gains nothing where 4 % were measured,
  and attention with a head dimension of 64 gets 2 % further away; with one buffer, four warps and two CTAs on an SM two
  of three tiles are then within 2 % and the third 12 % too slow. GH200 R09 saw one consumer's main loop end 170 to 620
  cycles before the other's: turns by operation make that 512, turns by instruction 128.
- Bank conflicts of SMEM, instruction cache misses, register bank conflicts, instruction scheduling inside a warp. A
  stretch of tile arithmetic takes as long as its busiest pipe, its longest dependent chain, or `lone_warp_factor` times
  the sum of its pipes, whichever is longest; that factor was measured for a softmax, and a stretch of nothing but FMAs
  has 1.2, or 1.3 to 1.5 if its operands change (GH200 R02).
- What warpgroups that do arithmetic at the same time cost each other, beyond the rates of the pipes.
- Contention of wgmmas and register stores for SMEM (10 %, GH200). That of loads and wgmmas is latency only.
- Depth of the queue of issued wgmmas: an issue never blocks.
- Index arithmetic and branches: integers and booleans that are scalars take no time; a turn of a loop takes two cycles.
- Power: only through the clock rule above, one clock for a whole launch. Launches of less than 0.1 ms run up to 10 %
  faster, because the limit acts later.

## Known outliers

- Two stages over one tile in L2 (flash-vla): its producer alone is a third faster than predicted. 132 SMs that read the
  same 24 KiB again and again are served faster than the same number of tiles that change; a cache on the way to the SMs
  would do that, and none is modelled. The cold pipelines of three and six stages err by 8 to 10 %.
- Four stages of 32 KiB with 64 FFMAs: the chip spends some 45 cycles more on each tile.
- K5 and K6 of the ladder: with `cuda::barrier` all lanes of two warpgroups arrive twice in each step. What that costs
  is taken from a loop of nothing but arrivals, and seems too much here.
- K = 512 and 1024, pipelined: without the rule that a load waits for the stores before it, these two are predicted 8
  and 5 % too fast relative to K = 4096. Nobody has measured that rule alone.
- Attention without a producer: how the original orders its loads is not published. Here a barrier of the CTA ends each
  block, and then the first consumer refills what both have read; with loads that never wait it is as fast as the full
  kernel, with loads a block later it takes half as long again.
- Attention by head dimension: with 64, three warpgroups do their softmax at the same time most of the time, and keep
  the special-function units busy for 69 % of it, the issue slots for 53 %. What they cost each other below full use is
  left out, so long rows are predicted too fast. To let a block of arithmetic wait for each pipe as long as others keep
  it busy takes 5 % off a head dimension of 64, but adds 4 % to the error of the kernel without ping-pong, and fits no
  better if the pipes are shared evenly instead of block by block. With 256 the softmax is small beside the
  matmuls, and the clock that a kernel with 128 fixes is a little low.
- Tiles with steps of 64 to 192 KiB: a load that has to be there before anything else goes on takes longer than
  predicted, above all one of 96 KiB under the wgmmas of two warpgroups (128 x 256 x 128, two buffers). The kernels with
  one buffer are from another page of the source than the clock, one that times a kernel of the other page 15 % slower.
  Why 128 x 128 x 128 is slower with eight warps than with four is open too: SMEM holds three CTAs of it on an SM, and
  registers may hold three with four warps and two with eight, while the source, and so the kernels here, have two.
- Persistent CUTLASS with K = 512: the store of a tile and the way to the next one take 45 % of its time there, and some
  1100 cycles a tile are missing.
- The source of the depth group gives L2 hit rates of 86 and 89 % for K = 16384. A wave of tiles that fetches each line
  once has 83 %, and so has the model: where the rest comes from is not known.
"""


def write_page(results: pathlib.Path, docs: pathlib.Path) -> None:
    """Writes `accuracy.md` and `accuracy.svg` from the results of all groups that have been run.

    Args:
      results: folder of `<group>.json` files.
      docs: folder to write to.
    """
    points = {
        name: [Point(**fields) for fields in json.loads((results / f"{name}.json").read_text())]
        for name in GROUPS
        if (results / f"{name}.json").exists()
    }
    docs.mkdir(exist_ok=True)
    (docs / "accuracy.svg").write_text(render_plot(points))
    (docs / "accuracy.md").write_text(_render(points))


def _error(point: Point) -> float:
    return point.predicted / point.measured - 1


def _render(points: Mapping[str, Sequence[Point]]) -> str:
    sections = [_HEAD, _render_summary(points)]
    sections += [_render_group(name, found) for name, found in points.items()]
    return "\n".join([*sections, _TAIL])


def _render_summary(points: Mapping[str, Sequence[Point]]) -> str:
    lines = [
        "| group | predictions | median error | largest error | order of kernels |",
        "|---|---:|---:|---:|---|",
    ]
    for name, found in points.items():
        errors = [abs(_error(point)) for point in found if not point.is_fit]
        agreeing, pairs = _agreeing_pairs(found)
        lines.append(
            f"| {GROUPS[name].title} | {len(errors)} | {statistics.median(errors):.1%} | {max(errors):.1%} "
            f"| {agreeing} of {pairs} pairs |"
        )
    return "\n".join(lines) + "\n"


def _agreeing_pairs(points: Sequence[Point]) -> tuple[int, int]:
    """Counts pairs of kernels that differ by more than 3 % when measured, and those predicted in the same order."""
    pairs = [
        (slow, fast)
        for slow in points
        for fast in points
        if fast.measured > 1.03 * slow.measured  # closer ones swap from run to run
    ]
    return sum(fast.predicted > slow.predicted for slow, fast in pairs), len(pairs)


def _render_group(name: str, points: Sequence[Point]) -> str:
    group = GROUPS[name]
    lines = [f"## {group.title}", "", f"Source: {group.source}. {group.note}", ""]
    lines += [f"| kernel | measured ({group.unit}) | predicted | error | |", "|---|---:|---:|---:|---|"]
    for point in points:
        mark = "fit" if point.is_fit else ""
        lines.append(f"| {point.name} | {point.measured:g} | {point.predicted:.4g} | {_error(point):+.1%} | {mark} |")
    return "\n".join(lines) + "\n"
