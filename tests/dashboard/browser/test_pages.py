from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from dashboard.config import Settings
from dashboard.store import LoadedLaunch
from dashboard.views.registry import PAGES
from mgpu.profile_dir import save_launch
from support.captures import ring_capture

pytestmark = pytest.mark.browser

Serve = Callable[..., str]
PLAIN_PAGES = [page for page in PAGES if page.name != "perfetto"]


def drag_across(tab: Page, drawn: Locator) -> None:
    """Zooms a chart to the fifth of its width around the middle."""
    drawn.scroll_into_view_if_needed()
    area = drawn.bounding_box()
    assert area is not None
    tab.mouse.move(area["x"] + area["width"] * 0.4, area["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(area["x"] + area["width"] * 0.6, area["y"] + 24, steps=5)
    tab.mouse.up()


def test_every_page_opens_by_a_click(serve: Serve, tab: Page, matmul_profile: Path) -> None:
    tab.goto(serve(matmul_profile))
    for page in PLAIN_PAGES:
        tab.locator(f'a.keep-view[data-key="{page.key}"]').click()
        expect(tab.locator("h1")).to_have_text(page.title)
        expect(tab.locator("a.keep-view.current")).to_contain_text(page.title)
        expect(tab.locator(".page")).to_be_visible()


def test_verdict_and_tables_are_on_the_first_page(serve: Serve, tab: Page, matmul_profile: Path, matmul) -> None:
    tab.goto(f"{serve(matmul_profile)}?launch=matmul-0002")
    verdict = matmul.report.verdict
    expect(tab.locator(".verdict-sentence")).to_have_text(f"{verdict[:1].upper()}{verdict[1:]}.")
    longest = matmul.report.barrier_waits.barriers.row(0, named=True)
    row = tab.get_by_label("Waits by barrier").locator("tbody tr").first
    expect(row).to_contain_text(longest["barrier"])
    expect(row).to_contain_text(f"{longest['blocked_cycles']:,}")
    expect(tab.locator(".chart .bars").first).to_be_visible()


def test_launch_is_chosen_and_kept_on_other_pages(serve: Serve, tab: Page, matmul_profile: Path) -> None:
    tab.goto(serve(matmul_profile))
    tab.locator(".launch-select").select_option("matmul-0001")
    expect(tab).to_have_url(re.compile("launch=matmul-0001"))
    tab.locator('a.keep-view[data-key="s"]').click()
    expect(tab.locator("h1")).to_have_text("Source")
    assert "launch=matmul-0001" in tab.url
    tab.go_back()
    expect(tab.locator("h1")).to_have_text("Overview")


def test_units_theme_and_help_have_keys(serve: Serve, tab: Page, ring_profile: Path) -> None:
    tab.emulate_media(color_scheme="light")
    tab.goto(serve(ring_profile))
    expect(tab.locator("html")).to_have_attribute("data-theme", "light")
    tab.keyboard.press("t")
    expect(tab.locator("html")).to_have_attribute("data-theme", "dark")
    tab.reload()
    expect(tab.locator("html")).to_have_attribute("data-theme", "dark")
    expect(tab.locator(".tile-detail").first).to_contain_text("cycles =")
    tab.keyboard.press("u")
    expect(tab.locator(".tile-value").first).to_contain_text("µs")
    tab.keyboard.press("?")
    expect(tab.get_by_role("dialog")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.get_by_role("dialog")).to_be_hidden()
    tab.keyboard.press("g")
    tab.keyboard.press("w")
    expect(tab.locator("h1")).to_have_text("Barriers")
    assert "units=ns" in tab.url


def test_tables_sort_by_number(serve: Serve, tab: Page, matmul_profile: Path) -> None:
    tab.goto(f"{serve(matmul_profile)}sms")
    table = tab.get_by_label("SMs", exact=True)
    heading = table.get_by_role("columnheader", name="Last end")
    heading.click()
    expect(heading).to_have_attribute("aria-sort", "descending")
    values = [int(text.replace(",", "")) for text in table.locator("tbody td:nth-child(4)").all_text_contents()]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 1


def test_data_is_filtered_and_downloaded(serve: Serve, tab: Page, ring_profile: Path, ring) -> None:
    tab.goto(f"{serve(ring_profile)}data")
    tab.locator("input.search").fill("kind=barrier_wait dur>400")
    tab.keyboard.press("Enter")
    waits = ring.trace.spans.filter((ring.trace.spans["kind"] == "barrier_wait") & (ring.trace.spans["dur"] > 400))
    expect(tab.locator(".card-note")).to_contain_text(f"{waits.height} of {waits.height} rows shown")
    with tab.expect_download() as download:
        tab.get_by_text("CSV", exact=True).click()
    assert download.value.suggested_filename == "ring-0001-spans.csv"
    assert (
        len(download.value.path().read_text().splitlines()) == waits.height + 1
    )  # what the filter lets pass, as shown


def test_source_line_of_a_bubble_is_marked(serve: Serve, tab: Page, matmul_profile: Path) -> None:
    tab.goto(f"{serve(matmul_profile)}bubbles")
    link = tab.get_by_label("Tensor-core bubbles by cause").locator("a.code").first
    place = (link.get_attribute("title") or "").rsplit(":", 1)
    link.click()
    marked = tab.locator("tr.anchored")
    expect(marked.locator(".line-number")).to_have_text(place[1])


def test_phase_strip_follows_the_chosen_barrier_and_cta(serve: Serve, tab: Page, ring_profile: Path) -> None:
    tab.goto(f"{serve(ring_profile)}barriers")
    expect(tab.locator("h2").filter(has_text="Who signals whom")).to_be_visible()
    edges = tab.locator(".chart").nth(1).locator(".annotation-text")
    expect(edges.filter(has_text="full by TMA load")).to_be_visible()
    expect(edges.filter(has_text="empty:")).to_be_visible()
    tab.get_by_label("Waits by barrier").get_by_role("link", name="empty", exact=True).click()
    expect(tab.locator("h2").filter(has_text="empty: phases")).to_be_visible()
    tab.get_by_label("Of", exact=True).select_option("1")
    expect(tab).to_have_url(re.compile("cta=1"))
    expect(tab.get_by_label("Of", exact=True)).to_have_value("1")
    expect(tab.locator(".chart .legendtext").filter(has_text="WG2 memory waits")).to_be_visible()


def test_pipelines_of_two_launches_stand_side_by_side(serve: Serve, tab: Page, matmul_profile: Path) -> None:
    tab.goto(f"{serve(matmul_profile)}compare?launch=matmul-0002")
    rows = tab.locator(".chart").nth(1).locator(".ytick text")
    expect(rows.first).to_be_visible()
    pairs = [f"full[{slot}] {one}" for slot in (0, 1) for one in ("before", "after")]
    assert rows.all_text_contents()[::-1] == [*pairs, "full[2] after"]  # labels are in the order of the axis, upwards
    ticks = tab.locator(".chart").nth(1).locator(".xtick text")
    whole = ticks.all_text_contents()
    drawn = tab.locator(".chart").nth(1).locator(".nsewdrag")
    drag_across(tab, drawn)
    # One time axis for both launches: its ticks change for all rows.
    expect(ticks.first).not_to_have_text(whole[0])
    assert rows.count() == 5


def test_new_launch_appears_without_a_reload(serve: Serve, tab: Page, tmp_path: Path) -> None:
    tab.goto(serve(tmp_path, Settings(tmp_path, refresh_seconds=0.3)))
    expect(tab.locator(".empty")).to_contain_text("No launches yet")
    save_launch(tmp_path, ring_capture())
    expect(tab.locator(".verdict-sentence")).to_be_visible()
    save_launch(tmp_path, ring_capture(stages=3))
    expect(tab.locator(".launch-select option")).to_have_count(2)


def test_page_works_behind_a_proxy_that_strips_its_prefix(serve: Serve, tab: Page, ring_profile: Path) -> None:
    settings = Settings(ring_profile, base_path="/user/ada/proxy/8050/")
    server = serve(ring_profile, settings)
    prefix = f"{server}user/ada/proxy/8050/"

    def strip(route: Route) -> None:
        route.fulfill(response=route.fetch(url=route.request.url.replace(prefix, server)))

    tab.route(f"{prefix}**", strip)
    tab.goto(f"{prefix}timeline")
    tab.locator(".timeline-canvas[data-ready][data-boxes]").wait_for()
    tab.locator('a.keep-view[data-key="w"]').click()
    expect(tab.locator("h1")).to_have_text("Barriers")
    assert tab.url.startswith(f"{prefix}barriers")
    expect(tab.locator(".chart .bg").first).to_be_attached()  # drawn: nothing more is asked for
    tab.unroute_all(behavior="ignoreErrors")


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1920, "dark")])
def test_nothing_is_wider_than_the_window(
    serve: Serve, tab: Page, matmul_profile: Path, width: int, theme: Literal["light", "dark"]
) -> None:
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=theme)
    tab.goto(serve(matmul_profile))
    for page in PLAIN_PAGES:
        tab.locator(f'a.keep-view[data-key="{page.key}"]').click()
        expect(tab.locator("h1")).to_have_text(page.title)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, page.title


