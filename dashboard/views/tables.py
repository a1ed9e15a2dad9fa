"""Tables that several pages show: losses of the tensor cores, barrier waits, releasers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.figures.categories import role_legend
from dashboard.figures.tensor_core import budget_parts
from dashboard.names import unit_name
from dashboard.quantities import share_text
from dashboard.theme import LegendEntry, color_of_cause
from dashboard.views.base import PageContext
from dashboard.views.components import NOTHING, Column, Content, chart, empty, link, swatch, table
from profiler import Report
from profiler.analysis import Cause, Detail, Reading, recommended_reading
from profiler.source_names import shorten_source

_MAX_LOCATION = 22
_MARGIN = 6  # an example is shown with this many times its length on both sides
_MIN_MARGIN_CYCLES = 1500
_LONGEST = {"timeline": "The longest one on the timeline", "perfetto": "The longest one in the Perfetto UI"}


def loss_groups(report: Report) -> list[dict[str, Any]]:
    """Returns bubbles and the time outside first and last use, grouped by cause, longest first.

    A row has the columns of `BubbleReport.groups`, `outside` (True: before the first or after the last use) and
    `reading` (what the cause means and what helps).
    """
    groups = pl.concat(
        [
            report.bubbles.groups.with_columns(outside=pl.lit(False)),
            report.bubbles.edge_groups.with_columns(outside=pl.lit(True)),
        ]
    ).sort("total_cycles", "cause", "detail", "source", descending=[True, False, False, False])
    return [
        row | {"reading": recommended_reading(Cause(row["cause"]), Detail(row["detail"]))}
        for row in groups.iter_rows(named=True)
    ]


def bubbles(context: PageContext, limit: int | None = None) -> Component:
    """Returns the table of losses, with a link to the longest example of each."""
    rows = loss_groups(context.loaded.report)[:limit]
    if not rows:
        return empty("No bubbles", "The tensor cores were never without work between their first and last use.")
    units = context.units
    largest = max(row["kernel_share"] for row in rows) or 1.0
    columns = [
        Column("Cause", lambda row: swatch(color_of_cause(row["cause"]), _cause(row)), lambda row: row["cause"]),
        Column("Barrier", _place, meaning="The barrier waited for, and the one behind it if that wait was held up."),
        Column("Source", lambda row: source_link(context, row["source"])),
        Column("Count", lambda row: f"{row['count']:,}", lambda row: row["count"], is_number=True),
        Column(
            "Share",
            lambda row: share_text(row["kernel_share"]),
            lambda row: row["kernel_share"],
            lambda row: row["kernel_share"] / largest,
            is_number=True,
            meaning="Of the launch, over all SMs that used their tensor core.",
        ),
        _duration("Total", "total_cycles", context),
        _duration("p50", "p50_cycles", context),
        _duration("p95", "p95_cycles", context),
        Column(
            "Gain ≤",
            lambda row: units.number(row["gain_bound_cycles"]),
            lambda row: row["gain_bound_cycles"],
            is_number=True,
            meaning=f"Upper bound ({units.name}): what the group costs the SM that has most of it.",
        ),
        Column("What helps", lambda row: _remedy(row["reading"])),
        Column("", lambda row: _examples(context, lambda text, page: example_link(context, row, text, page))),
    ]
    if limit is not None:
        columns = [column for column in columns if column.title not in ("p50", "p95")]
    return table(columns, rows, "Tensor-core bubbles by cause")


def barrier_waits(context: PageContext, role: str = "") -> Component:
    """Returns the table of waits by barrier and waiting role."""
    report = context.loaded.report
    rows: list[dict[str, Any]] = report.barrier_waits.barriers.to_dicts()
    rows = [row | {"blame": main_blame(report, row)} for row in rows]
    rows = [row for row in rows if role in ("", row["role"])]
    if not rows:
        return empty("No barrier waits", "No warpgroup waited for a barrier, or no wait was recorded.")
    longest = max(row["blocked_cycles"] for row in rows) or 1
    columns = [
        Column("Barrier", lambda row: link(row["barrier"], context.links.page("barriers", barrier=row["barrier"]))),
        Column("Waiter", lambda row: row["role"]),
        Column("Waits", lambda row: f"{row['waits']:,}", lambda row: row["waits"], is_number=True),
        Column(
            "Blocked",
            lambda row: f"{row['blocked']:,}",
            lambda row: row["blocked"],
            is_number=True,
            meaning="Waits that began before their phase was complete.",
        ),
        Column(
            f"Time ({context.units.name})",
            lambda row: context.units.number(row["blocked_cycles"]),
            lambda row: row["blocked_cycles"],
            lambda row: row["blocked_cycles"] / longest,
            is_number=True,
            meaning="Blocked time over all warpgroups.",
        ),
        Column(
            "Bare",
            lambda row: context.units.number(row["uncovered_cycles"]),
            lambda row: row["uncovered_cycles"],
            lambda row: row["uncovered_cycles"] / longest,
            is_number=True,
            meaning="Blocked while the SM's tensor core had nothing in flight: the part that other work did not cover.",
        ),
        _duration("p50", "p50_cycles", context),
        _duration("p95", "p95_cycles", context),
        _duration("Max", "max_cycles", context),
        Column("Released by", lambda row: unit_name(row["released_by"])),
        Column(
            "which had been",
            lambda row: _had_been(context, row["blame"]),
            meaning="What the releaser, or who issued the releasing load, did while it was waited for.",
        ),
        Column("", lambda row: _examples(context, lambda text, page: _longest_wait(context, row, text, page))),
    ]
    return table(columns, rows, "Waits by barrier")


def budget_chart(report: Report) -> Component:
    """Returns the bar of what the tensor cores did, with the share of each part."""
    return chart("tensor-core-budget", figures.tensor_core_budget(report), budget_legend(report))


def budget_legend(report: Report) -> list[LegendEntry]:
    """Returns an entry for each part of the tensor cores' time, with its share."""
    return [LegendEntry(part.color, f"{part.name} {share_text(part.share)}") for part in budget_parts(report)]


