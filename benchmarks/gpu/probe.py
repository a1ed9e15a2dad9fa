"""A probe: a kernel that repeats one thing, run with two counts, so that their difference is the thing alone.

What is read is each track's own clocks at its first and last moment, which every capture has. Events that happen in the
loop cost time on a GPU as well; they are counted exactly, and their cost is taken off (`event_cycles`).
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

import mgpu as plgpu
from mgpu.capture import Capture
from mgpu.devices import Device
from mgpu.profile_dir import CAPTURE_FILE, list_launches

Read = Callable[[Capture, Capture, int, float], float]
"""What a probe says: from the captures with few and many repetitions, their difference, and the cycles of an event."""


@dataclasses.dataclass(frozen=True)
class Probe:
    """One measurement.

    Attributes:
      name: what is measured.
      unit: unit of the result.
      make: makes (kernel, operands) for a count of repetitions, a number of SMs and options of `mgpu.kernel`.
      read: reads the result from two captures.
      expected: what the device table says it is.
      numbers: the device numbers that it measures.
      counts: repetitions on a GPU.
      simulated_counts: repetitions on the simulator, which has no noise.
      tolerance: how far the simulator may be from `expected`, as a fraction.
    """

    name: str
    unit: str
    make: Callable[..., tuple[Any, list[np.ndarray]]]
    read: Read
    expected: Callable[[Device], float]
    numbers: tuple[str, ...]
    counts: tuple[int, int] = (200, 1000)
    simulated_counts: tuple[int, int] = (10, 30)
    tolerance: float = 0.02


@dataclasses.dataclass(frozen=True)
class Result:
    """What a probe measured beside what the device table says."""

    name: str
    unit: str
    measured: float
    expected: float
    numbers: dict[str, dict[str, Any]]

    @property
    def ratio(self) -> float:
        """Measured over expected."""
        return self.measured / self.expected


def run_simulated(probe: Probe, device: Device) -> Result:
    """Runs a probe on the simulator; recording costs nothing there."""
    options = {"interpret": plgpu.InterpretGPUParams(numerics=False, record_cycles=0)}
    with plgpu.device(device), tempfile.TemporaryDirectory() as directory:
        few, many = (
            capture_of(probe.make, count, device, Path(directory) / str(count), launches=1, **options)
            for count in probe.simulated_counts
        )
    return _result(probe, device, probe.read(few, many, probe.simulated_counts[1] - probe.simulated_counts[0], 0.0))


def run_on_gpu(probe: Probe, device: Device, event_cycles: float, directory: Path) -> Result:
    """Runs a probe on the GPU.

    Args:
      probe: what to measure.
      device: table of the GPU.
      event_cycles: what recording an event costs there.
      directory: where its captures stay.
    """
    # Counts may be equal, where one launch says everything; the later one overwrites nothing.
    few, many = (
        capture_of(probe.make, count, device, directory / f"{number}-{count}")
        for number, count in enumerate(probe.counts)
    )
    return _result(probe, device, probe.read(few, many, probe.counts[1] - probe.counts[0], event_cycles))


def capture_of(
    make: Callable[..., Any], count: int, device: Device, directory: Path, *, launches: int = 2, **options: Any
) -> Capture:
    """Returns the last of some launches: the first one brings code and tensor maps into caches."""
    shutil.rmtree(directory, ignore_errors=True)  # of an earlier run
    params = plgpu.CompilerParams(profile_space=1, profile_dir=str(directory))
    kernel, operands = make(count, device.num_sms, compiler_params=params, **options)
    for _ in range(launches):
        jax.block_until_ready(kernel(*operands))
    return Capture.load(Path(list_launches(directory)[-1]) / CAPTURE_FILE)


def _result(probe: Probe, device: Device, measured: float) -> Result:
    numbers = {name: device.number(name)._asdict() for name in probe.numbers}
    return Result(probe.name, probe.unit, measured, float(probe.expected(device)), numbers)


def cycles_per_step(parts: int = 1) -> Read:
    """Reads cycles of the slowest track for a repetition that does the thing `parts` times in a row."""

    def read(few: Capture, many: Capture, steps: int, event_cycles: float) -> float:
        cycles, events = (int(_slowest(many)[field]) - int(_slowest(few)[field]) for field in ("cycles", "events"))
        return (cycles - events * event_cycles) / (steps * parts)

    return read


def _slowest(capture: Capture) -> dict[str, int]:
    cycles = (capture.tracks["clock_end"] - capture.tracks["clock_begin"]).astype(np.int64)
    track = int(np.argmax(cycles))
    return {"cycles": int(cycles[track]), "events": int(capture.tracks["count"][track])}


def duration_ns(capture: Capture) -> int:
    """Returns the time from the first track's begin to the last one's end."""
    return int(capture.tracks["ns_end"].max()) - int(capture.tracks["ns_begin"].min())