def test_page_fills_itself_while_the_launch_is_analysed(
    serve: Serve, tab: Page, ring_profile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()
    compute = LoadedLaunch.compute

    def hold(launch: LoadedLaunch, part: str) -> None:
        if part != "utilisation":
            go_on.wait(60)
        compute(launch, part)

    monkeypatch.setattr(LoadedLaunch, "compute", hold)
    url = serve(ring_profile)
    tab.goto(url)
    expect(tab.locator(".tile").nth(1)).to_contain_text("%")
    expect(tab.locator(".verdict .pending")).to_contain_text("Find the bubbles and their causes")
    tab.locator('a.keep-view[data-key="w"]').click()
    steps = tab.get_by_label("Progress").locator("tr")
    expect(steps).to_have_count(3)
    expect(steps.nth(1)).to_contain_text("✓")
    tab.locator('a.keep-view[data-key="t"]').click()
    status = tab.locator(".timeline-status")
    expect(status).to_contain_text("bubbles are still being found")
    go_on.set()
    tab.locator('.timeline-canvas[data-complete="true"]').wait_for()
    expect(status).not_to_contain_text("bubbles are still being found")
    tab.locator('a.keep-view[data-key="w"]').click()
    expect(tab.get_by_label("Waits by barrier")).to_be_visible()
    tab.locator('a.keep-view[data-key="o"]').click()
    expect(tab.locator(".verdict-sentence")).to_be_visible()


def test_zoom_of_a_chart_is_the_window_of_other_pages(serve: Serve, tab: Page, matmul_profile: Path) -> None:
    tab.goto(f"{serve(matmul_profile)}pipeline?units=ns")
    drawn = tab.locator(".chart .nsewdrag").first
    drawn.wait_for()
    drag_across(tab, drawn)
    expect(tab).to_have_url(re.compile(r"t0=\d+&t1=\d+"))
    t0, t1 = (int(text) for text in re.findall(r"t[01]=(\d+)", tab.url))
    tab.locator('a.keep-view[data-key="t"]').click()
    canvas = tab.locator(".timeline-canvas[data-boxes]")
    canvas.wait_for()
    expect(canvas).to_have_attribute("data-window", f"{t0} {t1}")
    tab.locator('a.keep-view[data-key="k"]').click()
    plot = tab.locator("[data-cycles] .js-plotly-plot")
    plot.locator(".bars").first.wait_for()
    clock_ghz = 1.55
    first, last = plot.evaluate("plot => plot.layout.xaxis.range")
    assert (first * clock_ghz, last * clock_ghz) == pytest.approx((t0, t1), abs=2)


def test_costliest_barrier_its_reason_and_the_remedy_lead_to_their_pages(
    serve: Serve, tab: Page, matmul_profile: Path
) -> None:
    tab.goto(f"{serve(matmul_profile)}?launch=matmul-0001")
    answers = tab.locator(".answers [role=group]")
    expect(answers).to_have_count(3)
    barrier = (answers.nth(0).locator(".answer").text_content() or "").strip()
    answers.nth(0).locator("a").first.click()
    expect(tab.locator("h2").filter(has_text=f"{barrier}: phases")).to_be_visible()
    tab.go_back()
    answers.nth(1).locator("a").first.click()
    expect(tab.locator(".timeline-details h3")).to_contain_text("bubble: ")
    tab.go_back()
    answers.nth(2).locator("a").first.click()
    expect(tab.locator("h1")).to_have_text("Critical path")
