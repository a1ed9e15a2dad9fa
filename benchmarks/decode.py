"""How fast captures are read and analysed: events a second, and the memory that it takes.

    python benchmarks/decode.py [--events 10000000]

The capture is the ring pipeline of the tests, repeated over CTAs on 132 SMs. Rates are printed, not asserted: machines
differ. Each stage is run in a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from mgpu.capture import Capture
from profiler.analysis.critical_path import find_critical_path
from profiler.analysis.graph_edges import build_graph
from profiler.build import build_trace
from profiler.decode import decode_events
from profiler.report import build_report
from support.captures import ring_capture

NUM_SMS = 132
ITERATIONS = 256


def repeat_capture(num_events: int) -> Capture:
    """Returns a capture of at least `num_events` events: one CTA's, repeated on all SMs, wave after wave."""
    one = ring_capture(num_ctas=1, iterations=ITERATIONS, stages=4, capacity=1 << 16)
    copies = -(-num_events // len(one.words))
    cta = np.arange(copies)
    cycles = int(one.ctas["end"][0] - one.ctas["begin"][0])
    start = cta // NUM_SMS * (cycles + 100)

    def tile(table: np.ndarray, *times: str) -> np.ndarray:
        rows = np.tile(table, copies)
        owner = np.repeat(cta, len(table))
        for name in ("cta", "cluster", "source_cta"):
            if name in (table.dtype.names or ()):
                rows[name] = owner
        rows["sm"] = owner % NUM_SMS
        for name in times:
            rows[name] += start[owner].astype(rows[name].dtype)
        return rows

    words = np.tile(one.words, (copies, 1))
    words[:, 1] += np.repeat(start, len(one.words)).astype(np.uint32)
    return dataclasses.replace(
        one,
        header=dataclasses.replace(one.header, grid=(copies,)),
        tracks=tile(one.tracks, "clock_begin", "clock_end"),
        words=words,
        ctas=tile(one.ctas, "begin", "end"),
        unit_spans=tile(one.unit_spans, "begin", "end"),
        arrivals=tile(one.arrivals, "time"),
    )


STAGES: dict[str, Callable[[Capture], object]] = {
    "decode words": decode_events,
    "build trace": build_trace,
    "event graph": lambda capture: build_graph(build_trace(capture)),
    "critical path": lambda capture: find_critical_path(build_trace(capture)),
    "whole report": lambda capture: build_report(build_trace(capture)),
}


def measure(stage: str, num_events: int) -> dict[str, float]:
    """Runs one stage; returns its seconds and the process's peak memory in MiB, before it and after."""
    capture = repeat_capture(num_events)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.perf_counter()
    STAGES[stage](capture)
    seconds = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"events": len(capture.words), "seconds": seconds, "before_mib": before, "peak_mib": after}


def main() -> None:
    """Prints a line per stage. A stage contains those before it that it needs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000, help="events in the capture (default 2,000,000)")
    parser.add_argument("--stage", choices=STAGES, help="this stage only, result as JSON")
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(measure(options.stage, options.events)))
        return
    print(f"{'stage':16} {'events':>12} {'seconds':>8} {'M events/s':>11} {'peak MiB':>9} {'of it capture':>14}")
    for stage in STAGES:
        command = [sys.executable, __file__, "--stage", stage, "--events", str(options.events)]
        found = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
        rate = found["events"] / found["seconds"] / 1e6
        print(
            f"{stage:16} {found['events']:12,} {found['seconds']:8.2f} {rate:11.2f} {found['peak_mib']:9,.0f} "
            f"{found['before_mib']:14,.0f}"
        )


if __name__ == "__main__":
    main()
