"""The three answers that a launch is opened for: which barrier costs the most, why, and what to change."""

from __future__ import annotations

from typing import Any

import polars as pl
from dash import html
from dash.development.base_component import Component

from dashboard.markup import extra
from dashboard.names import unit_name
from dashboard.quantities import share_text
from dashboard.views import tables
from dashboard.views.base import PageContext
from dashboard.views.components import Content, link
from profiler import Report
from profiler.analysis.advice import Advice


def answers(context: PageContext) -> Component:
    """Lays the answers out side by side; one that nothing is known about is left out, or not yet."""
    parts: list[Component | None] = []
    if context.missing("barrier_waits", "categories") is None:
        parts.append(_cost(context, costliest_barrier(context.loaded.report)))
    if context.missing("barrier_waits", "bubbles") is None:
        parts.append(_reason(context, costliest_barrier(context.loaded.report)))
    if context.missing("advice") is None:
        parts.append(_change(context))
    return html.Div([part for part in parts if part is not None], className="answers")


def costliest_barrier(report: Report) -> dict[str, Any] | None:
    """Returns the row of `BarrierWaitReport.barriers` that cost the tensor core most, or else was waited at longest.

    None if nobody was blocked.
    """
    rows = report.barrier_waits.barriers.filter(pl.col("blocked_cycles") > 0)
    keys = ["uncovered_cycles", "blocked_cycles", "barrier", "role"]
    found = rows.sort(keys, descending=[True, True, False, False]).head(1).to_dicts()
    return found[0] if found else None


def first_changes(report: Report) -> list[Advice]:
    """Returns what to try first and, if what that gains is only bounded, the first whose gain a replay predicts."""
    items = report.advice.items
    predicted = next((item for item in items if item.basis == "replay"), None)
    return list(dict.fromkeys(item for item in (*items[:1], predicted) if item is not None))


def _cost(context: PageContext, barrier: dict[str, Any] | None) -> Component | None:
    if barrier is None:
        return None
    report, units = context.loaded.report, context.units
    tracks = report.categories.tracks.filter(pl.col("role") == barrier["role"]).height
    share = barrier["blocked_cycles"] / max(report.window.end * tracks, 1)
    detail = [
        f"{barrier['role']} warpgroups are blocked there {share_text(share)} of their time; for "
        f"{units.text(barrier['uncovered_cycles'])} of it, over all SMs, the tensor core had nothing to do."
    ]
    href = context.links.page("barriers", barrier=barrier["barrier"])
    return _answer("Which barrier costs the most", link(barrier["barrier"], href), detail)


def _reason(context: PageContext, barrier: dict[str, Any] | None) -> Component | None:
    if barrier is None:
        return None
    report = context.loaded.report
    losses = [row for row in tables.loss_groups(report) if row["barrier"] == barrier["barrier"]]
    blame = tables.main_blame(report, barrier)
    had_been: Content = [
        f"{unit_name(barrier['released_by'])} ends the wait; it had been {blame['had_been']} ",
        *([tables.source_link(context, blame["had_been_source"])] if blame["had_been_source"] else []),
    ]
    if not losses:
        return _answer("Why", "it hides behind other work", had_been)
    meaning = losses[0]["reading"].meaning
    title = ", ".join(filter(None, (losses[0]["cause"], losses[0]["detail"])))
    shown = tables.example_link(context, losses[0], title, "timeline")
    return _answer("Why", shown, [f"{meaning[:1].upper()}{meaning[1:]}. ", *had_been])


def _change(context: PageContext) -> Component | None:
    items = first_changes(context.loaded.report)
    if not items:
        return None
    gains = [
        f"{'Gains' if item.basis == 'replay' else 'Gains at most'} {share_text(item.gain_share)} of the launch "
        f"({context.units.text(item.gain_cycles)}){', by replay of the recorded events' * (item.basis == 'replay')}."
        for item in items
    ]
    detail: list[Component | str] = [gains[0]]
    for item, gain in zip(items[1:], gains[1:], strict=True):
        detail += [" Then: ", html.B(item.remedy), f". {gain}"]
    return _answer("What to change first", link(items[0].remedy, context.links.page("critical-path")), detail)


def _answer(question: str, title: Component | str, detail: Content) -> Component:
    parts = [html.H3(question), html.P(title, className="answer"), html.P(detail, className="muted")]
    return html.Div(parts, **extra({"aria-label": question, "role": "group"}))
