from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from dashboard.config import Settings
from profiler import ParamsError
from profiler.perfetto_server import find_perfetto_ui

pytestmark = pytest.mark.browser

HERE = ("http://127.0.0.1:", "data:", "blob:")


def test_perfetto_shows_the_launch_and_asks_nobody_else(
    chromium: Browser, serve: Callable[..., str], ring_profile: Path, ring
) -> None:
    try:
        ui = find_perfetto_ui()
    except ParamsError as error:
        pytest.skip(str(error))
    url = serve(ring_profile, Settings(ring_profile, perfetto_ui=ui))
    # A context of its own: the policy stops two requests of the UI itself, which it reports as console errors.
    context = chromium.new_context()
    page = context.new_page()
    sent: list[str] = []
    errors: list[str] = []
    page.on("response", lambda response: sent.append(response.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(f"{url}perfetto")
    frame = page.frame_locator("#perfetto")
    expect(page.locator("#perfetto")).to_have_attribute("data-loaded", "true", timeout=30_000)
    expect(frame.get_by_text("SM 000").first).to_be_visible(timeout=30_000)
    assert [address for address in sent if not address.startswith(HERE)] == []
    assert errors == []
    context.close()


def test_bubble_is_selected_in_the_frame(chromium: Browser, serve: Callable[..., str], ring_profile: Path) -> None:
    try:
        ui = find_perfetto_ui()
    except ParamsError as error:
        pytest.skip(str(error))
    url = serve(ring_profile, Settings(ring_profile, perfetto_ui=ui))
    context = chromium.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.goto(f"{url}bubbles")
    row = page.get_by_label("Tensor-core bubbles by cause").locator("tbody tr").filter(has_text="slot not free").first
    row.get_by_text("in Perfetto").click()
    frame = page.locator("#perfetto")
    expect(frame).to_have_attribute("data-selected", re.compile(r"\d+"), timeout=40_000)
    expect(page.locator(".perfetto-status")).to_contain_text("bubble: slot not free")
    begin, end = (int(frame.get_attribute(name) or "") for name in ("data-begin", "data-end"))
    selected = page.evaluate(
        """async () => {
          const { ctx } = document.getElementById("perfetto").contentWindow;
          const id = ctx.selection.selection.eventId;
          const found = await ctx.engine.query(`select ts, dur from slice where id = ${id}`);
          const { ts, dur } = found.firstRow({ ts: 0n, dur: 0n });
          return [String(id), Number(ts), Number(dur)];
        }"""
    )
    assert selected[0] == frame.get_attribute("data-selected")
    assert selected[1] < end
    assert selected[1] + selected[2] > begin
    context.close()
