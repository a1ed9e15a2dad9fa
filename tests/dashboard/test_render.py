from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dash import dcc, html

from dashboard.app import view_key
from dashboard.markup import is_plain, lighten, to_html, to_tree
from dashboard.render import Renderer
from dashboard.source_lines import read_source, source_files
from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.views.registry import PAGES
from mgpu.profile_dir import save_launch
from profiler import CaptureError
from support.captures import ring_capture


def page_text(renderer: Renderer, path: str, search: str = "") -> str:
    return json.dumps(lighten(renderer.page(path, search)).to_plotly_json(), default=lambda one: one.to_plotly_json())


@pytest.mark.parametrize("page", [page.name for page in PAGES])
def test_every_page_can_be_made_of_every_profile(page: str, ring_profile: Path, matmul_profile: Path) -> None:
    for profile in (ring_profile, matmul_profile):
        for search in ("", "?units=ns"):
            content = Renderer(LaunchStore(profile), patience_seconds=60).page(f"/{page}", search)
            assert "page" in str(lighten(content))


def test_measured_launch_without_unit_activity_has_all_pages(tmp_path: Path) -> None:
    save_launch(tmp_path, ring_capture(activity=False))
    renderer = Renderer(LaunchStore(tmp_path), patience_seconds=60)
    for page in PAGES:
        assert renderer.page(f"/{page.name}", "")
    assert "inferred" in page_text(renderer, "/")


def test_dropped_events_are_told_on_the_first_page(tmp_path: Path) -> None:
    save_launch(tmp_path, ring_capture(capacity=12))
    text = page_text(Renderer(LaunchStore(tmp_path), patience_seconds=60), "/")
    assert "did not fit" in text
    assert "profile_space=" in text


def test_an_empty_directory_says_how_to_fill_it(tmp_path: Path) -> None:
    for path in ("/", "/runs"):
        text = page_text(Renderer(LaunchStore(tmp_path), patience_seconds=60), path)
        assert "No launches yet" in text
        assert "CompilerParams(profile_space=" in text


def test_an_unreadable_launch_stands_beside_the_others(tmp_path: Path) -> None:
    good = save_launch(tmp_path, ring_capture())
    bad = tmp_path / "torn-0001"
    bad.mkdir()
    (bad / "capture.npz").write_bytes((good / "capture.npz").read_bytes()[:300])
    renderer = Renderer(LaunchStore(tmp_path), patience_seconds=60)
    runs = page_text(renderer, "/runs")
    assert "cannot be read" in runs
    assert "ring-0001" in runs
    assert "torn-0001 cannot be read" in page_text(renderer, "/", "?launch=torn-0001")
    assert "Tensor core" in page_text(renderer, "/", "?launch=ring-0001")
    assert "torn-0001" in json.dumps([str(part) for part in renderer.top_bar("?launch=torn-0001")])


def test_what_does_not_exist_is_said_to_be_missing(ring_profile: Path) -> None:
    renderer = Renderer(LaunchStore(ring_profile), patience_seconds=60)
    assert "There is no launch 'x'" in page_text(renderer, "/", "?launch=x").replace("\\", "")
    assert "There is no page" in page_text(renderer, "/nowhere")


def test_new_launches_are_seen_without_a_restart(tmp_path: Path) -> None:
    store = LaunchStore(tmp_path)
    before = store.fingerprint()
    save_launch(tmp_path, ring_capture())
    assert store.fingerprint() != before
    assert [launch.name for launch in store.launches()] == ["ring-0001"]
    launch = store.find("ring-0001")
    assert launch is not None
    assert store.load(launch) is store.load(launch)
    launch.capture_path.write_bytes(b"no longer a capture")
    with pytest.raises(CaptureError):
        store.load(launch)


def test_the_timeline_follows_its_window_itself() -> None:
    assert view_key("timeline", "?launch=a&t0=1&t1=5&sel=span:1", "x") == view_key("timeline", "?launch=a", "y")
    assert view_key("timeline", "?launch=a&units=ns", "x") != view_key("timeline", "?launch=a", "x")
    assert view_key("", "?launch=a", "x") == view_key("", "?launch=a", "y")
    assert view_key("", "", "x") != view_key("", "", "y")
    assert view_key("runs", "?launch=a", "x") != view_key("runs", "?launch=a", "y")


def test_plain_markup_is_sent_as_one_component() -> None:
    cell: Any = ["a", None, [html.B("b")]]
    table = html.Table([html.Tr(html.Td(cell, style={"backgroundColor": "red"})), None])
    assert to_tree(table) == ["table", {}, ["tr", {}, ["td", {"style": "background-color: red"}, "a", ["b", {}, "b"]]]]
    page: Any = lighten(html.Div([table, dcc.Loading("x"), "text"]))
    assert not is_plain(page)
    assert json.loads(page.children[0].to_plotly_json()["props"]["data-light"]) == to_tree(table)


def test_text_fields_need_no_dash_component() -> None:
    field = dcc.Input(value="a", type="search", className="search", debounce=True)
    assert to_tree(html.P(field)) == ["p", {}, ["input", {"type": "search", "value": "a", "class": "search"}]]


def test_text_never_becomes_markup() -> None:
    assert to_html(html.P("<script>1 & 2</script>", title='"><b>')) == (
        '<p title="&quot;&gt;&lt;b&gt;">&lt;script&gt;1 &amp; 2&lt;/script&gt;</p>'
    )


def test_source_lines_carry_their_costs(matmul: LoadedLaunch, matmul_profile: Path) -> None:
    [file] = source_files(matmul.report, captured_at=4e9)
    assert file.name == "04_warp_specialized_matmul.py"
    assert file.problem == ""
    waits = {line: cost for line, cost in file.costs.items() if "wait full" in cost.sites}
    [(line, cost)] = waits.items()
    assert "barrier_wait(full" in file.text[line - 1]
    spans = matmul.trace.spans.filter(matmul.trace.spans["name"] == "wait full")
    assert (cost.count, cost.self_cycles) == (spans.height, spans["self_dur"].sum())
    assert cost.wait_cycles == cost.self_cycles


def test_only_python_files_are_shown(tmp_path: Path) -> None:
    secret = tmp_path / "key.pem"
    secret.write_text("secret")
    assert read_source(str(secret), 4e9) == ((), f"{secret} is not a Python file and is not shown.")
    assert read_source(str(tmp_path / "gone.py"), 4e9)[1].endswith("is not on this machine.")
    kernel = tmp_path / "kernel.py"
    kernel.write_text("a\nb")
    assert read_source(str(kernel), 4e9) == (("a", "b"), "")
    assert "changed since the launch" in read_source(str(kernel), 0)[1]