def roles_chart(report: Report) -> Component:
    """Returns the bars of where each role's time went."""
    return chart("role-categories", figures.role_categories(report), role_legend(report))


def example_link(context: PageContext, row: Mapping[str, Any], text: str, page: str) -> Component:
    """Returns a link to the longest example of a group of bubbles: on the timeline, or on another `page`."""
    begin, dur = row["example_begin"], row["example_dur"]
    return link(
        text,
        _around(context, row["example_sm"], begin, dur, f"bubble:{row['example_sm']}:{begin}", page),
        _LONGEST[page],
        "show",
    )


def source_link(context: PageContext, location: str) -> Component | str:
    """Returns a link to a line on the source page."""
    if not location:
        return NOTHING
    return link(shorten_source(location, _MAX_LOCATION), f"{context.links.page('source')}#{location}", location, "code")


def _examples(context: PageContext, show: Callable[[str, str], Component | str]) -> Component:
    """Returns links to the longest example: on the timeline, and in the Perfetto UI where there is one."""
    in_perfetto = [show("Perfetto", "perfetto")] if context.perfetto_ui else []
    return html.Span([show("show", "timeline"), *in_perfetto], className="row-actions")


def _had_been(context: PageContext, blame: Mapping[str, Any]) -> Content:
    place = blame["had_been_source"]
    return [f"{blame['had_been']} ", source_link(context, place)] if place else blame["had_been"]


def _remedy(reading: Reading) -> Component:
    return html.Div(reading.remedy, title=f"{reading.remedy}. {reading.meaning}.", className="clamp")


def _longest_wait(context: PageContext, row: Mapping[str, Any], text: str, page: str) -> Component | str:
    waits = context.loaded.report.barrier_waits.waits
    of_row = waits.filter((pl.col("barrier") == row["barrier"]) & (pl.col("role") == row["role"]))
    if of_row.is_empty():
        return ""
    longest = of_row.sort("blocked_cycles", "span", descending=[True, False]).row(0, named=True)
    href = _around(context, longest["sm"], longest["begin"], longest["dur"], f"span:{longest['span']}", page)
    return link(text, href, _LONGEST[page], "show")


def _around(context: PageContext, sm: int, begin: int, dur: int, selected: str, page: str) -> str:
    margin = max(_MARGIN * dur, _MIN_MARGIN_CYCLES)
    end = min(begin + dur + margin, context.loaded.trace.end)
    return context.links.page(page, sm=sm, t0=max(begin - margin, 0), t1=end, sel=selected)


def _duration(title: str, column: str, context: PageContext) -> Column:
    units = context.units
    return Column(
        title,
        lambda row: units.number(row[column]),
        lambda row: row[column],
        is_number=True,
        meaning=f"In {units.name}.",
    )


def _cause(row: Mapping[str, Any]) -> str:
    return f"{row['cause']}, {row['detail']}" if row["detail"] else row["cause"]


def _place(row: Mapping[str, Any]) -> str:
    root = row["root_barrier"]
    return f"{row['barrier']} ← {root}" if root and root != row["barrier"] else row["barrier"] or NOTHING


def main_blame(report: Report, row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the usual releaser of a row of `BarrierWaitReport.barriers` had been doing: a row of `releasers`."""
    releasers = report.barrier_waits.releasers
    same = (pl.col(name) == row[name] for name in ("barrier", "role"))
    blame = releasers.filter(*same, pl.col("releaser") == row["released_by"]).head(1).to_dicts()
    return blame[0] if blame else {"had_been": NOTHING, "had_been_source": ""}
