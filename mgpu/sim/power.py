"""Finding the clock at which a kernel settles under the device's power limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from mgpu.devices import Device
from mgpu.devices.power import power_capped_clock_hz
from mgpu.sim.simulation import PreparedKernel, RunResult, prepare, simulate

_MOST_RUNS = 5
_TOLERANCE = 0.01  # of the clock; the rule itself is good for 4 %


def settle_clock(
    kernel: PreparedKernel, consts: Sequence[Any], inputs: Sequence[Any], launch_number: int = 1
) -> tuple[PreparedKernel, RunResult]:
    """Returns the kernel, prepared for the clock that it settles at, and its run at that clock.

    Latencies and bandwidths that are fixed in time make a launch's cycles depend on the clock, and the clock depends on
    how busy the cycles are: so the kernel is simulated, two or three times, until both agree within 1 %.

    Args:
      kernel: on a power-capped device, whose `clock_hz` is the first guess.
      consts, inputs, launch_number: as of `simulate`.

    Raises:
      SimulationError: as `simulate`.
    """
    result = simulate(kernel, consts, inputs, launch_number)
    for _ in range(_MOST_RUNS - 1):
        device = kernel.device
        settled_hz = clock_of(device, result)
        if abs(settled_hz - device.clock_hz) <= _TOLERANCE * device.clock_hz:
            break
        # Not by `override`, which would make the clock an input.
        device = dataclasses.replace(device, clock_hz=settled_hz)
        kernel = prepare(kernel.program, device, kernel.num_sms, kernel.options)
        result = simulate(kernel, consts, inputs, launch_number)
    return kernel, result


def clock_of(device: Device, result: RunResult) -> int:
    """Returns the power-capped clock for what a run has kept busy, in Hz."""
    tensor_share = result.tensor_cycles / (result.cycles * device.num_sms)
    return power_capped_clock_hz(device, tensor_share, result.hbm_bytes * device.clock_hz / result.cycles)
