"""Bubbles: when the tensor cores had nothing to do, why, and what removing that could gain."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from dashboard.theme import color_of_cause
from dashboard.views import tables
from dashboard.views.base import PageContext
from dashboard.views.components import card, notes, swatch, table_downloads
from profiler.analysis import Reading


def build(context: PageContext) -> Component:
    """Lays the page out."""
    report = context.loaded.report
    parts: list[Component] = [
        *notes(report.notes),
        card(
            "Tensor cores over the launch",
            tables.budget_chart(report),
            note="time of the SMs in use, by what they did",
        ),
        card(
            "By cause and place",
            tables.bubbles(context),
            note="a cause's gain is an upper bound: something else may bound the kernel then",
            actions=[html.Span("every bubble:", className="muted"), *table_downloads(context, "all_bubbles")],
        ),
    ]
    readings = _readings(context)
    if readings:
        parts.append(card("What the causes mean", html.Div(readings, className="readings")))
    return html.Div(parts, className="page")


def _readings(context: PageContext) -> list[Component]:
    seen: dict[Reading, str] = {}
    for row in tables.loss_groups(context.loaded.report):
        seen.setdefault(row["reading"], row["cause"] + (f", {row['detail']}" if row["detail"] else ""))
    return [_reading(name, reading) for reading, name in seen.items()]


def _reading(name: str, reading: Reading) -> Component:
    title, _, url = reading.source.rpartition(": ")
    source = html.A(title, href=url, target="_blank", rel="noreferrer") if url.startswith("https") else reading.source
    return html.Div(
        [
            html.H3(swatch(color_of_cause(name.split(",", maxsplit=1)[0]), name)),
            html.P(f"{reading.meaning[:1].upper()}{reading.meaning[1:]}."),
            html.P([html.B("Try: "), f"{reading.remedy}."]),
            html.P(["Read: ", source], className="muted"),
        ],
        className="reading",
    )
