"""Runs a kernel for its time only, at the device's clock or at the one that its power limit allows."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mgpu import InterpretGPUParams
from mgpu.devices import Device
from mgpu.sim.power import settle_clock
from mgpu.sim.simulation import prepare, simulate


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a launch took.

    Attributes:
      cycles: from the launch to the exit of the last CTA, launch ramp included.
      resident_cycles: from the first CTA's entry to the exit of the last one.
      cta_cycles: from the first operation of a CTA's kernel body to its exit, median over CTAs.
      clock_hz: clock of the SMs.
    """

    cycles: int
    resident_cycles: int
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
      device: where it runs; a power-capped one settles at its clock.
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
    if device.is_power_capped:
        prepared, result = settle_clock(prepared, consts, operands)
        device = prepared.device
    else:
        result = simulate(prepared, consts, operands)
    setup = device.cycles(device.cta_setup_ns)
    begins, ends = result.ctas["begin"] + setup, result.ctas["end"]
    entered = int(result.ctas["begin"].min())
    return Timing(int(ends.max()), int(ends.max()) - entered, float(np.median(ends - begins)), device.clock_hz)


BF16, F16, F32 = jnp.bfloat16, jnp.float16, jnp.float32
