"""Who may ask, and what the browser may do with an answer.

A server on a loopback address still is in reach of every page that the user's browser shows: such a page may send
requests to it (cross-origin), or give a name of its own the address 127.0.0.1 (DNS rebinding). So requests must name
this server as their host and, if they come from a page, come from one of ours. Any other address takes a token.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

import flask

from dashboard.config import Settings

COOKIE = "mgpu_token"
_MAX_QUERY_BYTES = 8192
_MAX_BODY_BYTES = 1 << 20  # callbacks send the state of a page, which is a few kB

# Plotly and the charts' tooltips set inline styles; nothing else is inline, and nothing comes from another machine.
_POLICY = (
    "default-src 'self'; script-src 'self' {scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "font-src 'self' data:; connect-src 'self'; frame-src 'self'; object-src 'none'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'self'"
)
# The Perfetto UI compiles WebAssembly and starts workers from blobs. It may still talk to this server only.
PERFETTO_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval' 'unsafe-inline' blob:; worker-src 'self' blob:; "
    "connect-src 'self' blob: data:; img-src 'self' data: blob:; style-src 'self' 'unsafe-inline'; "
    "font-src 'self' data:; frame-ancestors 'self'"
)


def protect(server: flask.Flask, settings: Settings, script_hashes: Sequence[str]) -> None:
    """Makes a Flask server refuse foreign requests, and sends the security headers with every answer.

    Args:
      server: the application's server.
      settings: where it listens and which token it asks for.
      script_hashes: CSP hashes of the inline scripts that the application's own page contains.
    """
    server.config["MAX_CONTENT_LENGTH"] = _MAX_BODY_BYTES
    policy = _POLICY.format(scripts=" ".join(script_hashes))

    @server.before_request
    def _refuse_foreign_requests() -> flask.Response | None:
        return check_request(flask.request, settings)

    @server.after_request
    def _add_headers(response: flask.Response) -> flask.Response:
        response.headers.setdefault("Content-Security-Policy", policy)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Referrer-Policy"] = "no-referrer"
        response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
        given = flask.request.args.get("token", "")
        if settings.token and _is_equal(given, settings.token):
            response.set_cookie(COOKIE, given, httponly=True, samesite="Strict", path=settings.base_path)
        return response


def check_request(request: flask.Request, settings: Settings) -> flask.Response | None:
    """Returns the refusal of a request, None if it may pass."""
    if len(request.query_string) > _MAX_QUERY_BYTES:
        return _refusal(414, "The URL is too long.")
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.host:
        return _refusal(403, "Requests from other pages are refused.")
    if request.headers.get("Sec-Fetch-Site") == "cross-site" and request.headers.get("Sec-Fetch-Mode") != "navigate":
        return _refusal(403, "Requests from other sites are refused.")
    if settings.token:
        shown = (request.args.get("token", ""), request.cookies.get(COOKIE, ""))
        if not any(_is_equal(one, settings.token) for one in shown):
            return _refusal(
                401, "This server asks for a token: open the URL that it printed, with ?token=... at its end."
            )
    elif not is_loopback_host(request.host):
        return _refusal(
            403,
            f"This server answers to localhost only, not to {request.host[:80]!r}. Start it with --token to allow it.",
        )
    return None


def is_loopback_host(host: str) -> bool:
    """Returns True if a Host header names this machine's loopback address."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _is_equal(one: str, other: str) -> bool:
    return bool(one) and hmac.compare_digest(one.encode(), other.encode())


def _refusal(status: int, text: str) -> flask.Response:
    return flask.Response(f"{text}\n", status, mimetype="text/plain")
