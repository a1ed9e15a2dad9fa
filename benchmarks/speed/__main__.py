"""Measures warm simulated runs, saves the figures, and rewrites docs/performance.md."""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import platform
import subprocess
import sys
from typing import Any

import numpy as np

from benchmarks.speed.cases import CASES, PROFILED, Case, measure, profile
from benchmarks.speed.page import write_page

HERE = pathlib.Path(__file__).parent
RESULTS = HERE / "results.json"
ACTIONS = {"measure": measure, "profile": profile}


def _apart(action: str, case: Case) -> dict[str, Any]:
    """Runs a case in a process of its own, so that the peak of memory is its own."""
    command = [sys.executable, "-m", "benchmarks.speed", "--case", action, case.kernel, str(case.size), case.mode]
    return _run(command)[-1]


def compare_with_jax(python: str) -> list[dict[str, Any]]:
    """Times JAX's GPU interpret mode beside the simulator, in one process of `python`, which needs JAX 0.12."""
    return _run([python, "-m", "benchmarks.speed.interpreter"])


def _run(command: list[str]) -> list[dict[str, Any]]:
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=HERE.parents[1])
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    print(*found, sep="\n", flush=True)
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--case",
        nargs=4,
        metavar=("ACTION", "KERNEL", "SIZE", "MODE"),
        help="measure or profile one case and print the figures as JSON",
    )
    parser.add_argument(
        "--jax-python", metavar="PYTHON", help="an interpreter with JAX 0.12, to compare with JAX's own"
    )
    parser.add_argument("--only-compare", action="store_true", help="keep the saved figures of everything else")
    parser.add_argument("--only-page", action="store_true", help="measure nothing: write the page from saved figures")
    options = parser.parse_args()
    if options.case:
        action, kernel, size, mode = options.case
        print(json.dumps(ACTIONS[action](Case(kernel, int(size), mode))))
        return
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if not options.only_page:
        if not options.only_compare:
            results["rows"] = [_apart("measure", case) for case in CASES]
            results["profiles"] = [_apart("profile", case) for case in PROFILED]
            results["load"] = (
                f"Load average while measuring: {os.getloadavg()[2]:.1f}, this benchmark's own 1 included."
            )
            results["machine"] = (
                f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, "
                f"NumPy {np.__version__}"
            )
        if options.jax_python:
            results["compared"] = compare_with_jax(options.jax_python)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write_page(results)


if __name__ == "__main__":
    main()
