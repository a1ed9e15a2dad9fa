"""Calibrates the device table: prints what each probe measures beside the table's number and its source.

python -m benchmarks.gpu                    on the GPU that is here, within eight minutes
python -m benchmarks.gpu --simulate h100    the same kernels on the simulator

Results are written to build/bench-gpu.json after every step, captures to build/bench-gpu/.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import pathlib
import re
import sys
from typing import Any

from benchmarks.gpu import chip_probes, sm_probes
from benchmarks.gpu.probe import Probe, Result, capture_of, run_on_gpu, run_simulated
from benchmarks.gpu.steps import Results, run_steps, work
from mgpu.devices import Device, load_device

PROBES = [*sm_probes.PROBES, *chip_probes.PROBES]

TOTAL_S = 450.0  # of the eight minutes that `make bench-gpu` may take
STEP_S = 60.0
_DEVICE, _EVENTS, _OVERHEAD = "device", "an event in a loop of events", "overhead of recording"
STEPS = [_DEVICE, _EVENTS, *(probe.name for probe in PROBES), _OVERHEAD]


def main(arguments: list[str] | None = None) -> None:
    """Command line. Ends with status 1 if a step failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--simulate", metavar="DEVICE", help="run on the simulator instead of the GPU")
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("build/bench-gpu.json"))
    parser.add_argument("--work", metavar="STEPS", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.work:
        worker = _Worker(options.output)
        work(json.loads(options.work), worker.do)
    elif options.simulate:
        _simulate(load_device(options.simulate), options.output)
    else:
        _measure(options.output)


def _simulate(device: Device, output: pathlib.Path) -> None:
    results = Results(output, device=f"simulated {device.name}")
    for probe in PROBES:
        results.add(_show(probe.name, _as_json(run_simulated(probe, device))))
    print(f"\nwritten to {output}")


def _measure(output: pathlib.Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--output", str(output), "--work"]
    results = Results(output, date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"))
    failed = []
    for result in run_steps(STEPS, command, limit_s=STEP_S, total_s=TOTAL_S):
        name = result.pop("step")
        if "error" in result:
            failed.append(name)
            print(f"FAILED {name}: {result['error']}", flush=True)
            results.add({"name": name} | result)
            if name == _DEVICE:
                sys.exit("bench-gpu: no GPU to measure. Give --simulate h100 to run the same kernels on the simulator.")
        elif name == _DEVICE:
            results.set(**result)
            print(f"{result['device']}, table {result['table']}, JAX {result['jax']}", flush=True)
        else:
            results.add(_show(name, result))
    print(f"\nwritten to {output}; captures in {_captures(output)}")
    if failed:
        sys.exit(f"bench-gpu: {len(failed)} of {len(STEPS)} steps failed: {', '.join(failed)}")


def _captures(output: pathlib.Path) -> pathlib.Path:
    return output.with_suffix("")


class _Worker:
    """Does the steps that it is given on the GPU that is here; what earlier steps found is in the results' file."""

    def __init__(self, output: pathlib.Path) -> None:
        self._captures = _captures(output)
        self._found: dict[str, dict[str, Any]] = {}
        if output.exists():
            self._found = {result["name"]: result for result in json.loads(output.read_text())["results"]}

    def do(self, name: str) -> dict[str, Any]:
        """Does a step and returns what it found."""
        # Imported here: the process that watches over the workers keeps away from the GPU and its memory.
        import jax

        from mgpu.launch.target_choice import gpu_device, runs_on_gpu

        if name == _DEVICE:
            kind, version = jax.devices()[0], jax.__version__
            if not runs_on_gpu(None) or jax.default_backend() == "cpu":
                raise RuntimeError("JAX sees no GPU here")
            table = gpu_device().name
            return {"device": kind.device_kind, "table": table, "jax": version, "driver": _driver(kind)}
        result = self._measure(name, gpu_device())
        self._found[name] = result
        return result

    def _measure(self, name: str, device: Device) -> dict[str, Any]:
        # Imported here: it brings JAX's Mosaic GPU module, which the simulator does without.
        from benchmarks.gpu.overhead import event_cycles, measure_overhead

        folder = self._captures / re.sub(r"\W+", "-", name)
        if name == _EVENTS:
            few, many = (capture_of(sm_probes.arrivals, count, device, folder / str(count)) for count in (16, 512))
            numbers = {"record_event_cycles": device.number("record_event_cycles")._asdict()}
            expected = float(device.record_event_cycles)
            return _as_json(Result(name, "cycles", event_cycles((few, many)), expected, numbers))
        if name == _OVERHEAD:
            clock = self._value(chip_probes.CLOCK, device.clock_hz / 1e9)
            return {"name": name, "overhead": measure_overhead(clock)}
        probe: Probe = next(probe for probe in PROBES if probe.name == name)
        return _as_json(run_on_gpu(probe, device, self._value(_EVENTS, device.record_event_cycles), folder))

    def _value(self, name: str, otherwise: float) -> float:
        """Returns what an earlier step measured; what the table says if that step failed."""
        return float(self._found.get(name, {}).get("measured", otherwise))


def _driver(device: Any) -> str:
    return str(getattr(device.client, "platform_version", "")).replace("\n", " ")


def _as_json(result: Result) -> dict[str, Any]:
    return dataclasses.asdict(result) | {"ratio": result.ratio}


def _show(name: str, result: dict[str, Any]) -> dict[str, Any]:
    for what, value in result.get("overhead", {}).items():
        print(f"recording: {what:49} {value:10.2f}", flush=True)
    if "measured" in result:
        table = f"(table: {result['expected']:.3f}, ratio {result['ratio']:.3f})"
        print(f"{name:60} {result['measured']:10.3f} {result['unit']:6} {table}", flush=True)
        for number, known in result["numbers"].items():
            print(f"    {number} = {known['value']} {known['unit']}: {known['source']}", flush=True)
    return result


if __name__ == "__main__":
    main()
