"""Settings of the whole suite: reproducible examples, one thread, no GPU unless it is asked for."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings

# Read when NumPy and JAX are first imported, which is after this file.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

settings.register_profile("reproducible", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))

_CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """One real, headless Chromium for all browser tests: Playwright's blocking form allows one driver at a time."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium here: install one or set CHROMIUM=/path/to/it")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=_CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()
