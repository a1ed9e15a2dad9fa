"""Takes the pictures of the dashboard that the README and the user guide show, from a simulated matmul.

    make screenshots

Needs Chromium (CHROMIUM=/path/to/it to choose one). The pictures go to docs/images/.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
import threading
from pathlib import Path

from playwright.sync_api import Browser, expect, sync_playwright
from werkzeug.serving import make_server

from dashboard.app import create_app

IMAGES = Path(__file__).parent / "images"
SIZE = (1360, 800)
READY_MS = 60_000  # analyses and charts
# name: page and query; theme
PICTURES = {
    "overview": ("", "light"),
    "timeline": ("timeline?t0=1500&t1=14000&sel=span:4", "light"),
    "timeline-dark": ("timeline?t0=1500&t1=14000&sel=span:4", "dark"),
    "barriers": ("barriers", "light"),
    "pipeline": ("pipeline", "light"),
    "critical-path": ("critical-path", "light"),
    "source": ("source", "light"),
    "compare": ("compare", "light"),
}
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]


def take_pictures(browser: Browser, url: str, folder: Path) -> None:
    """Saves every picture as `folder`/NAME.png."""
    for name, (path, theme) in PICTURES.items():
        context = browser.new_context(
            viewport={"width": SIZE[0], "height": SIZE[1]}, color_scheme="dark" if theme == "dark" else "light"
        )
        page = context.new_page()
        page.goto(f"{url}{path}")
        page.locator(".page").first.wait_for()
        expect(page.locator(".pending, .steps, .chart-place:not(:has(.main-svg))")).to_have_count(0, timeout=READY_MS)
        if path.startswith("timeline"):
            page.locator("canvas[data-ready][data-boxes]").wait_for()
        page.wait_for_timeout(800)  # charts and labels settle
        page.screenshot(path=folder / f"{name}.png")
        context.close()


def main() -> None:
    """Serves the profile directory and takes the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("profile", help="profile directory with a recorded launch")
    options = parser.parse_args()
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("No Chromium found: install one, or set CHROMIUM=/path/to/it.")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    IMAGES.mkdir(exist_ok=True)
    server = make_server("127.0.0.1", 0, create_app(options.profile).server, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=ARGUMENTS)
        take_pictures(browser, f"http://127.0.0.1:{server.server_port}/", IMAGES)
        browser.close()
    server.shutdown()


if __name__ == "__main__":
    main()
