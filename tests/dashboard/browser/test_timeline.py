from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

Serve = Callable[..., str]


def parameters(tab: Page) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(urlsplit(tab.url).query).items()}


def window(tab: Page) -> tuple[int, int]:
    """Returns the visible window in cycles, once the timeline has drawn."""
    drawn = tab.locator(".timeline-canvas[data-window]").get_attribute("data-window") or ""
    first, last = drawn.split()
    return int(first), int(last)


def open_timeline(tab: Page, url: str, query: str = "") -> None:
    tab.goto(f"{url}timeline{query}")
    tab.locator(".timeline-canvas[data-ready][data-boxes]").wait_for()


def test_example_of_a_bubble_is_shown_and_selected(serve: Serve, tab: Page, matmul_profile: Path) -> None:
    tab.goto(serve(matmul_profile))
    table = tab.get_by_label("Tensor-core bubbles by cause")
    cause = (table.locator("tbody tr").first.locator("td").first.text_content() or "").strip()
    table.locator("tbody tr").first.get_by_text("show").click()
    expect(tab.locator(".timeline-details h3")).to_have_text(f"bubble: {cause}")
    state = parameters(tab)
    assert int(state["t0"]) < int(state["t1"])
    assert state["sel"].startswith("loss:")


def test_selected_wait_names_its_releaser_and_leads_to_the_transfer(
    serve: Serve, tab: Page, ring_profile: Path
) -> None:
    # Track 0 is WG0 of CTA 0: compute begins at 1000, its span 1 is the wait for full[0], which the load at 1500 ends.
    open_timeline(tab, serve(ring_profile), "?sel=span:1")
    details = tab.locator(".timeline-details")
    expect(details.locator("h3")).to_have_text("barrier_wait full")
    expect(details).to_contain_text("504 cycles")
    expect(details).to_contain_text("TMA load")
    details.get_by_text("Go to the transfer").click()
    expect(details.locator("h3")).to_have_text("copy_gmem_to_smem a")
    expect(details).to_contain_text("16,384 bytes")


def test_keys_and_wheel_zoom_and_the_url_follows(serve: Serve, tab: Page, ring_profile: Path) -> None:
    open_timeline(tab, serve(ring_profile))
    whole = window(tab)
    drawn = tab.locator(".timeline-canvas")
    drawn.hover(position={"x": 600, "y": 200})
    tab.keyboard.press("w")
    expect(drawn).not_to_have_attribute("data-window", f"{whole[0]} {whole[1]}")
    closer = window(tab)
    assert closer[1] - closer[0] < whole[1] - whole[0]
    expect(tab).to_have_url(re.compile(rf"[?&]t1={closer[1]}\b"))
    tab.mouse.wheel(0, -300)
    expect(drawn).not_to_have_attribute("data-window", f"{closer[0]} {closer[1]}")
    assert window(tab)[1] - window(tab)[0] < closer[1] - closer[0]
    tab.keyboard.press("0")
    expect(tab.locator(".timeline-canvas")).to_have_attribute("data-window", f"{whole[0]} {whole[1]}")


def test_back_button_undoes_a_zoom(serve: Serve, tab: Page, ring_profile: Path) -> None:
    open_timeline(tab, serve(ring_profile))
    whole = window(tab)
    tab.locator(".timeline-canvas").hover(position={"x": 600, "y": 200})
    tab.keyboard.press("w")
    expect(tab).to_have_url(re.compile("[?&]t1="))
    tab.go_back()
    expect(tab.locator(".timeline-canvas")).to_have_attribute("data-window", f"{whole[0]} {whole[1]}")
    assert "t1" not in parameters(tab)


def test_click_selects_and_escape_clears(serve: Serve, tab: Page, ring_profile: Path) -> None:
    open_timeline(tab, serve(ring_profile), "?sel=span:1")
    expect(tab.locator(".timeline-details h3")).to_have_text("barrier_wait full")
    tab.keyboard.press("Escape")
    expect(tab.locator(".timeline-details h3")).to_have_text("Nothing selected")
    assert "sel" not in parameters(tab)
    # The row of SM 0 is the first: its box at the left is the time before the first MMA.
    tab.locator(".timeline-canvas").click(position={"x": 200, "y": 37})
    expect(tab.locator(".timeline-details h3")).to_contain_text("bubble: fill")
    assert parameters(tab)["sel"].startswith("loss:")


def test_arrow_key_goes_to_the_next_box_of_the_row(serve: Serve, tab: Page, ring_profile: Path) -> None:
    open_timeline(tab, serve(ring_profile), "?sel=span:1")
    details = tab.locator(".timeline-details h3")
    expect(details).to_have_text("barrier_wait full")
    tab.keyboard.press("ArrowRight")
    expect(details).to_have_text("wgmma")
    tab.keyboard.press("ArrowLeft")
    expect(details).to_have_text("barrier_wait full")
