"""The CUDA-core side of one SM: what a block of tile arithmetic takes when all warpgroups share the pipes.

A tile operation is charged by throughput: so many lanes of FMA, integer, special-function, conversion and shuffle
work, so many bytes of SMEM traffic, so many issue slots. Each pipe is a server of its own, first come first served by
block of work; the block is finished when its slowest pipe is. A warpgroup alone, one warp on each scheduler, is slower
than that: a warp issues in order, and what it issues next often needs what it has just asked another pipe for
(`lone_warp_cycles`). So pipes are full only when several warpgroups work. That, and latencies of dependent operations,
is the caller's affair.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from mgpu.devices import Device
from mgpu.sim.fluid_queue import FluidQueue


class Work(NamedTuple):
    """Amounts of work. `a + b` adds them up, `a * n` repeats.

    Attributes:
      fma: lanes of f32 multiply, add, fused multiply-add.
      alu: lanes of integer, compare, select, min and max.
      mufu: lanes of exp2, log2, reciprocal, rsqrt, tanh, sin.
      cvt: lanes of conversion between element types.
      shuffle: lanes of exchange between lanes of a warp.
      smem_bytes: read from or written to SMEM by loads and stores.
      issue: warp instructions of any kind.
    """

    fma: int = 0
    alu: int = 0
    mufu: int = 0
    cvt: int = 0
    shuffle: int = 0
    smem_bytes: int = 0
    issue: int = 0

    def __add__(self, other: Work) -> Work:  # pyright: ignore[reportIncompatibleMethodOverride]  # not concatenation
        return Work(*[mine + its for mine, its in zip(self, other, strict=True)])

    def __mul__(self, times: int) -> Work:  # pyright: ignore[reportIncompatibleMethodOverride]  # not repetition
        return Work(*[amount * times for amount in self])

    def __rmul__(self, times: int) -> Work:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self * times


def pipe_rates(device: Device) -> Work:
    """Returns what each pipe of an SM does in a cycle."""
    return Work(
        fma=device.fma_lanes_per_cycle,
        alu=device.alu_lanes_per_cycle,
        mufu=device.mufu_lanes_per_cycle,
        cvt=device.cvt_lanes_per_cycle,
        shuffle=device.shuffle_lanes_per_cycle,
        smem_bytes=device.smem_bytes_per_cycle,
        issue=device.issue_slots_per_cycle,
    )


def lone_warp_cycles(work: Work, device: Device) -> int:
    """Returns what a block of work takes at least when one warp on each scheduler does it, however empty the pipes are.

    That is the sum of its times on the pipes, times `lone_warp_factor`. Issue slots are not counted: each instruction
    is in a pipe already.
    """
    times = [amount / rate for amount, rate in zip(work, pipe_rates(device), strict=True)]
    return math.ceil(device.lone_warp_factor * sum(times[:-1]))


class WarpSchedulers:
    """The pipes of one SM.

    Args:
      device: their rates.
    """

    __slots__ = ("_device", "_pipes")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pipes: tuple[FluidQueue, ...] = ()  # made at the first work: SMs without a tile never do any

    @property
    def pipes(self) -> tuple[FluidQueue, ...]:
        """A server for each field of `Work`."""
        if not self._pipes:
            self._pipes = tuple(FluidQueue(rate) for rate in pipe_rates(self._device))
        return self._pipes

    def run(self, now: int, work: Work) -> int:
        """Starts a block of work at time `now` and returns the cycle at which all of it is finished."""
        finish = now
        for pipe, amount in zip(self._pipes or self.pipes, work, strict=True):
            if amount:
                done = pipe.serve(now, amount)
                if done > finish:
                    finish = done
        return finish
