"""Timeline: what every warpgroup and unit did when. Drawn by `assets/timeline*.js` from the routes of `routes`."""

from __future__ import annotations

from dash import html
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
            html.Span(className="timeline-status muted", role="status"),
        ],
        className="toolbar",
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
    body = html.Div([canvas, panel], id=ids.TIMELINE, className="timeline", **extra(attributes))
    return html.Div([*notes(context.loaded.report.notes), toolbar, body], className="page page-timeline")


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
