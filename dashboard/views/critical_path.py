"""Critical path: which chain of events took as long as the launch, and what would change it?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.figures.critical_path import color_of_step
from dashboard.names import step_name
from dashboard.quantities import share_text
from dashboard.theme import LegendEntry
from dashboard.views import tables
from dashboard.views.base import PageContext
from dashboard.views.components import (
    NOTHING,
    Column,
    badge,
    card,
    link,
    notes,
    swatch,
    table,
    table_downloads,
    time_chart,
)
from dashboard.views.progress import section

_MAX_ROWS = 24


def build(context: PageContext) -> Component:
    """Lays the page out."""
    report = context.loaded.report
    kinds = report.critical_path.parts.group_by("kind", maintain_order=True).agg(pl.col("share").sum())
    legend = [
        LegendEntry(color_of_step(kind), f"{step_name(kind)} {share_text(share)}")
        for kind, share in kinds.sort("share", "kind", descending=[True, False]).iter_rows()
    ]
    return html.Div(
        [
            *notes(report.notes),
            card(
                "The path over time",
                time_chart(context, "critical-path", figures.critical_path_strip(report, context.units), legend),
                note="consecutive steps from the launch's first moment to its last: they sum to its length",
            ),
            html.Div(
                [section(context, ("what_if",), "What if", lambda: _what_if(context)), _parts(context)],
                className="columns tables",
            ),
            card(
                "Slack of everything else",
                _slack(context),
                note="by how much one occurrence could grow without moving the end",
                actions=table_downloads(context, "slack"),
            ),
        ],
        className="page",
    )


def _what_if(context: PageContext) -> Component:
    units, report = context.units, context.loaded.report
    rows = report.what_if.scenarios.to_dicts()
    largest = max((row["gain_cycles"] for row in rows), default=1) or 1
    columns = [
        Column("If …", lambda row: [html.Span(row["scenario"], title=row["caveat"]), *_bound(row)]),
        Column(
            f"Gain ({units.name})",
            lambda row: units.number(row["gain_cycles"]),
            lambda row: row["gain_cycles"],
            lambda row: row["gain_cycles"] / largest,
            True,
            "By how much the launch would get shorter.",
        ),
        Column("Speed-up", lambda row: f"{row['speedup']:.3f}x", lambda row: row["speedup"], is_number=True),
    ]
    return card("What if", table(columns, rows, "What if"), note="estimates, by replay on the graph of events")


def _bound(row: Mapping[str, Any]) -> list[Component | str]:
    return (
        [" ", badge("bound", "", "Nobody can build it: how much there is to gain at most.")] if row["is_bound"] else []
    )


def _parts(context: PageContext) -> Component:
    units = context.units
    rows = context.loaded.report.critical_path.parts.head(_MAX_ROWS).to_dicts()
    largest = max((row["share"] for row in rows), default=1.0) or 1.0
    columns = [
        Column("Step", lambda row: swatch(color_of_step(row["kind"]), step_name(row["kind"]))),
        Column("of", lambda row: ", ".join(filter(None, (row["role"], row["barrier"]))) or NOTHING),
        Column("Source", lambda row: tables.source_link(context, row["source"])),
        Column("Count", lambda row: f"{row['count']:,}", lambda row: row["count"], is_number=True),
        Column(units.name, lambda row: units.number(row["cycles"]), lambda row: row["cycles"], is_number=True),
        Column(
            "Share",
            lambda row: share_text(row["share"]),
            lambda row: row["share"],
            lambda row: row["share"] / largest,
            is_number=True,
            meaning="Of the launch.",
        ),
    ]
    example = context.loaded.report.critical_path.steps
    on = example.filter(example["sm"] >= 0)["sm"]
    more = (
        [link("Its SM on the timeline", context.links.page("timeline", sm=int(on.mode().sort()[0])))] if len(on) else []
    )
    return card("What the path consists of", table(columns, rows, "Critical path"), actions=more)


def _slack(context: PageContext) -> Component:
    units = context.units
    columns = [
        Column("Step", lambda row: swatch(color_of_step(row["kind"]), step_name(row["kind"]))),
        Column("of", lambda row: ", ".join(filter(None, (row["role"], row["barrier"]))) or NOTHING),
        Column("Source", lambda row: tables.source_link(context, row["source"])),
        Column("Count", lambda row: f"{row['count']:,}", lambda row: row["count"], is_number=True),
        Column(
            "Least slack",
            lambda row: units.number(row["min_slack_cycles"]),
            lambda row: row["min_slack_cycles"],
            is_number=True,
        ),
        Column(
            "Median slack",
            lambda row: units.number(row["p50_slack_cycles"]),
            lambda row: row["p50_slack_cycles"],
            is_number=True,
        ),
    ]
    rows = context.loaded.report.critical_path.slack.head(_MAX_ROWS).to_dicts()
    return table(columns, rows, "Slack")
