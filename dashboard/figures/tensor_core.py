"""Where the tensor cores' time went: in use, in bubbles by cause, before the first and after the last use."""

from __future__ import annotations

import dataclasses

import plotly.graph_objects as go
import polars as pl

from dashboard.quantities import share_text
from dashboard.theme import KIND_COLORS, color_of_cause, style
from profiler import Report

BUSY = "in use"


@dataclasses.dataclass(frozen=True)
class BudgetPart:
    """One part of the tensor cores' time: `cycles` over all SMs in use, and its `share` of theirs."""

    name: str
    cycles: int
    share: float
    color: str


def budget_parts(report: Report) -> list[BudgetPart]:
    """Splits the analysed cycles of all SMs in use: busy first, then losses, longest first. The shares sum to 1."""
    total = report.bubbles.sms.height * report.window.end
    if not total:
        return []
    groups = pl.concat([report.bubbles.groups, report.bubbles.edge_groups])
    losses = groups.group_by("cause").agg(pl.col("total_cycles").sum()).sort(["total_cycles", "cause"])
    parts = [BudgetPart(BUSY, report.utilisation.busy_cycles, 0.0, KIND_COLORS["tensor_core"])]
    parts += [
        BudgetPart(cause, cycles, 0.0, color_of_cause(cause))
        for cause, cycles in losses.reverse().iter_rows()
        if cycles
    ]
    unexplained = total - sum(part.cycles for part in parts)
    if unexplained > 0:  # a window that ends before the launch does not know what came after the last use
        parts.append(BudgetPart("not known", unexplained, 0.0, "#c9ced6"))
    return [dataclasses.replace(part, share=part.cycles / total) for part in parts]


def tensor_core_budget(report: Report) -> go.Figure:
    """Draws one bar: what the tensor cores of the SMs in use did over the launch."""
    figure = go.Figure()
    for part in budget_parts(report):
        label = f"{part.name} {share_text(part.share)}" if part.share > 0.05 else ""
        figure.add_bar(
            name=part.name,
            x=[part.share],
            y=[""],
            orientation="h",
            marker={"color": part.color, "line": {"width": 0}},
            text=label,
            textposition="inside",
            insidetextanchor="middle",
            insidetextfont={"color": "#ffffff", "size": 12},
            hovertemplate=f"<b>{part.name}</b><br>{part.cycles:,} cycles over all SMs in use"
            f"<br>{part.share:.2%} of their time<extra></extra>",
        )
    figure.update_layout(barmode="stack", uniformtext={"minsize": 11, "mode": "hide"})
    style(figure, height=88)
    figure.update_xaxes(range=[0, 1], tickformat=".0%", showgrid=False)
    return figure
