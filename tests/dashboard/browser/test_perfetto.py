from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, Route, expect

import profiler
from dashboard.config import Settings
from dashboard.store import LoadedLaunch
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
    row.get_by_text("Perfetto", exact=True).click()
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


# Answers as the Perfetto UI does, and keeps what it is given; it has none of the UI's own interface.
STAND_IN = """<!doctype html><title>stand-in</title><script>
  window.got = [];
  addEventListener("message", (event) => {
    if (event.data === "PING") event.source.postMessage("PONG", event.origin);
    else { window.got.push(event.data.perfetto); document.title = `got ${window.got.length}`; }
  });
</script>"""


def test_trace_is_handed_to_the_site_inside_the_browser(
    chromium: Browser, serve: Callable[..., str], ring_profile: Path, ring: LoadedLaunch, tmp_path: Path
) -> None:
    url = serve(ring_profile)
    context = chromium.new_context()
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(f"{route.request.method} {route.request.url}")
        route.fulfill(body=STAND_IN, content_type="text/html")

    context.route("https://ui.perfetto.dev/**", answer)
    page = context.new_page()
    page.goto(f"{url}perfetto")
    with context.expect_page() as opened:
        page.get_by_text("Open in ui.perfetto.dev").click()
    site = opened.value
    expect(site).to_have_title("got 1")
    expect(page.locator(".perfetto-status")).to_have_text("Opened in ui.perfetto.dev")
    title, size, head = site.evaluate(
        "() => { const { title, buffer } = window.got[0];"
        " return [title, buffer.byteLength, [...new Uint8Array(buffer.slice(0, 64))]]; }"
    )
    profiler.export_perfetto(ring.trace, tmp_path / "trace.pftrace")
    expected = (tmp_path / "trace.pftrace").read_bytes()
    assert (title, size, bytes(head)) == ("ring-0001 (h100)", len(expected), expected[:64])
    assert asked == ["GET https://ui.perfetto.dev/"]  # the trace itself is not sent
    context.close()


def test_ui_without_an_interface_is_zoomed_and_says_so(
    serve: Callable[..., str], tab: Page, ring_profile: Path, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text(STAND_IN)
    tab.goto(f"{serve(ring_profile, Settings(ring_profile, perfetto_ui=tmp_path))}perfetto?sel=span:1")
    status = tab.locator(".perfetto-status")
    expect(status).to_have_text(re.compile("^Zoomed to barrier_wait full: this build .* does not let a page select"))
    frame = tab.locator("#perfetto")
    begin, end = (int(frame.get_attribute(name) or "") for name in ("data-begin", "data-end"))
    zoom = tab.evaluate("document.getElementById('perfetto').contentWindow.got[1]")
    assert (zoom["timeStart"], zoom["timeEnd"]) == pytest.approx((begin / 1e9, end / 1e9))


# The same with an interface that takes a moment to select, as the UI does: it looks the slice up first.
SLOW_STAND_IN = (
    STAND_IN
    + """<script>
  const selection = { selection: {}, selectSqlEvent: (table, id) =>
    setTimeout(() => { selection.selection = { eventId: id }; window.selectedAt = performance.now(); }, 1500) };
  window.ctx = { selection, engine: { query: async () => ({ maybeFirstRow: () => ({ id: 7 }) }) } };
</script>"""
)


def test_a_slice_counts_as_selected_when_the_ui_has_selected_it(
    serve: Callable[..., str], tab: Page, ring_profile: Path, tmp_path: Path
) -> None:
    (tmp_path / "index.html").write_text(SLOW_STAND_IN)
    tab.goto(f"{serve(ring_profile, Settings(ring_profile, perfetto_ui=tmp_path))}perfetto?sel=span:1")
    expect(tab.locator("#perfetto")).to_have_attribute("data-selected", "7", timeout=20_000)
    assert tab.evaluate("document.getElementById('perfetto').contentWindow.selectedAt") is not None
    expect(tab.locator(".perfetto-status")).to_have_text("Selected: barrier_wait full")
