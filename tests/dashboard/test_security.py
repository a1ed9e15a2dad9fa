from __future__ import annotations

import re
from pathlib import Path

import pytest

from dashboard.app import create_app, serve
from dashboard.config import Settings
from dashboard.security import is_loopback_host
from profiler import ParamsError


def client(profile: Path, **settings):
    return create_app(profile, Settings(profile, **settings)).server.test_client()


def test_every_answer_carries_a_policy_that_keeps_the_browser_here(ring_profile: Path) -> None:
    answer = client(ring_profile).get("/")
    policy = answer.headers["Content-Security-Policy"]
    directives = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    assert directives["default-src"] == "'self'"
    assert "unsafe" not in directives["script-src"]
    assert not re.search(r"https?:|\*", policy)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "access-control-allow-origin" not in {name.lower() for name, _ in answer.headers}


def test_page_loads_nothing_from_another_machine(ring_profile: Path) -> None:
    text = client(ring_profile).get("/").get_data(as_text=True)
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "evil.example:8050"}, 403),
        ({"Host": "127.0.0.1:8050"}, 200),
        ({"Host": "[::1]:8050"}, 200),
        ({"Host": "127.0.0.1.evil.example"}, 403),
    ],
)
def test_foreign_pages_and_foreign_names_are_refused(ring_profile: Path, headers: dict[str, str], status: int) -> None:
    assert client(ring_profile).get("/api/timeline/ring-0001/rows", headers=headers).status_code == status


def test_token_is_asked_for_and_remembered(ring_profile: Path) -> None:
    browser = client(ring_profile, host="0.0.0.0", token="s3cret")
    url = "/api/timeline/ring-0001/rows"
    assert browser.get(url).status_code == 401
    assert browser.get(f"{url}?token=wrong").status_code == 401
    answer = browser.get(f"{url}?token=s3cret", headers={"Host": "gpu-box:8050"})
    assert answer.status_code == 200
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    later = client(ring_profile, host="0.0.0.0", token="s3cret")
    later.set_cookie(*cookie.split(";")[0].split("="))
    assert later.get(url).status_code == 200


def test_another_address_needs_a_token(ring_profile: Path) -> None:
    with pytest.raises(ParamsError, match=r"--host 0\.0\.0\.0 lets other machines in.*--token.*ssh -L 8050"):
        serve(ring_profile, host="0.0.0.0")


@pytest.mark.parametrize(
    ("host", "expected"),
    [("localhost:8050", True), ("127.1.2.3", True), ("[::1]", True), ("", False), ("10.0.0.1", False), ("[::", False)],
)
def test_loopback_names(host: str, expected: bool) -> None:
    assert is_loopback_host(host) is expected


def test_bodies_that_no_page_sends_are_refused(ring_profile: Path) -> None:
    answer = client(ring_profile).post(
        "/_dash-update-component", data=b"x" * (2 << 20), content_type="application/json"
    )
    assert answer.status_code == 413
