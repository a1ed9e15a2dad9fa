"""Barriers: who waits for whom, on which barrier and slot, how long, and what the releaser had been doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import polars as pl
from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.figures.barrier_graph import DIRECTION_COLORS, DIRECTION_MEANINGS
from dashboard.figures.barrier_phases import barrier_phases
from dashboard.names import unit_name
from dashboard.theme import LegendEntry
from dashboard.views import tables
from dashboard.views.answers import costliest_barrier
from dashboard.views.base import PageContext
from dashboard.views.components import (
    Column,
    card,
    chart,
    choice,
    cta_chooser,
    empty,
    notes,
    table,
    table_downloads,
    time_chart,
)

_LEGEND_PIXELS = 22
_COUNTS = (
    ("bare", "Bare", "Blocked while the SM's tensor core had nothing in flight: what other work did not cover."),
    ("gross", "All blocked time", "Every wait that began before its phase was complete."),
)


def build(context: PageContext) -> Component:
    """Lays the page out."""
    report, links = context.loaded.report, context.links
    if report.barrier_waits.barriers.is_empty():
        return html.Div(
            [
                *notes(report.notes),
                empty("No barrier waits", "No warpgroup waited for a barrier, or no wait was recorded."),
            ],
            className="page",
        )
    gross = context.state.count == "gross"
    graph = figures.barrier_graph(report, context.units, gross=gross)
    height = int(graph.layout["height"]) + _LEGEND_PIXELS  # both cards end at one line
    matrix = card(
        "Who waits for whom",
        chart("barrier-matrix", figures.barrier_matrix(report, context.units, gross=gross, height=height)),
        actions=[choice(_COUNTS, context.state.count, lambda value: links.page("barriers", count=value), "Count")],
    )
    costliest = costliest_barrier(report) or report.barrier_waits.barriers.row(0, named=True)
    barrier = context.state.barrier or costliest["barrier"]
    parts = [
        *notes(report.notes),
        html.Div([matrix, _graph(graph)], className="columns"),
        card(
            "By barrier",
            tables.barrier_waits(context),
            note="longest first; choose a barrier for its slots",
            actions=table_downloads(context, "barrier_waits"),
        ),
        _phases(context, barrier),
        html.Div([_releasers(context, barrier), _slots(context, barrier)], className="columns tables"),
    ]
    return html.Div(parts, className="page")


def _graph(graph: go.Figure) -> Component:
    legend = [LegendEntry(color, DIRECTION_MEANINGS[direction]) for direction, color in DIRECTION_COLORS.items()]
    return card(
        "Who signals whom",
        chart("barrier-graph", graph, legend),
        note="width: time blocked",
    )


def _phases(context: PageContext, barrier: str) -> Component:
    """Shows the phases of one barrier in one CTA, within the visible window of the timeline if there is one."""
    trace, state = context.loaded.trace, context.state
    ctas = trace.waits.filter(pl.col("barrier") == barrier)["cta"].unique().sort().to_list()
    title = f"{barrier}: phases"
    if not ctas:
        return card(title, empty("No waits", f"Nobody waited for {barrier}."))
    cta = state.cta if state.cta in ctas else ctas[0]
    found = barrier_phases(trace, barrier, cta, max(state.t0, 0), state.t1)
    shown = f"{found.phases.height} of {found.total} phases shown" if found.phases.height < found.total else ""
    note = "; ".join(filter(None, ("per slot: arrivals, completion, who waited; drag to zoom", shown)))
    actions = [cta_chooser(ctas, cta, "Of")]
    if found.phases.is_empty():
        reason = "No arrival on it is known in this window: a measured launch records those of warpgroups only."
        return card(title, empty("No phases", reason), actions=actions)
    return card(
        title,
        time_chart(context, "barrier-phases", figures.phase_strip(found, context.units)),
        note=note,
        actions=actions,
    )


def _releasers(context: PageContext, barrier: str) -> Component:
    releasers = context.loaded.report.barrier_waits.releasers
    rows = releasers.filter(pl.col("barrier") == barrier).sort("total_cycles", descending=True).to_dicts()
    longest = max((row["total_cycles"] for row in rows), default=1) or 1
    columns = [
        Column("Waiter", lambda row: row["role"]),
        Column("Released by", lambda row: unit_name(row["releaser"])),
        Column("which had been", lambda row: row["had_been"]),
        Column("at", lambda row: tables.source_link(context, row["had_been_source"])),
        Column("Count", lambda row: f"{row['count']:,}", lambda row: row["count"], is_number=True),
        _time(context, "total_cycles", longest),
        Column(
            "p95", lambda row: context.units.number(row["p95_cycles"]), lambda row: row["p95_cycles"], is_number=True
        ),
    ]
    return card(
        f"{barrier}: who released it", table(columns, rows, f"Releasers of {barrier}"), note="blocked waits only"
    )


def _slots(context: PageContext, barrier: str) -> Component:
    slots = context.loaded.report.barrier_waits.slots
    rows = slots.filter(pl.col("barrier") == barrier).sort("role", "slot").to_dicts()
    longest = max((row["blocked_cycles"] for row in rows), default=1) or 1
    columns = [
        Column("Slot", lambda row: str(row["slot"]), lambda row: row["slot"], is_number=True),
        Column("Waiter", lambda row: row["role"]),
        Column("Waits", lambda row: f"{row['waits']:,}", lambda row: row["waits"], is_number=True),
        Column("Blocked", lambda row: f"{row['blocked']:,}", lambda row: row["blocked"], is_number=True),
        _time(context, "blocked_cycles", longest),
        Column(
            "p50", lambda row: context.units.number(row["p50_cycles"]), lambda row: row["p50_cycles"], is_number=True
        ),
        Column(
            "p95", lambda row: context.units.number(row["p95_cycles"]), lambda row: row["p95_cycles"], is_number=True
        ),
    ]
    return card(f"{barrier}: by slot", table(columns, rows, f"Slots of {barrier}"), note="one row per slot of the ring")


def _time(context: PageContext, column: str, longest: float) -> Column:
    def value(row: Mapping[str, Any]) -> float:
        return row[column]

    def cell(row: Mapping[str, Any]) -> str:
        return context.units.number(row[column])

    title = f"Time ({context.units.name})"
    return Column(title, cell, value, lambda row: row[column] / longest, True, "Blocked time over all warpgroups.")
