"""Compare: what got faster or slower from one launch to another, and where the time went."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.figures.pipeline import STATE_COLORS
from dashboard.names import step_name
from dashboard.state import ViewState
from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.theme import LegendEntry
from dashboard.timeline.slots import slot_uses
from dashboard.views.base import PageContext
from dashboard.views.components import (
    NOTHING,
    Column,
    badge,
    card,
    chart,
    cta_chooser,
    empty,
    notes,
    select,
    table,
    tile,
)
from profiler import CaptureError, Launch
from profiler.analysis.compare import CompareReport, compare_reports

PARTS = ("utilisation", "bubbles", "categories", "steady_state")
"""What a comparison needs of both launches."""


def build(context: PageContext) -> Component:
    """Lays the page out: the launch of the top bar against the one chosen here."""
    others = _others(context.store, context.loaded.name)
    launch = other_launch(context.store, context.loaded.name, context.state)
    if launch is None:
        return html.Div(
            [empty("Nothing to compare with", "Record a second launch into the same profile directory.")],
            className="page",
        )
    name = launch.name
    chooser = html.Div([select("other", [(one, one) for one in others], name, "Before")], className="toolbar")
    try:
        other = context.store.load(launch, PARTS)
    except CaptureError as error:
        return html.Div([chooser, empty(f"{name} cannot be read", str(error))], className="page")
    compared = compare_reports(other.report, context.loaded.report, across_devices=True)
    return html.Div(
        [
            chooser,
            _headline(context, other, compared),
            *notes([f"Not the same in both: {note}" for note in compared.notes]),
            card(
                "Where the difference comes from",
                chart("compare-waterfall", figures.waterfall(compared, context.units)),
                note="tensor cores of the SMs in use, on average; the steps sum to the difference",
            ),
            *_pipelines(context, other),
            html.Div(
                [
                    card(
                        "Waits of each role",
                        _table(context, compared.waits, ("role", "kind", "barrier")),
                        note="of one track on average",
                    ),
                    card(
                        "Phases of each warpgroup",
                        _table(context, compared.phases, ("name", "phase")),
                        note="medians over CTAs",
                    ),
                ],
                className="columns tables",
            ),
        ],
        className="page",
    )


def _pipelines(context: PageContext, other: LoadedLaunch) -> list[Component]:
    """Shows the rings of one CTA in both launches below each other; nothing if either has none."""
    of_both = [set(launch.trace.ctas["cta"].to_list()) for launch in (other, context.loaded)]
    ctas = sorted(of_both[0] & of_both[1])
    if not ctas:
        return []
    cta = context.state.cta if context.state.cta in ctas else ctas[0]
    before, after = (slot_uses(launch.trace, cta) for launch in (other, context.loaded))
    if before.is_empty() or after.is_empty():
        return []
    chooser = cta_chooser(ctas, cta, "Of")
    legend = [LegendEntry(color, state) for state, color in STATE_COLORS.items()]
    figure = figures.paired_gantt(before, after, context.units)
    return [
        card(
            "Pipelines side by side",
            chart("compare-pipelines", figure, [*legend, LegendEntry("transparent", "blank: empty")]),
            note="0 is when each CTA's first tile began to be read; both zoom together",
            actions=[chooser],
        )
    ]


def other_launch(store: LaunchStore, name: str, state: ViewState) -> Launch | None:
    """Returns the launch to compare launch `name` with: the one that is asked for, or else the one before it."""
    others = _others(store, name)
    if not others:
        return None
    return store.find(state.other if state.other in others else _before(name, others))


def _others(store: LaunchStore, name: str) -> list[str]:
    return [launch.name for launch in store.launches() if launch.name != name]


def _before(name: str, others: list[str]) -> str:
    """Returns the launch that most likely came before: the next smaller name, else the first."""
    return max((other for other in others if other < name), default=others[0])


def _headline(context: PageContext, other: LoadedLaunch, compared: CompareReport) -> Component:
    units, change = context.units, compared.change
    faster = change < 0
    verdict = "as fast as" if abs(change) < 0.0005 else f"{abs(change):.1%} {'faster' if faster else 'slower'} than"
    sentence = f"{context.loaded.name} is {verdict} {other.name}"
    use = [launch.report.utilisation.busy_share_of_used_sms for launch in (other, context.loaded)]
    bubbles = [launch.report.bubbles.bubble_share for launch in (other, context.loaded)]
    tiles = [
        tile("Before", units.text(compared.a_cycles), other.name),
        tile("After", units.text(compared.b_cycles), context.loaded.name),
        tile("Difference", f"{units.convert(compared.delta_cycles):+,.0f}", units.name),
        tile("Tensor cores busy", f"{use[0]:.1%} → {use[1]:.1%}", "of the SMs in use"),
        tile("Bubbles", f"{bubbles[0]:.1%} → {bubbles[1]:.1%}", "between first and last MMA"),
    ]
    tone = "good" if faster else "bad" if change > 0.0005 else ""
    head = html.P([badge(f"{change:+.1%}", tone), f" {sentence}."], className="verdict-sentence")
    return html.Div([html.Section(head, className="verdict"), html.Div(tiles, className="tiles")], className="stack")


def _table(context: PageContext, frame: pl.DataFrame, keys: tuple[str, ...]) -> Component:
    rows = [row for row in frame.to_dicts() if row["delta_cycles"] is not None]
    rows.sort(key=lambda row: -abs(row["delta_cycles"]))
    units = context.units
    largest = max((abs(row["delta_cycles"]) for row in rows), default=1.0) or 1.0

    def cycles(name: str, title: str) -> Column:
        return Column(title, lambda row: units.number(row[name]), lambda row: row[name] or 0, is_number=True)

    def key(name: str) -> Column:
        return Column(name.capitalize(), _text(name))

    columns = [
        *(key(name) for name in keys),
        cycles("a_cycles", "Before"),
        cycles("b_cycles", "After"),
        Column(
            f"Change ({units.name})",
            lambda row: _signed(units.convert(row["delta_cycles"])),
            lambda row: row["delta_cycles"],
            lambda row: abs(row["delta_cycles"]) / largest,
            is_number=True,
            tone=lambda row: "bad" if row["delta_cycles"] > 0 else "good",
        ),
    ]
    return table(columns, rows, "Differences")


def _signed(value: float) -> str:
    return f"{value:+,.0f}" if abs(value) >= 0.5 else "0"


def _text(name: str) -> Callable[[Mapping[str, Any]], str]:
    """Returns what makes a cell: names of kinds are words, those of barriers are the author's."""
    if name == "kind":
        return lambda row: step_name(row[name])
    return lambda row: row[name] or NOTHING
