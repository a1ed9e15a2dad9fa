"""Runs groups of accuracy benchmarks (all by default), saves their results, and rewrites docs/accuracy.md."""

from __future__ import annotations

import argparse
import dataclasses
import json
import pathlib

from benchmarks.accuracy.page import write_page
from benchmarks.accuracy.points import GROUPS
from mgpu.devices import load_device

RESULTS = pathlib.Path(__file__).parent / "results"
DOCS = pathlib.Path(__file__).parents[2] / "docs"


def main() -> None:
    """Command line: `python -m benchmarks.accuracy [group ...]`; `--page-only` simulates nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("groups", nargs="*", choices=[[], *GROUPS], default=[], help="groups to run; all by default")
    parser.add_argument("--page-only", action="store_true", help="rewrite the page from saved results")
    options = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    device = load_device("h100")
    for name in [] if options.page_only else options.groups or GROUPS:
        points = []
        for point in GROUPS[name].run(device):
            print(f"{name}: {point.name}: measured {point.measured:g}, predicted {point.predicted:.4g}", flush=True)
            points.append(dataclasses.asdict(point))
        (RESULTS / f"{name}.json").write_text(json.dumps(points, indent=1) + "\n")
    write_page(RESULTS, DOCS)


if __name__ == "__main__":
    main()
