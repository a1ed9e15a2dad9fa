"""Roofline: how far is the launch from what the device allows, and which limit is nearest?"""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.quantities import share_text
from dashboard.views.base import PageContext
from dashboard.views.components import Column, card, chart, empty, notes, table, tile


def build(context: PageContext) -> Component:
    """Lays the page out."""
    report, units = context.loaded.report, context.units
    roof = report.roofline
    figure = figures.roofline(report)
    if figure is None:
        reason = "The launch recorded no MMA or no TMA copy, or its capture tells no peak rates of the device."
        return html.Div([*notes(report.notes), empty("No roofline", reason)], className="page")
    tiles = [
        tile(
            "Of tensor-core peak",
            share_text(report.utilisation.peak_share),
            "all SMs of the device",
            "",
            report.utilisation.peak_share,
        ),
        tile(
            "Intensity",
            f"{roof.intensity:,.1f}",
            "FLOP per byte that TMA moved",
            "MMA operations over bytes into and out of SMEM.",
        ),
        tile("Computed", f"{roof.flops / 1e9:,.2f}", "GFLOP in MMAs", ""),
        tile(
            "Loaded", f"{roof.load_bytes / 1e6:,.1f}", "MB into SMEM by TMA", "A multicast load counts where it lands."
        ),
        tile("Stored", f"{roof.store_bytes / 1e6:,.1f}", "MB out of SMEM by TMA", ""),
    ]
    columns = [
        Column("Ceiling", lambda row: row["ceiling"]),
        Column("Work", lambda row: f"{row['work']:,} {row['unit']}", lambda row: row["work"], is_number=True),
        Column("Rate per cycle", lambda row: f"{row['rate']:,.1f}", lambda row: row["rate"], is_number=True),
        Column(
            "Least time", lambda row: units.text(row["least_cycles"]), lambda row: row["least_cycles"], is_number=True
        ),
        Column(
            "of the launch",
            lambda row: share_text(row["share"]),
            lambda row: row["share"],
            lambda row: row["share"],
            True,
            "Above 100 % for HBM: L2 served bytes that did not come from there.",
        ),
    ]
    return html.Div(
        [
            *notes(report.notes),
            html.Div(tiles, className="tiles"),
            card(
                "Roofline",
                chart("roofline", figure),
                note="per SM; bytes are what TMA moved, so L2 hits make HBM's roof pessimistic",
            ),
            card(
                "Ceilings",
                table(columns, roof.ceilings.to_dicts(), "Ceilings"),
                note="the time each rate needs for the launch's work",
            ),
        ],
        className="page",
    )
