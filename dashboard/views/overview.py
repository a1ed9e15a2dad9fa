"""Overview: what bounds this launch, what that costs, and what to change."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.markup import extra
from dashboard.quantities import share_text
from dashboard.views import tables
from dashboard.views.answers import answers
from dashboard.views.base import PageContext
from dashboard.views.components import Column, card, link, notes, table, table_downloads, time_chart
from dashboard.views.overview_tiles import tiles
from dashboard.views.progress import pending, section

PARTS = ("utilisation", "bubbles", "barrier_waits", "categories", "steady_state", "critical_path", "what_if", "advice")
"""What the page shows, in the order in which it is worth having."""


def build(context: PageContext) -> Component:
    """Lays the page out. What is still being found has a card that says so in its place."""
    sections = (
        (("utilisation", "bubbles", "barrier_waits"), "Barrier waits", _barrier_waits),
        (("utilisation", "bubbles"), "Tensor-core bubbles and losses", _bubbles),
    )
    charts = (
        (("utilisation", "bubbles"), "Tensor cores", _tensor_cores),
        (("categories",), "Warpgroups", _warpgroups),
    )
    return html.Div(
        [
            _verdict(context),
            *(notes(context.loaded.report.notes) if context.missing("utilisation") is None else []),
            tiles(context),
            html.Div([_filled(context, *one) for one in charts], className="columns"),
            *([] if context.missing("advice") else _advice(context)),
            *(_filled(context, *one) for one in sections),
        ],
        className="page",
    )


def _filled(
    context: PageContext, parts: tuple[str, ...], title: str, build: Callable[[PageContext, str], Component]
) -> Component:
    return section(context, parts, title, lambda: build(context, title))


def _tensor_cores(context: PageContext, title: str) -> Component:
    report = context.loaded.report
    return card(
        title,
        tables.budget_chart(report),
        time_chart(context, "sm-map", figures.sm_heatmap(report, context.units, height=150)),
        note="in use and in bubbles, in all and SM by SM",
        actions=[link("SMs", context.links.page("sms"))],
    )


def _warpgroups(context: PageContext, title: str) -> Component:
    note = "time of each role; waits are hatched"
    return card(title, tables.roles_chart(context.loaded.report), note=note)


def _barrier_waits(context: PageContext, title: str) -> Component:
    return card(
        title,
        tables.barrier_waits(context),
        note="summed over all warpgroups; bare: while the SM's tensor core had nothing in flight",
        actions=[
            *table_downloads(context, "barrier_waits"),
            link("Who waits for whom", context.links.page("barriers")),
        ],
    )


def _bubbles(context: PageContext, title: str) -> Component:
    return card(
        title,
        tables.bubbles(context, limit=6),
        note="longest first; gain ≤ says how much faster the kernel could get at most",
        actions=[*table_downloads(context, "bubbles"), link("All", context.links.page("bubbles"))],
    )


def _verdict(context: PageContext) -> Component:
    progress = context.missing(*PARTS)
    report = context.loaded.report
    if progress is None:
        sentence = f"{report.verdict[:1].upper()}{report.verdict[1:]}."
        limit = [html.P(f"{report.advice.limit}.", className="muted")] if report.advice.limit else []
        head = [html.P(sentence, className="verdict-sentence"), *limit]
    else:
        head = [pending(progress)]
    return html.Section([*head, answers(context)], className="verdict", **extra({"aria-label": "Verdict"}))


def _advice(context: PageContext) -> list[Component]:
    """Lays out what to try, largest gain first."""
    items = context.loaded.report.advice.items
    if not items:
        return []
    largest = max(item.gain_share for item in items)
    columns = [
        Column("What to try", lambda row: html.B(row["remedy"])),
        Column("because", lambda row: row["evidence"]),
        Column(
            "Gain",
            lambda row: f"{share_text(row['gain_share'])}",
            lambda row: row["gain_share"],
            lambda row: row["gain_share"] / largest,
            is_number=True,
            meaning="Of the launch.",
        ),
        Column(
            context.units.name,
            lambda row: context.units.number(row["gain_cycles"]),
            lambda row: row["gain_cycles"],
            is_number=True,
        ),
        Column(
            "",
            lambda row: html.Span({"replay": "by replay"}.get(row["basis"], row["basis"]), className="short muted"),
            meaning="by replay: an estimate on the graph of events. at most: a bound.",
        ),
    ]
    rows = [dataclasses.asdict(item) for item in items]
    more = link("What if …", context.links.page("critical-path"))
    note = "largest gain first; a bound counts half, for few are reached"
    return [card("What to try", table(columns, rows, "What to try"), note=note, actions=[more])]
