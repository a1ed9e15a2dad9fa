"""SMs: was the work spread evenly, and what did waves and the tail cost?"""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.quantities import share_text
from dashboard.views import tables
from dashboard.views.base import PageContext
from dashboard.views.components import Column, card, chart, empty, link, notes, table, table_downloads, tile, time_chart


def build(context: PageContext) -> Component:
    """Lays the page out."""
    report, units = context.loaded.report, context.units
    if report.bubbles.sms.is_empty():
        return html.Div(
            [*notes(report.notes), _tiles(context), empty("No MMA", "No SM used its tensor core."), _table(context)],
            className="page",
        )
    return html.Div(
        [
            *notes(report.notes),
            _tiles(context),
            card(
                "Tensor core of each SM over time",
                time_chart(context, "sm-heatmap", figures.sm_heatmap(report, units)),
                note="share of each time slice with an MMA in flight",
            ),
            card(
                "Time of each SM's tensor core",
                chart("sm-losses", figures.sm_losses(report, units), tables.budget_legend(report)),
                note="in use, and losses by cause",
            ),
            _table(context),
        ],
        className="page",
    )


def _tiles(context: PageContext) -> Component:
    balance, units = context.loaded.report.balance, context.units
    tiles = [
        tile("CTAs", f"{balance.ctas.height:,}", f"{balance.ctas_per_sm} fit on an SM", "CTAs of the launch."),
        tile(
            "Waves",
            f"{balance.waves:.2f}",
            f"{share_text(balance.wave_efficiency)} of the places filled",
            "CTAs over the places that the device has for them.",
            balance.wave_efficiency,
        ),
        tile(
            "SMs in use",
            f"{balance.sms.height} of {balance.device_sms}",
            f"{balance.unused_sms} without a CTA",
            "SMs that ran a CTA.",
        ),
        tile(
            "Occupied",
            share_text(balance.occupied_share),
            "of all SM time",
            "A CTA was on the SM.",
            balance.occupied_share,
        ),
        tile("Tail", units.text(balance.tail_cycles), "first SM done to the end", "While SMs ran out of work."),
        tile("Imbalance", f"{balance.imbalance:.2f}x", "busiest SM over the mean", "1 is even."),
        tile(
            "If even",
            units.text(balance.even_cycles),
            "same work on all SMs",
            "A lower bound: the same SM time spread evenly.",
        ),
    ]
    return html.Div(tiles, className="tiles")


def _table(context: PageContext) -> Component:
    units, use = context.units, context.loaded.report.bubbles.sms
    rows = context.loaded.report.balance.sms.join(
        use.select("sm", "bubble_cycles", mma="busy_cycles"), on="sm", how="left"
    ).to_dicts()
    longest = max((row["busy_cycles"] for row in rows), default=1) or 1
    columns = [
        Column(
            "SM",
            lambda row: link(f"{row['sm']:03d}", context.links.page("timeline", sm=row["sm"])),
            lambda row: row["sm"],
        ),
        Column("CTAs", lambda row: str(row["ctas"]), lambda row: row["ctas"], is_number=True),
        Column(
            "First begin", lambda row: units.number(row["first_begin"]), lambda row: row["first_begin"], is_number=True
        ),
        Column("Last end", lambda row: units.number(row["last_end"]), lambda row: row["last_end"], is_number=True),
        Column(
            "Occupied",
            lambda row: units.number(row["busy_cycles"]),
            lambda row: row["busy_cycles"],
            lambda row: row["busy_cycles"] / longest,
            True,
            "At least one CTA was on the SM.",
        ),
        Column(
            "Tensor core busy",
            lambda row: units.number(row["mma"]),
            lambda row: row["mma"] or 0,
            lambda row: (row["mma"] or 0) / longest,
            True,
            "An MMA was in flight.",
        ),
        Column(
            "Bubbles",
            lambda row: units.number(row["bubble_cycles"]),
            lambda row: row["bubble_cycles"] or 0,
            lambda row: (row["bubble_cycles"] or 0) / longest,
            True,
            "Between its first and last MMA.",
        ),
    ]
    return card(
        "Every SM",
        table(columns, rows, "SMs"),
        note=f"in {units.name}; choose one for its timeline",
        actions=table_downloads(context, "sms"),
    )
