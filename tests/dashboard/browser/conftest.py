"""A real Chromium on a real server. A test fails on any console error, page error or request off the machine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Request, expect
from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from dashboard.app import create_app
from dashboard.config import Settings

expect.set_options(timeout=20_000)  # on a busy machine, a page takes its time
HERE = ("http://127.0.0.1:", "data:", "blob:")


class QuietHandler(WSGIRequestHandler):
    """Answers requests without a line of log for each."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Logs nothing."""


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    """Starts servers on free ports; returns the URL of each."""
    servers: list[BaseWSGIServer] = []

    def start(profile: Path, settings: Settings | None = None) -> str:
        app = create_app(profile, settings)
        server = make_server("127.0.0.1", 0, app.server, threaded=True, request_handler=QuietHandler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}/"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def tab(chromium: Browser) -> Iterator[Page]:
    """A tab that may talk to this machine only; fails the test if the page had an error or tried more."""
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)

    def on_request(request: Request) -> None:
        if not request.url.startswith(HERE):
            errors.append(f"request to {request.url}")

    page.on("request", on_request)
    context.route("**/*", lambda route: route.continue_() if route.request.url.startswith(HERE) else route.abort())
    yield page
    context.close()
    assert not errors, errors
