"""Calibrates the device table: prints what each probe measures beside the table's number and its source.

python -m benchmarks.gpu                    on the GPU that is here; writes build/bench-gpu.json
python -m benchmarks.gpu --simulate h100    the same kernels on the simulator
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib
import sys
import tempfile
from typing import Any

import jax

import mgpu
from benchmarks.gpu import chip_probes, sm_probes
from benchmarks.gpu.probe import Result, run_on_gpu, run_simulated
from mgpu.capture import Capture
from mgpu.devices import Device, load_device
from mgpu.launch.target_choice import gpu_device, runs_on_gpu
from mgpu.profile_dir import CAPTURE_FILE, list_launches

PROBES = [*sm_probes.PROBES, *chip_probes.PROBES]


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", metavar="DEVICE", help="run on the simulator instead of the GPU")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/bench-gpu.json"))
    options = parser.parse_args(arguments)
    if options.simulate:
        device = load_device(options.simulate)
        results = [_show(run_simulated(probe, device)) for probe in PROBES]
        found: dict[str, Any] = {"device": f"simulated {device.name}"}
    else:
        if not runs_on_gpu(None) or jax.default_backend() == "cpu":
            sys.exit("bench-gpu: JAX sees no GPU here. Give --simulate h100 to run the same kernels on the simulator.")
        found, results = _measure(gpu_device())
    found["results"] = [dataclasses.asdict(result) | {"ratio": result.ratio} for result in results]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1) + "\n")
    print(f"\nwritten to {options.output}")


def _measure(device: Device) -> tuple[dict[str, Any], list[Result]]:
    # Imported here: it brings JAX's Mosaic GPU module, which the simulator does without.
    from benchmarks.gpu.overhead import event_cycles, measure_overhead

    cycles = event_cycles((_events(16), _events(512)))
    print(f"{'an event in a loop of events':60} {cycles:10.2f} cycles (table: {device.record_event_cycles})")
    results = [_show(run_on_gpu(probe, device, cycles)) for probe in PROBES]
    clock_ghz = next(result.measured for result in results if "clock_hz" in result.numbers)
    overhead = measure_overhead(clock_ghz)
    for name, value in overhead.items():
        print(f"recording: {name:49} {value:10.2f}")
    return {"device": jax.devices()[0].device_kind, "event_cycles": cycles, "overhead": overhead}, results


def _events(count: int) -> Capture:
    with tempfile.TemporaryDirectory() as directory:
        params = mgpu.CompilerParams(profile_space=1, profile_dir=directory)
        kernel, operands = sm_probes.arrivals(count, 1, compiler_params=params)
        jax.block_until_ready(kernel(*operands))
        jax.block_until_ready(kernel(*operands))
        return Capture.load(list_launches(directory)[-1] / CAPTURE_FILE)


def _show(result: Result) -> Result:
    print(
        f"{result.name:60} {result.measured:10.3f} {result.unit:6} "
        f"(table: {result.expected:.3f}, ratio {result.ratio:.3f})"
    )
    for name, number in result.numbers.items():
        print(f"    {name} = {number['value']} {number['unit']}: {number['source']}")
    return result


if __name__ == "__main__":
    main()
