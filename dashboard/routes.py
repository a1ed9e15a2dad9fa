"""Routes beside Dash's own: the timeline's data, downloads, the Perfetto UI.

Launches and tables are looked up by name among those that exist; no part of a request becomes a path, except below the
folder of the Perfetto UI, where Flask refuses to leave it.
"""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import flask

from dashboard.downloads import DOWNLOADS
from dashboard.quantities import Units
from dashboard.security import PERFETTO_POLICY
from dashboard.state import ViewState
from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.timeline.search import MAX_TEXT, find_hit
from dashboard.timeline.selection import describe_selection
from dashboard.timeline.window import MAX_ROWS, MAX_WIDTH, encode_window
from profiler import CaptureError, ParamsError

_GZIP_FROM_BYTES = 4096


def add_routes(server: flask.Flask, store: LaunchStore, perfetto_ui: Path | None) -> None:
    """Adds the routes to a Flask server."""

    def loaded(name: str) -> LoadedLaunch:
        launch = store.find(name) if name else None
        if launch is None:
            flask.abort(404, "There is no such launch.")
        try:
            return store.load(launch)
        except CaptureError as error:
            flask.abort(422, str(error))

    server.add_url_rule("/api/timeline/<launch>/rows", "timeline_rows", lambda launch: _rows(loaded(launch)))
    server.add_url_rule("/api/timeline/<launch>/known", "timeline_known", lambda launch: _known(loaded(launch)))
    server.add_url_rule("/api/timeline/<launch>/window", "timeline_window", lambda launch: _window(loaded(launch)))
    server.add_url_rule("/api/timeline/<launch>/select", "timeline_select", lambda launch: _select(loaded(launch)))
    server.add_url_rule("/api/timeline/<launch>/search", "timeline_search", lambda launch: _search(loaded(launch)))
    server.add_url_rule(
        "/api/timeline/<launch>/overview",
        "timeline_overview",
        lambda launch: _compressed(loaded(launch).overview, "application/octet-stream"),
    )
    server.add_url_rule("/download/<launch>/<file>", "download", lambda launch, file: _download(loaded(launch), file))
    if perfetto_ui is not None:
        folder = perfetto_ui.resolve()
        server.add_url_rule("/perfetto-ui/<path:path>", "perfetto", lambda path: _perfetto_file(folder, path))
        server.add_url_rule("/perfetto-ui/", "perfetto_index", lambda: _perfetto_file(folder, "index.html"))


def _rows(launch: LoadedLaunch) -> flask.Response:
    index = launch.timeline
    body = {
        "rows": [row.to_json() for row in index.rows],
        "styles": index.styles.to_json(),
        "end": index.end,
        "clock_hz": launch.trace.header.clock_hz,
        "boxes": index.num_boxes,
    }
    return _compressed(flask.json.dumps(body).encode(), "application/json")


def _known(launch: LoadedLaunch) -> flask.Response:
    """Says which parts of the report the timeline can show already."""
    return flask.jsonify({part: launch.is_known(part) for part in ("bubbles", "barrier_waits")})


def _window(launch: LoadedLaunch) -> flask.Response:
    index = launch.timeline
    t0, t1 = _number("t0", -math.inf), _number("t1", -math.inf)
    width = int(min(max(_number("width", 0), 1), MAX_WIDTH))
    if not -index.end <= t0 < t1 <= 2 * index.end + 1:
        flask.abort(400, "t0 and t1 must be a window of the launch, in cycles.")
    rows = _parse_rows(flask.request.args.get("rows", ""), len(index.rows))
    return _compressed(encode_window(index, rows, t0, t1, width), "application/octet-stream")


def _select(launch: LoadedLaunch) -> flask.Response:
    state = ViewState.parse(flask.request.query_string.decode("ascii", "replace"))
    units = Units(state.units, launch.trace.header.clock_hz)
    found = describe_selection(launch.report, state.sel, units)
    if found is None:
        flask.abort(404, "There is no such box.")
    return flask.jsonify(found.to_json())


def _search(launch: LoadedLaunch) -> flask.Response:
    text = flask.request.args.get("q", "")[:MAX_TEXT]
    hit, row = (int(min(max(_number(name, -1), -1), 1 << 40)) for name in ("hit", "row"))
    return flask.jsonify(find_hit(launch.report, launch.timeline, text, hit, row, _number("t0", 0)).to_json())


def _download(launch: LoadedLaunch, file: str) -> flask.Response:
    make = DOWNLOADS.get(file)
    if make is None:
        flask.abort(404, "There is no such file.")
    try:
        body, mimetype = make(launch, flask.request.args.get("query", ""))
    except ParamsError as error:
        flask.abort(400, str(error))
    response = flask.Response(body, mimetype=mimetype)
    response.headers["Content-Disposition"] = flask_attachment(f"{launch.name}-{file}")
    return response


def flask_attachment(name: str) -> str:
    """Returns the Content-Disposition of a file that is saved under `name`."""
    safe = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in name)
    return f'attachment; filename="{safe.encode("ascii", "replace").decode().replace("?", "_")}"'


def _perfetto_file(folder: Path, path: str) -> flask.Response:
    response = flask.send_from_directory(folder, path)
    response.headers["Content-Security-Policy"] = PERFETTO_POLICY
    return response


def _number(name: str, default: float) -> float:
    try:
        value = float(flask.request.args.get(name, ""))
    except ValueError:
        return default
    return value if math.isfinite(value) else default


def _parse_rows(text: str, num_rows: int) -> list[int]:
    """Reads `0,1,8-15`; rows that do not exist are left out, and what comes after the first 600."""
    rows: list[int] = []
    for part in text[:4096].split(","):
        first, _, last = part.partition("-")
        if first.isdecimal() and (last.isdecimal() or not last):
            end = min(int(last or first) + 1, num_rows)
            rows += range(int(first), min(end, int(first) + MAX_ROWS))
    return rows[:MAX_ROWS]


def _compressed(body: bytes, mimetype: str) -> flask.Response:
    """Returns a response, gzipped if that pays and the browser can read it: most dashboards sit behind a tunnel."""
    response = flask.Response(body, mimetype=mimetype)
    if len(body) > _GZIP_FROM_BYTES and "gzip" in flask.request.accept_encodings:
        response.set_data(gzip.compress(body, 1, mtime=0))
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Cache-Control"] = "private, no-store"
    return response
