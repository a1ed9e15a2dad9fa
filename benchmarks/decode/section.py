"""The section of docs/performance.md about captures, made from measured figures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
HEADING = "## Reading, analysing and exporting captures"

_TEXT = """{heading}

Written by `python -m benchmarks.decode`. A capture of {events:,} events on {sms} SMs with the activity of their units,
a ring pipeline. Each stage runs in a process of its own, {repeats} times, on {machine},
with the capture (and, but for the first two, its Trace) already in memory; the least of the times is given, and the
rate of that run.
Load average while measuring: {load:.1f}, this benchmark's own included.

| stage | seconds | CPU s | a second | peak memory |
|---|---:|---:|---:|---:|
"""

_NOTE = """
"Build the Trace" is from the event words to all of its tables: spans paired and nested, waits with the arrival that
released them, activity of the units, counters. The peak of memory includes the capture, and what a stage starts from.
"""


def decode_section() -> str:
    """Returns the section, "" if nothing has been measured yet."""
    if not RESULTS.exists():
        return ""
    figures = json.loads(RESULTS.read_text("utf-8"))
    rows = "\n".join(map(_row, figures["stages"]))
    return f"{_TEXT.format(heading=HEADING, **figures['setting'])}{rows}\n{_NOTE}"


def _row(stage: Mapping[str, Any]) -> str:
    # A Perfetto file is what it shows: slices, instants and counter values alike.
    drawn = {name: stage["work"].get(name, 0) for name in ("slices", "instants", "counters")}
    done, unit = (sum(drawn.values()), "rows") if any(drawn.values()) else (stage["work"]["events"], "events")
    rate = done / stage["seconds"] / 1e6
    counted = (
        f" ({', '.join(f'{number / 1e6:.2f} M {name}' for name, number in drawn.items())})" if unit == "rows" else ""
    )
    return (
        f"| {stage['stage']}{counted} | {stage['seconds']:.2f} | {stage['cpu_seconds']:.2f} | "
        f"{rate:.2f} M {unit} | {stage['peak_mib'] / 1024:.2f} GiB |"
    )


def rewrite_section() -> None:
    """Puts the section into docs/performance.md, in place of an earlier one, or before the dashboard's."""
    text = PAGE.read_text("utf-8")
    before, _, old = text.partition(HEADING)
    if old:
        after = old[old.index("\n## ") + 1 :] if "\n## " in old else ""
    else:
        before, found, rest = text.partition("## The dashboard's timeline")
        after = found + rest
    PAGE.write_text(f"{before.rstrip()}\n\n{decode_section()}\n{after}".rstrip() + "\n", "utf-8")
