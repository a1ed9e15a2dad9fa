"""The launch over all SMs: what each tensor core did when, and what each SM lost."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
import polars as pl

from dashboard.quantities import Units
from dashboard.theme import KIND_COLORS, SEQUENTIAL, color_of_cause, style
from dashboard.timeline.losses import tensor_core_intervals
from profiler import Report

_COLUMNS = 400


def busy_raster(sm: np.ndarray, begin: np.ndarray, end: np.ndarray, duration: int, columns: int) -> np.ndarray:
    """Returns the share of each (SM, time slice) that intervals fill: float64[max SM + 1, columns], 0 to 1.

    Args:
      sm, begin, end: disjoint intervals per SM, in cycles.
      duration: cycles that the columns span.
      columns: number of time slices.
    """
    num_sms = int(sm.max(initial=-1)) + 1
    edges = np.linspace(0, duration, columns + 1)
    raster = np.zeros((num_sms, columns))
    for number in range(num_sms):
        own = sm == number
        # Cycles filled before time x: exact at begins and ends, linear between, so interpolation is exact everywhere.
        times = np.stack([begin[own], end[own]], 1).ravel()
        filled = np.cumsum(np.stack([np.zeros(own.sum()), (end - begin)[own]], 1).ravel())
        before = np.interp(edges, times, filled, left=0.0) if own.any() else np.zeros(columns + 1)
        raster[number] = np.diff(before) / max(duration / columns, 1e-9)
    return raster


def sm_heatmap(report: Report, units: Units, *, height: int = 0) -> go.Figure:
    """Draws the share of time in which each SM's tensor core had work, SM by time.

    Args:
      report: the launch's report.
      units: of the time axis.
      height: pixels of a small one without a colour scale; 0: by the number of SMs.
    """
    intervals = tensor_core_intervals(report.trace)
    columns = {name: intervals[name].to_numpy().astype(np.int64) for name in ("sm", "begin", "end")}
    duration = max(report.window.end, 1)
    raster = busy_raster(columns["sm"], columns["begin"], columns["end"], duration, _COLUMNS)
    times = [units.convert((index + 0.5) * duration / _COLUMNS) for index in range(_COLUMNS)]
    figure = go.Figure(
        go.Heatmap(
            z=np.round(raster * 100).astype(np.uint8),
            x=times,
            zmin=0,
            zmax=100,
            colorscale=[list(stop) for stop in SEQUENTIAL],
            colorbar={"ticksuffix": " %", "thickness": 10, "outlinewidth": 0, "xpad": 6, "dtick": 25},
            hovertemplate=f"SM %{{y}}<br>%{{x:,.0f}} {units.name}<br>tensor core busy %{{z}} %<extra></extra>",
        )
    )
    figure.update_traces(showscale=not height)
    style(figure, height=height or min(160 + 4 * len(raster), 680), legend=False)
    figure.update_xaxes(title_text=f"time ({units.name})", showgrid=False)
    figure.update_yaxes(title_text="SM", showgrid=False, autorange="reversed")
    return figure


def sm_losses(report: Report, units: Units) -> go.Figure:
    """Draws for each SM what its tensor core's time went into: busy, and losses by cause."""
    groups = pl.concat([report.bubbles.bubbles, report.bubbles.edges])
    sums = groups.group_by("cause", "sm").agg(pl.col("dur").sum())
    order = sums.group_by("cause").agg(pl.col("dur").sum()).sort("dur", "cause", descending=[True, False])
    sms = report.bubbles.sms
    figure = go.Figure()
    parts = [("in use", KIND_COLORS["tensor_core"], dict(sms.select("sm", "busy_cycles").iter_rows()))]
    for cause in order["cause"].to_list():
        rows = sums.filter(pl.col("cause") == cause).select("sm", "dur")
        parts.append((cause, color_of_cause(cause), dict(rows.iter_rows())))
    numbers = sms["sm"].to_list()
    for name, color, cycles in parts:
        values = [units.convert(cycles.get(sm, 0)) for sm in numbers]
        hover = f"<b>{name}</b><br>SM %{{x}}: %{{y:,.0f}} {units.name}<extra></extra>"
        figure.add_bar(
            name=name, x=numbers, y=values, marker={"color": color, "line": {"width": 0}}, hovertemplate=hover
        )
    figure.update_layout(barmode="stack")
    style(figure, height=300)
    figure.update_layout(bargap=0.05)
    figure.update_xaxes(title_text="SM", showgrid=False)
    figure.update_yaxes(title_text=units.name, tickformat=",.3~s")
    return figure
