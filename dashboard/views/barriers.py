"""Barriers: who waits for whom, on which barrier and slot, how long, and what the releaser had been doing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.views import tables
from dashboard.views.base import PageContext
from dashboard.views.components import Column, card, chart, choice, download, empty, notes, table

_COUNTS = (("bare", "Bare"), ("gross", "All blocked time"))


def build(context: PageContext) -> Component:
    """Lays the page out."""
    report, links, name = context.loaded.report, context.links, context.loaded.name
    if report.barrier_waits.barriers.is_empty():
        return html.Div(
            [
                *notes(report.notes),
                empty("No barrier waits", "No warpgroup waited for a barrier, or no wait was recorded."),
            ],
            className="page",
        )
    gross = context.state.count == "gross"
    matrix = card(
        "Who waits for whom",
        chart("barrier-matrix", figures.barrier_matrix(report, context.units, gross=gross)),
        note="all blocked time" if gross else "blocked while the SM's tensor core had nothing in flight",
        actions=[choice(_COUNTS, context.state.count, lambda value: links.page("barriers", count=value), "Count")],
    )
    barrier = context.state.barrier or report.barrier_waits.barriers["barrier"][0]
    parts = [
        *notes(report.notes),
        matrix,
        card(
            "By barrier",
            tables.barrier_waits(context),
            note="longest first; choose a barrier for its slots",
            actions=[download("CSV", links.download(name, "barrier_waits.csv"))],
        ),
        html.Div([_releasers(context, barrier), _slots(context, barrier)], className="columns tables"),
    ]
    return html.Div(parts, className="page")


def _releasers(context: PageContext, barrier: str) -> Component:
    releasers = context.loaded.report.barrier_waits.releasers
    rows = releasers.filter(pl.col("barrier") == barrier).sort("total_cycles", descending=True).to_dicts()
    longest = max((row["total_cycles"] for row in rows), default=1) or 1
    columns = [
        Column("Waiter", lambda row: row["role"]),
        Column("Released by", lambda row: row["releaser"].replace("tma_load", "TMA load")),
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
