"""Timeline: what every warpgroup and unit did when. Drawn by `assets/timeline*.js` from the routes of `routes`."""

from __future__ import annotations

from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from dashboard.markup import extra
from dashboard.theme import CAUSE_COLORS, HATCHED_KINDS, KIND_COLORS, SEQUENCE, LegendEntry
from dashboard.timeline.styles import FALLBACK, Styles
from dashboard.views.base import PageContext
from dashboard.views.components import choice, notes, swatch
from profiler.source_names import shorten_source

COLORINGS = (
    ("kind", "Kind", "What each box is: work of a unit, a wait, a cause of a bubble."),
    ("slot", "Slot", "Which slot of a ring of barriers or buffers a box uses."),
    ("phase", "Round", "How often a slot had been used before: a tile keeps its colour from load to release."),
    ("line", "Source line", "Which line of the kernel a box comes from."),
)
_MAX_LINES = 24
_SAVES = "Save what is drawn as a picture"
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
            html.Button("PNG", className="button small", **extra({"data-timeline": "save"}), title=_SAVES),
            *_search(state.find),
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
    status = html.Div(className="timeline-status muted", role="status")
    panel = html.Aside(
        [html.Div(_hint(), className="timeline-details", **extra({"aria-live": "polite"})), _legend(context)],
        className="timeline-panel",
    )
    attributes = {
        "data-launch": context.loaded.name,
        "data-base": links.base_path,
        "data-units": state.units,
        "data-color": state.color,
        "data-sequence": " ".join(SEQUENCE),
    }
    main = html.Div([overview, canvas, status], className="timeline-main")
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


def _legend(context: PageContext) -> Component:
    """Explains the colours that are chosen. Waits are hatched whatever the colours mean."""
    entries = {"slot": _slot_legend, "phase": _round_legend, "line": _line_legend}
    if context.state.color in entries:
        title, parts = entries[context.state.color](context)
        return html.Div([html.H3(title), html.Div([swatch(one.color, one.text) for one in parts])], className="legend")
    kinds = [swatch(KIND_COLORS[kind], label, kind in HATCHED_KINDS) for kind, label in _LEGEND]
    causes = [swatch(color, cause, hatched=True) for cause, color in CAUSE_COLORS.items()]
    return html.Div(
        [html.H3("Work and waits"), html.Div(kinds), html.H3("Bubbles of an SM's tensor core"), html.Div(causes)],
        className="legend",
    )


def _in_turn(number: int) -> str:
    return SEQUENCE[number % len(SEQUENCE)]


def _slot_legend(context: PageContext) -> tuple[str, list[LegendEntry]]:
    slots = max((barrier.num_slots for barrier in context.loaded.trace.header.barriers), default=0)
    shown = [LegendEntry(_in_turn(slot), f"slot {slot}") for slot in range(min(slots, len(SEQUENCE)))]
    return "Slots of barriers and buffers", [*shown, LegendEntry(FALLBACK, "no slot")]


def _round_legend(_: PageContext) -> tuple[str, list[LegendEntry]]:
    rounds = [LegendEntry(color, f"round {number}") for number, color in enumerate(SEQUENCE)]
    return f"Uses of a slot; colours repeat after {len(SEQUENCE)}", [*rounds, LegendEntry(FALLBACK, "no slot")]


def _line_legend(context: PageContext) -> tuple[str, list[LegendEntry]]:
    styles = Styles.of(context.loaded.report).styles
    lines = dict.fromkeys(style.line for style in styles if style.line)
    shown = [LegendEntry(_in_turn(number), shorten_source(line)) for number, line in enumerate(lines)]
    return "Lines of the kernel", [*shown[:_MAX_LINES], LegendEntry(FALLBACK, "no line")]
