"""Runs a kernel for its time only, at a given clock or at the clock that a power limit allows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgpu import InterpretGPUParams
from mgpu.devices import Device
from mgpu.sim.simulation import prepare, simulate

IDLE_LOAD = 0.5
"""Power that goes with the clock alone, relative to that of busy tensor cores. Fitted to two points of GH200, the same
kernel at 8192^3 (657 Tflop/s, 1.38 to 1.41 GHz) and 2048^3 (587 Tflop/s, 1.64 to 1.72 GHz), which allow 0.27 to 0.74:
github hibouwu/CUDA_optimazation, gh200_sm90."""

ITERATIONS = 4
TOLERANCE = 0.01


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a launch took.

    Attributes:
      cycles: from the launch to the exit of the last CTA, launch ramp included.
      cta_cycles: from the first operation of a CTA's kernel body to its exit, median over CTAs.
      clock_hz: clock of the SMs.
    """

    cycles: int
    cta_cycles: float
    clock_hz: int

    @property
    def seconds(self) -> float:
        """Duration from the launch to the last exit."""
        return self.cycles / self.clock_hz


def time_kernel(
    kernel: Any, shapes: list[tuple[tuple[int, ...], Any]], device: Device, *, warm_l2: bool = True
) -> Timing:
    """Simulates one launch of a kernel on operands of the given shapes, without values.

    Args:
      kernel: what `mgpu.kernel` returned.
      shapes: shape and dtype of each operand.
      device: where it runs.
      warm_l2: whether an earlier launch has left its operands in L2, as in a benchmark's loop.
    """
    # Zeros of a strided view: timing needs shapes only, and a large array would cost memory.
    operands = [np.broadcast_to(np.zeros((), dtype), shape) for shape, dtype in shapes]
    abstract = [jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in shapes]
    flat, tree = jax.tree.flatten(tuple(abstract))
    program, consts = kernel._program(tree, flat)  # the traced program, without running it
    prepared = prepare(
        program, device, device.num_sms, InterpretGPUParams(numerics=False, record_cycles=0, warm_l2=warm_l2)
    )
    result = simulate(prepared, consts, operands)
    setup = device.cycles(device.cta_setup_ns)
    begins, ends = result.ctas["begin"] + setup, result.ctas["end"]
    return Timing(int(ends.max()), float(np.median(ends - begins)), device.clock_hz)


def power_limited_clock_hz(device: Device, utilisation: float, full_load_clock_hz: float) -> int:
    """Returns the clock at which a kernel draws as much power as the chip at full tensor-core load.

    Power is taken as clock x (IDLE_LOAD + utilisation): everything that switches with the clock, and the tensor cores.

    Args:
      device: gives the boost clock, which is never exceeded.
      utilisation: share of cycles in which the tensor cores work.
      full_load_clock_hz: clock at utilisation 1.
    """
    return int(min(device.boost_clock_hz, full_load_clock_hz * (IDLE_LOAD + 1) / (IDLE_LOAD + utilisation)))


def time_under_power_limit(
    kernel: Any,
    shapes: list[tuple[tuple[int, ...], Any]],
    device: Device,
    flops: float,
    full_load_clock_hz: float,
    *,
    warm_l2: bool = True,
) -> Timing:
    """Simulates a kernel at the clock that it settles at under a power limit.

    Latencies and bandwidths that are fixed in time make the cycles depend on the clock, so clock and cycles are found
    together, by iteration.

    Args:
      kernel, shapes, device, warm_l2: as `time_kernel`.
      flops: tensor-core work of the launch.
      full_load_clock_hz: as `power_limited_clock_hz`.
    """
    peak_flops_per_cycle = device.num_sms * device.wgmma_flops_per_cycle
    clock_hz = device.clock_hz
    timing = time_kernel(kernel, shapes, device.override(clock_hz=clock_hz), warm_l2=warm_l2)
    for _ in range(ITERATIONS):
        utilisation = flops / (timing.cycles * peak_flops_per_cycle)
        settled = power_limited_clock_hz(device, utilisation, full_load_clock_hz)
        if abs(settled - clock_hz) <= TOLERANCE * clock_hz:
            break
        clock_hz = settled
        timing = time_kernel(kernel, shapes, device.override(clock_hz=clock_hz), warm_l2=warm_l2)
    return timing


BF16, F16, F32 = jnp.bfloat16, jnp.float16, jnp.float32
