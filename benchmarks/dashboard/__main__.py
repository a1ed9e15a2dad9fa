"""How long the timeline of the dashboard takes to open and to zoom, from the key press to the drawn picture.

    python -m benchmarks.dashboard [--spans 10000000]

The launch is the ring pipeline of `benchmarks.decode`, repeated over CTAs on 132 SMs until it holds that many spans;
the browser is a headless Chromium (CHROMIUM=/path/to/it to choose one) on the same machine. The launch is opened twice,
each time by a server that has just been started: from its capture, and from the tables that the first one kept. A zoom
is over when the window's boxes have been asked for, made, sent, decoded and drawn. Medians go to results.json beside
this file and to docs/performance.md.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from werkzeug.serving import make_server

from benchmarks.dashboard.section import RESULTS, rewrite_section
from benchmarks.decode import repeat_capture
from dashboard.app import create_app
from dashboard.store import LaunchStore
from dashboard.work import TABLES
from mgpu.profile_dir import save_launch

TARGET_MS = 150
EVENTS_PER_SPAN = 2.2  # of the ring: begin and end of each, and arrivals
ZOOMS = 12
PATIENCE_MS = 900_000
COMPLETE = '.timeline-canvas[data-complete="true"]'
VIEWPORT: Any = {"width": 1400, "height": 900}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]

# Zooms by the timeline's own step at a random-looking but fixed place, and waits until the new boxes are on screen.
_ZOOM = """async ([factor, share]) => {
  const timeline = window.mgpu.timeline;
  const before = timeline.data;
  const { t0, t1 } = timeline.view;
  const began = performance.now();
  timeline.zoom(factor, t0 + share * (t1 - t0));
  while (timeline.data === before) await new Promise((resolve) => setTimeout(resolve, 1));
  await new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve, 0)));
  return [performance.now() - began, timeline.data.n, timeline.data.standsFor];
}"""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[tuple[str, LaunchStore]]:
    """Starts a server that knows nothing yet."""
    store = LaunchStore(folder)
    server = make_server("127.0.0.1", 0, create_app(folder, store=store).server, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/", store
    server.shutdown()


def open_timeline(page: Page, url: str) -> float:
    """Returns the seconds until the timeline is drawn."""
    began = time.perf_counter()
    page.goto(f"{url}timeline")
    page.locator(".timeline-canvas[data-ready][data-boxes]").wait_for(timeout=PATIENCE_MS)
    return time.perf_counter() - began


def measure(browser: Browser, folder: Path) -> dict[str, Any]:
    """Opens the launch for the first time and again; returns seconds, and milliseconds of each zoom."""
    with serving(folder) as (url, store):
        page = browser.new_page(viewport=VIEWPORT)
        first_open = open_timeline(page, url)
        # Or what this server still works on would slow down the next one, which shares its process.
        page.locator(COMPLETE).wait_for(timeout=PATIENCE_MS)
        launch = store.find("")
        assert launch is not None
        spans = store.load(launch, [TABLES]).trace.spans.height
        page.close()
    with serving(folder) as (url, _):
        page = browser.new_page(viewport=VIEWPORT)
        began = time.perf_counter()
        opened = open_timeline(page, url)
        page.locator(COMPLETE).wait_for(timeout=PATIENCE_MS)
        complete = time.perf_counter() - began
        zooms = _zoom(page, 1.35) + _zoom(page, 1 / 1.35)
        began = time.perf_counter()
        page.goto(url)
        page.locator(".verdict-sentence").wait_for(timeout=PATIENCE_MS)
        verdict = complete + time.perf_counter() - began
        page.close()
    times = {"first_open_s": first_open, "open_s": opened, "complete_s": complete, "verdict_s": verdict}
    return {"spans": spans, "zooms": zooms, "times": times}


def _zoom(page: Page, factor: float) -> list[dict[str, float]]:
    rows = []
    for number in range(ZOOMS):
        ms, boxes, stands_for = page.evaluate(_ZOOM, [factor, (0.31 + 0.17 * number) % 1])
        rows.append({"ms": ms, "boxes": boxes, "stands_for": stands_for})
    return rows


def summarise(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the figures that are kept."""
    times = sorted(row["ms"] for row in found["zooms"])
    return {
        "spans": found["spans"],
        **{name: round(seconds, 2) for name, seconds in found["times"].items()},
        "zooms": len(times),
        "median_ms": round(statistics.median(times)),
        "p95_ms": round(times[int(0.95 * (len(times) - 1))]),
        "max_boxes": max(row["boxes"] for row in found["zooms"]),
        "target_ms": TARGET_MS,
        "load_average": round(os.getloadavg()[1], 1),
        "ratio": round(statistics.median(times) / TARGET_MS, 2),
    }


def main() -> None:
    """Makes the launch, opens it and writes the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spans", type=int, default=10_000_000, help="spans of the launch (default 10,000,000)")
    options = parser.parse_args()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("No Chromium found: install one, or set CHROMIUM=/path/to/it.")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_launch(folder, repeat_capture(int(options.spans * EVENTS_PER_SPAN)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
            figures = summarise(measure(browser, folder))
            browser.close()
    RESULTS.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
    rewrite_section()
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
