"""The section of docs/performance.md about the dashboard, made from measured figures."""

from __future__ import annotations

import json
from pathlib import Path

RESULTS = Path(__file__).parent / "results.json"
PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
HEADING = "## The dashboard's timeline"

_TEXT = """{heading}

Written by `python -m benchmarks.dashboard`. A launch of {spans:,} spans on 132 SMs, shown in headless Chromium on the
machine of the server: 2 cores, at a load average of {load_average:.1f}. A zoom runs from the key press
until the new window's boxes are drawn: asking, cutting out and merging the boxes, sending, decoding, drawing.

| step | measured | target | ratio |
|---|---:|---:|---:|
| zoom, median of {zooms} | {median_ms} ms | {target_ms} ms | {ratio:.2f} |
| zoom, p95 | {p95_ms} ms | {target_ms} ms | {p95_ratio:.2f} |
| open the timeline, from its tables | {open_s:.1f} s | | |
| the same for the first time: decode the capture | {first_open_s:.1f} s | | |
| until it also shows the bubbles | {complete_s:.1f} s | | |
| until the overview says its verdict: all analyses | {verdict_s:.1f} s | | |

Times begin when the address is entered, in a server that has just been started. What is not there yet is said to be
under way, and filled in. After the first opening, the launch's tables lie beside its capture.

At most {max_boxes:,} boxes were drawn at a time; the page says how many more each view merges.
"""


def dashboard_section() -> str:
    """Returns the section, "" if nothing has been measured yet."""
    if not RESULTS.exists():
        return ""
    figures = json.loads(RESULTS.read_text("utf-8"))
    return _TEXT.format(heading=HEADING, p95_ratio=figures["p95_ms"] / figures["target_ms"], **figures)


def rewrite_section() -> None:
    """Puts the section at the end of docs/performance.md, in place of an earlier one."""
    before = PAGE.read_text("utf-8").partition(HEADING)[0].rstrip()
    PAGE.write_text(f"{before}\n\n{dashboard_section()}", "utf-8")
