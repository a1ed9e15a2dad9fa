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
    tab.locator('.timeline-canvas[data-ready][data-boxes][data-complete="true"]').wait_for()


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


def test_search_goes_from_hit_to_hit(serve: Serve, tab: Page, ring_profile: Path, ring) -> None:
    open_timeline(tab, serve(ring_profile))
    tab.keyboard.press("/")
    tab.keyboard.type("slot not free")
    tab.keyboard.press("Enter")
    total = ring.report.bubbles.bubbles.filter(ring.report.bubbles.bubbles["cause"] == "slot not free").height
    count = tab.locator(".timeline-hits")
    expect(count).to_have_text(f"1 of {total}")
    expect(tab.locator(".timeline-details h3")).to_contain_text("bubble: slot not free")
    first = parameters(tab)
    assert first["find"] == "slot not free"
    tab.keyboard.press("Enter")
    expect(count).to_have_text(f"2 of {total}")
    tab.keyboard.press("Escape")  # clears the text
    expect(count).to_have_text("")
    tab.locator(".timeline-search").fill("ring.py:23")
    tab.get_by_label("Previous hit").click()
    expect(count).to_contain_text("1 of ")
    tab.get_by_label("Previous hit").click()
    expect(tab.locator(".timeline-details h3")).to_have_text("wgmma_wait")
    expect(count).to_have_text(re.compile(r"^(\d+) of \1$"))  # from the first hit back to the last
    total_text = (count.text_content() or "").split(" of ")[1]
    tab.locator(".timeline-canvas").focus()
    tab.keyboard.press("n")
    expect(count).to_have_text(f"1 of {total_text}")
    tab.reload()
    expect(count).to_have_text(f"1 of {total_text}")


def test_window_is_dragged_on_the_overview(serve: Serve, tab: Page, ring_profile: Path, ring) -> None:
    open_timeline(tab, serve(ring_profile), "?t0=600&t1=1200")
    overview = tab.locator(".timeline-overview[data-ready]")
    overview.wait_for()
    box = overview.bounding_box()
    assert box is not None
    gutter = tab.evaluate("window.mgpu.TIMELINE_GUTTER")

    def x_of(cycles: float) -> float:
        return box["x"] + gutter + cycles / ring.trace.end * (box["width"] - gutter)

    y = box["y"] + 20
    tab.mouse.move(x_of(900), y)
    tab.mouse.down()
    tab.mouse.move(x_of(1200), y, steps=4)
    tab.mouse.up()
    drawn = tab.locator(".timeline-canvas")
    expect(drawn).not_to_have_attribute("data-window", "600 1200")
    expect(tab).to_have_url(re.compile(r"t0=(89|90)\d&t1=1(49|50)\d"))
    tab.mouse.move(x_of(1500), y)
    tab.mouse.down()
    tab.mouse.move(x_of(1800), y, steps=4)
    tab.mouse.up()
    expect(tab).to_have_url(re.compile(r"t0=(89|90)\d&t1=1(79|80)\d"))
    overview.dblclick(position={"x": gutter + 10, "y": 20})
    expect(tab).not_to_have_url(re.compile("t0="))


def test_window_and_selection_go_along_to_other_pages_and_back(serve: Serve, tab: Page, ring_profile: Path) -> None:
    open_timeline(tab, serve(ring_profile), "?sel=span:1")
    expect(tab.locator(".timeline-details h3")).to_have_text("barrier_wait full")
    tab.locator(".timeline-canvas").hover(position={"x": 600, "y": 200})
    tab.keyboard.press("w")
    expect(tab).to_have_url(re.compile("[?&]t1="))
    before = parameters(tab)
    tab.keyboard.press("g")
    tab.keyboard.press("w")
    expect(tab.locator("h1")).to_have_text("Barriers")
    assert parameters(tab) == before
    tab.keyboard.press("g")
    tab.keyboard.press("t")
    expect(tab.locator(".timeline-details h3")).to_have_text("barrier_wait full")
    assert parameters(tab) == before
    assert window(tab) == (int(before.get("t0", 0)), int(before["t1"]))


def test_what_is_drawn_is_saved_as_a_picture(serve: Serve, tab: Page, ring_profile: Path) -> None:
    open_timeline(tab, serve(ring_profile))
    with tab.expect_download() as download:
        tab.get_by_text("PNG", exact=True).click()
    assert download.value.suggested_filename == "ring-0001-timeline.png"
    data = download.value.path().read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    drawn = tab.locator(".timeline-canvas").evaluate("canvas => [canvas.width, canvas.height]")
    assert [int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")] == drawn
