"""Times each stage from the event words of a large capture to the answers and to the Perfetto file.

    python -m benchmarks.decode [--events 10000000] [--repeats 3] [--write]

Rates are printed, not asserted: machines differ. `--write` keeps the figures in results.json beside this file, and in
docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from typing import Any

from benchmarks.decode.captures import NUM_SMS
from benchmarks.decode.section import RESULTS, rewrite_section
from benchmarks.decode.stages import STAGES, measure


def _apart(stage: str, events: int, repeats: int) -> dict[str, Any]:
    """Runs a stage in a process of its own, so that the peak of memory is its own."""
    command = [sys.executable, "-m", "benchmarks.decode", "--stage", stage]
    command += ["--events", str(events), "--repeats", str(repeats)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    return {"stage": stage, **json.loads(done.stdout)}


def _print(found: dict[str, Any]) -> None:
    amounts = ", ".join(
        f"{number:,} {name} ({number / found['seconds'] / 1e6:.2f} M/s)" for name, number in found["work"].items()
    )
    times = f"{found['seconds']:6.2f} s {found['cpu_seconds']:6.2f} CPU s {found['peak_mib']:7,.0f} MiB"
    print(f"{found['stage']:32} {times}  {amounts}", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=2_000_000, help="events in the capture (default 2,000,000)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each stage, of which the fastest counts")
    parser.add_argument("--stage", choices=STAGES, help="this stage only, result as JSON")
    parser.add_argument("--write", action="store_true", help="keep the figures in docs/performance.md")
    options = parser.parse_args()
    if options.stage:
        print(json.dumps(measure(options.stage, options.events, options.repeats)))
        return
    rows = []
    for stage in STAGES:
        rows.append(_apart(stage, options.events, options.repeats))
        _print(rows[-1])
    if options.write:
        machine = f"{os.cpu_count()} cores of {platform.machine()}, Python {platform.python_version()}"
        events = rows[0]["work"]["events"]
        setting = {"events": events, "sms": NUM_SMS, "repeats": options.repeats, "machine": machine}
        setting["load"] = os.getloadavg()[0]
        RESULTS.write_text(json.dumps({"setting": setting, "stages": rows}, indent=1) + "\n", "utf-8")
        rewrite_section()


if __name__ == "__main__":
    main()
