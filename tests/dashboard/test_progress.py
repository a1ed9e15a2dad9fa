"""Pages of a launch whose analyses take their time: a gate holds them up until a test opens it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dashboard.markup import lighten
from dashboard.render import Renderer
from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.work import PARTS
from mgpu.profile_dir import save_launch
from profiler import Report
from support.captures import ring_capture


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, threading.Event]]:
    """Events by part: a part is only found once its event is set."""
    events = {part: threading.Event() for part in PARTS}
    compute = LoadedLaunch.compute

    def wait_and_compute(launch: LoadedLaunch, part: str) -> None:
        events[part].wait(20)
        compute(launch, part)

    monkeypatch.setattr(LoadedLaunch, "compute", wait_and_compute)
    yield events
    for event in events.values():
        event.set()


def text_of(page: Any) -> str:
    return json.dumps(lighten(page).to_plotly_json(), default=lambda one: one.to_plotly_json())


@pytest.fixture
def renderer(ring_profile: Path) -> Renderer:
    return Renderer(LaunchStore(ring_profile), patience_seconds=0.05)


def finish(renderer: Renderer, gate: dict[str, threading.Event], *parts: str) -> None:
    for part in parts:
        gate[part].set()
    launch = renderer.store.find("")
    assert launch is not None
    renderer.store.load(launch, parts)


def test_page_says_what_it_waits_for_and_opens_when_that_is_there(
    renderer: Renderer, gate: dict[str, threading.Event]
) -> None:
    before, is_missing = renderer.readiness("/bubbles", "")
    assert is_missing
    text = text_of(renderer.page("/bubbles", ""))
    assert "Analysing ring-0001" in text
    assert PARTS["bubbles"] in text
    finish(renderer, gate, "utilisation", "bubbles")
    after, is_missing = renderer.readiness("/bubbles", "")
    assert after != before
    assert not is_missing
    assert "By cause and place" in text_of(renderer.page("/bubbles", ""))


def test_overview_fills_itself_part_by_part(renderer: Renderer, gate: dict[str, threading.Event]) -> None:
    finish(renderer, gate, "utilisation")
    first = text_of(renderer.page("/", ""))
    assert "Tensor cores busy" in first
    assert f"{PARTS['bubbles']} " in first
    assert "Tensor-core bubbles by cause" not in first
    finish(renderer, gate, "bubbles")
    assert "Tensor-core bubbles by cause" in text_of(renderer.page("/", ""))
    finish(renderer, gate, *PARTS)
    whole = text_of(renderer.page("/", ""))
    assert "What to change first" in whole
    assert "pending" not in whole


def test_timeline_opens_without_bubbles(renderer: Renderer, gate: dict[str, threading.Event]) -> None:
    finish(renderer, gate, "utilisation")
    assert renderer.readiness("/timeline", "") == ("trace,utilisation", False)
    assert "timeline-canvas" in text_of(renderer.page("/timeline", ""))


def test_a_page_that_fails_names_the_failure_and_leaves_the_others(
    renderer: Renderer, gate: dict[str, threading.Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Report) -> None:
        raise ZeroDivisionError("no SM")

    finish(renderer, gate, *PARTS)
    monkeypatch.setattr("dashboard.views.roofline.figures.roofline", fail)
    assert "ZeroDivisionError: no SM" in text_of(renderer.page("/roofline", ""))
    assert "Every SM" in text_of(renderer.page("/sms", ""))


def test_tables_are_kept_for_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_launch(tmp_path, ring_capture())
    monkeypatch.setattr("dashboard.store.TABLES_FROM_SPANS", 1)
    store = LaunchStore(tmp_path)
    launch = store.find("")
    assert launch is not None
    spans = store.load(launch, ["tables"]).trace.spans
    assert launch.tables.is_dir()
    assert LaunchStore(tmp_path).load(launch).trace.spans.equals(spans)
