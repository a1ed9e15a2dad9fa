"""Pipeline: the ring of SMEM slots of one CTA, how full it was, and its steady state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl
from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.figures.pipeline import STATE_COLORS, depth_colors
from dashboard.quantities import share_text
from dashboard.theme import LegendEntry
from dashboard.timeline.slots import FILLING, HELD, READING, full_barriers, slot_shares, slot_uses
from dashboard.views.base import PageContext
from dashboard.views.components import Column, card, cta_chooser, empty, link, notes, table, tile, time_chart


def build(context: PageContext) -> Component:
    """Lays the page out."""
    trace, report = context.loaded.trace, context.loaded.report
    ctas = trace.ctas["cta"].to_list()
    barriers = full_barriers(trace)
    if not ctas or not barriers:
        reason = "No TMA load of this launch completes a barrier, so there is no ring of slots to show."
        return html.Div([*notes(report.notes), empty("No pipeline", reason)], className="page")
    cta = context.state.cta if context.state.cta in ctas else ctas[0]
    sm = dict(trace.ctas.select("cta", "sm").iter_rows())[cta]
    uses = slot_uses(trace, cta)
    chooser = cta_chooser(ctas, cta, "Show")
    legend = [LegendEntry(color, state) for state, color in STATE_COLORS.items()]
    depths = [LegendEntry(color, f"slots of {ring} with data") for ring, color in depth_colors(trace, cta).items()]
    parts = [
        *notes(report.notes),
        _answer(context, uses),
        card(
            f"Slots of CTA {cta}",
            time_chart(
                context,
                "pipeline-slots",
                figures.pipeline_over_time(trace, cta, uses, context.units, barriers),
                [*legend, LegendEntry("transparent", "blank: empty"), *depths],
            ),
            note=f"on SM {sm}; drag to zoom, double click to reset. Below: how many slots held data",
            actions=[chooser, link("Timeline", context.links.page("timeline", sm=sm, cta=cta))],
        ),
        html.Div([_shares(uses), _steady_state(context)], className="columns tables"),
    ]
    return html.Div(parts, className="page")


def _answer(context: PageContext, uses: pl.DataFrame) -> Component:
    """Says whether more stages would help: how long slots lay full, empty, or in use, and the replay's estimate."""
    progress = context.missing("what_if")
    shares = slot_shares(uses)
    means = {name: _mean(shares, name) for name in ("filling", "held", "reading", "empty")}
    tiles = [
        tile("Filling", share_text(means["filling"]), "TMA in flight", "Mean over the CTA's slots.", means["filling"]),
        tile(
            "Full, not read yet",
            share_text(means["held"]),
            "high: consumer bound",
            "Data waits for the consumers.",
            means["held"],
        ),
        tile(
            "Being read",
            share_text(means["reading"]),
            "until released",
            "From the first consumer's wait to the release.",
            means["reading"],
        ),
        tile(
            "Empty",
            share_text(means["empty"]),
            "high: the producer is late",
            "Released, and not being filled.",
            means["empty"],
        ),
    ]
    tiles += _one_more_stage(context) if progress is None else [tile("One more stage", "…", progress.title.lower())]
    interval = context.loaded.report.steady_state
    bound = interval.bound_by or "no loop found"
    tiles.append(
        tile("Iteration", context.units.text(interval.interval_cycles), f"bound by {bound}", "Median over all CTAs.")
    )
    return html.Div(tiles, className="tiles")


def _one_more_stage(context: PageContext) -> list[Component]:
    """Returns a tile for each ring that the replay could give one more stage."""
    scenarios = context.loaded.report.what_if.scenarios
    rows = scenarios.filter(pl.col("scenario").str.starts_with("one more stage")).to_dicts()
    cycles = max(context.loaded.report.kernel_cycles, 1)
    meaning = "Change of the kernel's time by replay on the graph of events: an estimate."
    return [
        tile(
            "One more stage",
            f"\u2212{row['gain_cycles'] / cycles:.1%}" if row["gain_cycles"] else "no gain",
            row["caveat"],
            meaning,
        )
        for row in rows
    ]


def _mean(shares: pl.DataFrame, name: str) -> float:
    value = shares[name].mean()
    return float(value) if isinstance(value, int | float) else 0.0


def _shares(uses: pl.DataFrame) -> Component:
    rows = slot_shares(uses).to_dicts()

    def column(title: str, name: str, meaning: str) -> Column:
        def value(row: Mapping[str, Any]) -> float:
            return row[name]

        return Column(title, lambda row: share_text(row[name]), value, value, True, meaning)

    columns = [
        Column("Slot", lambda row: f"{row['barrier']}[{row['slot']}]"),
        column("Filling", "filling", FILLING),
        column("Full", "held", HELD),
        column("Being read", "reading", READING),
        column("Empty", "empty", "released, and no load under way"),
    ]
    return card(
        "Time of each slot", table(columns, rows, "Time of each slot"), note="from its first load to its last release"
    )


def _steady_state(context: PageContext) -> Component:
    rows = context.loaded.report.steady_state.by_warpgroup().to_dicts()
    if not rows:
        return card("Steady state", empty("No loop", "No warpgroup waited for data more than once."))
    units = context.units

    def column(title: str, name: str, meaning: str = "") -> Column:
        return Column(
            title, lambda row: units.number(row[name]), lambda row: row[name] or 0, is_number=True, meaning=meaning
        )

    columns = [
        Column("Warpgroup", lambda row: row["name"]),
        Column("Iterations", lambda row: f"{row['iterations']:,.0f}", lambda row: row["iterations"], is_number=True),
        column("Interval", "interval_cycles", "Median from one wait for data to the next."),
        column("p95", "p95_interval_cycles"),
        column("Data wait", "data_wait_cycles", "Per iteration, waiting for the full barrier."),
        column("MMA wait", "mma_wait_cycles", "Per iteration, waiting for MMAs."),
        column("Other", "other_cycles", "Per iteration, everything else."),
        column("Prologue", "prologue_cycles", "Start of the warpgroup to its first iteration."),
        column("Epilogue", "epilogue_cycles", "Last MMA to exit."),
        Column("Bound by", lambda row: row["bound_by"]),
    ]
    return card("Steady state", table(columns, rows, "Steady state"), note=f"medians over CTAs, {units.name}")
