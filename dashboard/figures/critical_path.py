"""The critical path: what the launch's length consists of."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dashboard.names import step_name
from dashboard.quantities import Units
from dashboard.theme import KIND_COLORS, SEQUENCE, style
from profiler import Report

# Families of one hue: green loads, blue MMAs, cyan stores, orange CTAs; grey is what nobody asked for.
STEP_COLORS = {
    "TMA load": "#2a9d59",
    "TMA load, queued": "#99c9a5",
    "TMA bandwidth": "#6fbf8b",
    "memory bandwidth": "#1f6e41",
    "tma_load": "#7c8f2e",
    "TMA store": "#3bb3cf",
    "tma_store": "#9adbe6",
    "store_wait": KIND_COLORS["store_wait"],
    "MMA": "#4477aa",
    "MMA throughput": "#7fa6cf",
    "MMA start": "#2f5f94",
    "mma_issue": "#b4cbe3",
    "mma_wait": KIND_COLORS["mma_wait"],
    "completion": "#d3d36a",
    "CTA start": "#e28e4c",
    "CTA switch": "#f0bb8d",
    "CTA exit": "#b5652a",
    "launch ramp": "#66778c",
    "barrier hop": "#ee6677",
    "barrier_wait": "#b3263c",
    "barrier_arrive": "#f5a9b2",
    "sync": "#cc79a7",
    "scope": "#7a68b8",
    "commit_smem": "#44aa99",
    "set_registers": "#8c6d46",
    "unrecorded code": "#9aa0a8",
    "recording": "#c3c8cf",
}
_MAX_STEPS = 3000


def color_of_step(kind: str) -> str:
    """Returns the colour of a kind of step; kinds without one of their own share the palette by their letters."""
    return STEP_COLORS.get(kind) or SEQUENCE[sum(map(ord, kind)) % len(SEQUENCE)]


def critical_path_strip(report: Report, units: Units) -> go.Figure:
    """Draws the path over time: a bar per step, coloured by kind. Of very long paths the longest steps are drawn."""
    steps = report.critical_path.steps
    if steps.height > _MAX_STEPS:
        steps = steps.sort("dur", "begin", descending=[True, False]).head(_MAX_STEPS).sort("begin")
    order = steps.group_by("kind").agg(pl.col("dur").sum()).sort("dur", "kind", descending=[True, False])
    figure = go.Figure()
    for kind in order["kind"].to_list():
        rows = steps.filter(pl.col("kind") == kind)
        figure.add_bar(
            name=step_name(kind),
            base=[units.convert(begin) for begin in rows["begin"]],
            x=[units.convert(dur) for dur in rows["dur"]],
            y=[""] * rows.height,
            orientation="h",
            width=0.8,
            marker={"color": color_of_step(kind), "line": {"width": 0}},
            customdata=rows.select("role", "sm", "source").to_numpy(),
            hovertemplate=f"<b>{step_name(kind)}</b> %{{customdata[0]}}<br>at %{{base:,.0f}}, %{{x:,.0f}} {units.name}"
            "<br>SM %{customdata[1]} %{customdata[2]}<extra></extra>",
        )
    figure.update_layout(barmode="overlay")
    style(figure, height=130)
    figure.update_xaxes(title_text=f"time ({units.name})", range=[0, units.convert(max(report.critical_path.end, 1))])
    return figure
