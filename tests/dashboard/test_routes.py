from __future__ import annotations

import gzip
import io
import json
from pathlib import Path

import polars as pl
import pytest
from flask.testing import FlaskClient

from dashboard.app import create_app
from dashboard.config import Settings
from dashboard.store import LaunchStore

TIMELINE = "/api/timeline/ring-0001"


def client(profile: Path, **settings) -> FlaskClient:
    app = create_app(profile, Settings(profile, **settings))
    return app.server.test_client()


@pytest.fixture
def ring_client(ring_profile: Path) -> FlaskClient:
    return client(ring_profile)


def test_rows_name_everything_that_is_drawn(ring_client: FlaskClient) -> None:
    body = ring_client.get(f"{TIMELINE}/rows").get_json()
    assert body["rows"][0]["key"] == "sm:0"
    assert {"name", "color", "hatched", "line"} <= set(body["styles"][0])


def test_windows_are_compressed_for_browsers_that_can_read_that(ring_client: FlaskClient) -> None:
    url = f"{TIMELINE}/window?t0=0&t1=3000&width=2000&rows=0-30"
    plain = ring_client.get(url)
    packed = ring_client.get(url, headers={"Accept-Encoding": "gzip"})
    assert plain.data[:4] == b"MGT1"
    assert packed.headers["Content-Encoding"] == "gzip"
    assert gzip.decompress(packed.data) == plain.data


@pytest.mark.parametrize(
    "query",
    ["", "t0=0&t1=0", "t0=5&t1=1", "t0=nan&t1=3", "t0=-1e99&t1=1e99", "t0=0&t1=inf&rows=0-999999999999&width=1e30"],
)
def test_windows_that_make_no_sense_are_refused(ring_client: FlaskClient, query: str) -> None:
    assert ring_client.get(f"{TIMELINE}/window?{query}").status_code == 400


def test_huge_parameters_cost_no_more_than_the_launch_has(ring_client: FlaskClient) -> None:
    answer = ring_client.get(f"{TIMELINE}/window?t0=0&t1=3000&width=1e30&rows=0-99999999999,5,x,-,7-3")
    assert answer.status_code == 200
    assert len(answer.data) < 100_000
    assert ring_client.get(f"{TIMELINE}/window?rows={'1,' * 9000}").status_code == 414


@pytest.mark.parametrize(
    "path",
    [
        "/download/ring-0001/../../../etc/passwd",
        "/download/..%2f..%2fetc/passwd",
        "/download/%2e%2e/capture.npz",
        "/download/ring-0001/..%2fcapture.npz",
        "/download/ring-0001/%2fetc%2fpasswd",
        "/api/timeline/..%2f..%2fring-0001/rows",
        "/api/timeline/%00/rows",
        "/perfetto-ui/..%2f..%2f__init__.py",
        "/perfetto-ui/../../../../etc/passwd",
        "/perfetto-ui/%2fetc%2fpasswd",
    ],
)
def test_no_path_leads_out_of_the_profile(ring_profile: Path, tmp_path: Path, path: str) -> None:
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "index.html").write_text("ui")
    (tmp_path / "__init__.py").write_text("secret")
    answer = client(ring_profile, perfetto_ui=tmp_path / "ui").get(path)
    # Dash answers unknown paths with its empty page; anything else must be refused.
    assert answer.status_code == 404 or b"_dash-config" in answer.data
    assert b"secret" not in answer.data
    assert b"root:" not in answer.data


def test_downloads_hold_the_tables(ring_client: FlaskClient, ring) -> None:
    answer = ring_client.get("/download/ring-0001/spans.csv")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="ring-0001-spans.csv"'
    assert pl.read_csv(io.BytesIO(answer.data))["begin"].to_list() == ring.trace.spans["begin"].to_list()
    parquet = ring_client.get("/download/ring-0001/barrier_waits.parquet")
    assert pl.read_parquet(io.BytesIO(parquet.data)).equals(ring.report.barrier_waits.barriers)
    report = json.loads(ring_client.get("/download/ring-0001/report.json").data)
    assert report["kernel"] == "ring"
    assert ring_client.get("/download/ring-0001/trace.pftrace").data
    assert ring_client.get("/download/ring-0001/nothing.csv").status_code == 404


def test_filtered_table_is_downloaded_filtered(ring_client: FlaskClient, ring) -> None:
    answer = ring_client.get("/download/ring-0001/spans.csv?query=kind%3Dbarrier_wait+dur%3E400")
    waits = ring.trace.spans.filter((pl.col("kind") == "barrier_wait") & (pl.col("dur") > 400))
    assert pl.read_csv(io.BytesIO(answer.data))["span"].to_list() == waits["span"].to_list()
    refused = ring_client.get("/download/ring-0001/spans.parquet?query=nothing%3D1")
    assert refused.status_code == 400
    assert b"there is no column" in refused.data


def test_search_answers_with_a_selection(ring_profile: Path) -> None:
    store = LaunchStore(ring_profile)
    launch = store.find("")
    assert launch is not None
    store.load(launch, ["bubbles"])
    ring_client = create_app(ring_profile, store=store).server.test_client()
    found = ring_client.get(f"{TIMELINE}/search?q=slot+not+free&hit=1").get_json()
    assert found["hit"] == 1
    assert ring_client.get(f"{TIMELINE}/select?sel={found['key']}").get_json()["title"].startswith("bubble: slot not")
    odd = "q=full&hit=1e300&row=-1e300&t0=nan"
    assert ring_client.get(f"{TIMELINE}/search?{odd}").status_code == 200
    assert ring_client.get(f"{TIMELINE}/search?q=full&row=1e18").get_json()["total"] > 0
    assert ring_client.get(f"{TIMELINE}/search").get_json()["total"] == 0


def test_overview_is_sent(ring_client: FlaskClient) -> None:
    assert ring_client.get(f"{TIMELINE}/overview").data[:4] == b"MGO1"


def test_a_broken_capture_is_an_answer_not_a_crash(tmp_path: Path) -> None:
    folder = tmp_path / "broken-0001"
    folder.mkdir()
    (folder / "capture.npz").write_bytes(b"PK\x03\x04 not quite")
    answer = client(tmp_path).get("/api/timeline/broken-0001/rows")
    assert answer.status_code == 422
    assert b"capture" in answer.data
