"""Timeline: what every warpgroup and unit did when. Drawn by `assets/timeline*.js` from the routes of `routes`."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from dashboard.markup import extra
from dashboard.theme import CAUSE_COLORS, HATCHED_KINDS, KIND_COLORS, SEQUENCE
from dashboard.views.base import PageContext
from dashboard.views.components import choice, notes

COLORINGS = (("kind", "Kind"), ("slot", "Slot"), ("phase", "Round"), ("line", "Source line"))
_LEGEND = (
    ("tensor_core", "tensor core busy"),
    ("tma_load", "TMA load"),
    ("tma_store", "TMA store"),
    ("barrier_wait", "barrier wait"),
    ("mma_wait", "MMA wait"),
    ("store_wait", "store wait"),
    ("mma_issue", "MMA issue"),
    ("scope", "named scope"),
)


def build(context: PageContext) -> Component:
    """Lays the page out: a toolbar, the canvas, and a panel for the selection."""
    state, links = context.state, context.links
    toolbar = html.Div(
        [
            html.Span("Colour by", className="muted"),
            choice(COLORINGS, state.color, lambda value: links.page("timeline", color=value), "Colour by"),
            html.Button(
                "Fit", className="button small", **extra({"data-timeline": "fit"}), title="Show all of the launch (0)"
            ),
            html.Button("Undo zoom", className="button small", **extra({"data-timeline": "back"}), title="Backspace"),
            html.Button("Expand", className="button small", **extra({"data-timeline": "expand"}), title="Open all SMs"),
            html.Button(
                "Collapse", className="button small", **extra({"data-timeline": "collapse"}), title="Close all SMs"
            ),
            *_search(state.find),
            html.Span(className="timeline-status muted", role="status"),
        ],
        className="toolbar",
    )
    overview = html.Canvas(
        className="timeline-overview",
        title="The whole launch: drag the window or its edges, double click for all",
        **extra({"aria-label": "Overview of the launch, with the visible window"}),
    )
    canvas = html.Div(
        [
            html.Canvas(className="timeline-canvas", tabIndex=0, **extra({"aria-label": "Timeline of the launch"})),
            html.Div(className="timeline-tip"),
        ],
        className="timeline-frame",
    )
    panel = html.Aside(
        [html.Div(_hint(), className="timeline-details", **extra({"aria-live": "polite"})), _legend()],
        className="timeline-panel",
    )
    attributes = {
        "data-launch": context.loaded.name,
        "data-base": links.base_path,
        "data-units": state.units,
        "data-color": state.color,
        "data-sequence": " ".join(SEQUENCE),
    }
    main = html.Div([overview, canvas], className="timeline-main")
    body = html.Div([main, panel], id=ids.TIMELINE, className="timeline", **extra(attributes))
    return html.Div([*notes(context.loaded.report.notes), toolbar, body], className="page page-timeline")


def _search(text: str) -> list[Component]:
    """Returns the search field, which `assets/timeline_search.js` listens to."""
    meaning = "A site, barrier, cause or file.py:line. Enter: next hit, Shift-Enter: previous one (/)"
    field = dcc.Input(value=text, placeholder="Search", className="search timeline-search", type="search")
    before, after = (
        html.Button(sign, className="button small", title=title, **extra({"data-step": str(step), "aria-label": title}))
        for sign, title, step in (("\u2039", "Previous hit (Shift-N)", -1), ("\u203a", "Next hit (N)", 1))
    )
    count = html.Span(className="timeline-hits muted", role="status")
    return [html.Span(field, title=meaning), before, after, count]


def _hint() -> list[Component]:
    return [
        html.H3("Nothing selected"),
        html.P("Click a box for its numbers and the arrows to what it waited for, or what it released."),
        html.P("Wheel or W S zooms, drag or A D pans, Shift-drag measures. ? lists all keys."),
    ]


def _legend() -> Component:
    kinds = [_legend_entry(label, KIND_COLORS[kind], kind in HATCHED_KINDS) for kind, label in _LEGEND]
    causes = [_legend_entry(cause, color, True) for cause, color in CAUSE_COLORS.items()]
    return html.Div(
        [html.H3("Work and waits"), html.Div(kinds), html.H3("Bubbles of an SM's tensor core"), html.Div(causes)],
        className="legend",
    )


def _legend_entry(label: str, color: str, hatched: bool) -> Component:
    square = html.I(className="swatch hatched" if hatched else "swatch", style={"background-color": color})
    return html.Span([square, label], className="swatch-label")
