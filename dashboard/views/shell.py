"""The frame around every page: navigation, top bar, help; and what is shown when a page cannot be."""

from __future__ import annotations

from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from dashboard.markup import extra
from dashboard.quantities import CYCLES, NANOSECONDS
from dashboard.state import ViewState
from dashboard.views.base import Links, Page
from dashboard.views.components import badge, empty, link
from profiler import Launch
from profiler.trace import CaptureHeader

PROGRESS_MS = 500
_KEYS = (
    (
        "Everywhere",
        (
            ("?", "this help"),
            ("G, then a letter", "open a page (letters are in the navigation)"),
            ("U", "cycles or ns"),
            ("T", "light or dark"),
            ("/", "search"),
            ("Esc", "clear the selection"),
        ),
    ),
    (
        "Timeline",
        (
            ("W  S, wheel", "zoom in, out, at the pointer"),
            ("A  D, drag, Shift-wheel", "pan"),
            ("↑ ↓, wheel on the names", "scroll the rows"),
            ("← →", "previous, next box of the same row"),
            ("F, double click", "zoom to the selection"),
            ("0", "all of the launch"),
            ("Backspace", "undo zoom"),
            ("Shift-drag, right drag", "measure in cycles and ns"),
            ("M", "mark the pointer's moment"),
            ("N, Shift-N", "next, previous hit of the search"),
        ),
    ),
)


def shell(refresh_seconds: float) -> Component:
    """Returns the frame; callbacks fill its parts."""
    return html.Div(
        [
            dcc.Location(id=ids.URL, refresh="callback-nav"),
            dcc.Interval(id=ids.REFRESH, interval=int(refresh_seconds * 1000)),
            dcc.Interval(id=ids.PROGRESS, interval=PROGRESS_MS, disabled=True),
            dcc.Store(id=ids.FINGERPRINT),
            dcc.Store(id=ids.READINESS),
            html.Nav(id=ids.NAVIGATION, className="navigation", **extra({"aria-label": "Pages"})),
            html.Div(
                [
                    html.Header(id=ids.TOP_BAR, className="top-bar"),
                    dcc.Loading(
                        html.Main(id=ids.PAGE), delay_show=250, overlay_style={"visibility": "visible", "opacity": 0.5}
                    ),
                ],
                className="body",
            ),
            _help(),
        ],
        id=ids.SHELL,
        className="shell",
    )


def navigation(pages: Sequence[Page], current: str, links: Links) -> list[Component]:
    """Returns the list of pages, the current one marked."""
    items = [
        html.A(
            [html.Span(page.title), html.Kbd(page.key)],
            href=links.page(page.name),
            className="nav-link keep-view" + (" current" if page.name == current else ""),
            title=page.question,
            **extra({"data-key": page.key, "aria-current": "page" if page.name == current else "false"}),
        )
        for page in pages
    ]
    return [html.Div(["mgpu", html.Small("profiler")], className="brand"), *items]


def top_bar(
    launches: Sequence[Launch], current: str, header: CaptureHeader | None, state: ViewState
) -> list[Component]:
    """Returns the choice of launch, what is known about it, and the switches."""
    names = [launch.name for launch in launches]
    options = [html.Option(name, value=name, selected=name == current) for name in names]
    chooser = html.Select(
        options, className="launch-select", key=current, **extra({"data-field": "launch", "aria-label": "Launch"})
    )
    buttons = [
        _button("Copy link", "copy", "The URL restores exactly this view"),
        _units(state),
        _button("◐", "theme", "Light or dark (T)"),
        _button("?", "help", "Keys (?)"),
    ]
    facts = _facts(header) if header else []
    return [chooser if names else html.Span(), *facts, html.Div(buttons, className="switches")]


def _facts(header: CaptureHeader) -> list[Component]:
    grid = "x".join(str(size) for size in header.grid) or "1"
    cluster = f", cluster {'x'.join(map(str, header.cluster))}" if any(size > 1 for size in header.cluster) else ""
    simulated = header.provenance == "simulated"
    meaning = "Cycles of the simulated device." if simulated else "Cycles recorded on the device."
    return [
        badge(f"{header.device} {header.provenance}", "good" if simulated else "", meaning),
        html.Span(f"grid {grid}{cluster}, {header.num_warpgroups} warpgroups", className="muted top-fact"),
        html.Span(f"{header.clock_hz / 1e9:.3f} GHz", className="muted top-fact"),
    ]


def _units(state: ViewState) -> Component:
    """Returns the switch between cycles and ns."""
    choices = [
        html.Button(
            name,
            className="segment" + (" selected" if name == state.units else ""),
            title=f"Durations in {name} (U)",
            **extra({"data-action": "units", "data-units": name, "aria-pressed": str(name == state.units).lower()}),
        )
        for name in (CYCLES, NANOSECONDS)
    ]
    return html.Div(choices, className="segments", role="group", **extra({"aria-label": "Units"}))


def _button(text: str, action: str, title: str) -> Component:
    return html.Button(text, className="button small", title=title, **extra({"data-action": action}))


def page_head(page: Page) -> Component:
    """Returns a page's title and the question that it answers."""
    return html.Div([html.H1(page.title), html.P(page.question)], className="page-head")


def _help() -> Component:
    groups = [
        html.Div([html.H3(title), html.Dl([part for key, text in keys for part in (html.Dt(key), html.Dd(text))])])
        for title, keys in _KEYS
    ]
    box = html.Div(
        [html.H2("Keys"), *groups, html.Button("Close", className="button", **extra({"data-action": "help"}))],
        className="help-box",
        role="dialog",
        **extra({"aria-label": "Keys"}),
    )
    return html.Div(box, id=ids.HELP, className="help", hidden=True)


def no_launches(path: str) -> Component:
    """Returns what is shown for a directory without launches; it fills itself once there is one."""
    code = f"params = plgpu.CompilerParams(profile_space=1024, profile_dir={path!r})"
    text = [
        html.P("This page fills itself as soon as a kernel has run with a profile directory:"),
        html.Pre(code),
        html.P("then call the kernel with compiler_params=params."),
    ]
    return empty("No launches yet", text)


def unreadable(name: str, message: str, links: Links) -> Component:
    """Returns what is shown for a launch whose files cannot be read."""
    text = [html.P(message), html.P("The other launches are not affected.")]
    return html.Div(
        [empty(f"{name} cannot be read", text), link("All launches", links.page("runs", launch=""))], className="page"
    )


def failed(title: str, error: Exception, links: Links) -> Component:
    """Returns what is shown for a page that could not be made."""
    text = [
        html.P(f"{type(error).__name__}: {error}"),
        html.P(
            "This is a defect of the profiler; the server's console tells it in full. Other pages are not affected."
        ),
    ]
    return html.Div([empty(f"{title} cannot be shown", text), link("Overview", links.page(""))], className="page")


def not_found(what: str, links: Links) -> Component:
    """Returns what is shown for an address that leads nowhere."""
    return html.Div(
        [empty("Not here", f"There is no {what}."), link("Overview", links.page("", launch=""))], className="page"
    )
