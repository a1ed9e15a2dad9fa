"""Who waits for whom: blocked time by waiting role and releaser."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dashboard.names import unit_name
from dashboard.quantities import Units
from dashboard.theme import INK, LOSS, style
from profiler import Report


def barrier_matrix(report: Report, units: Units, *, gross: bool = False, height: int = 0) -> go.Figure:
    """Draws blocked time as a matrix of waiter (rows) and releaser (columns).

    Args:
      report: the launch's report.
      units: of the durations.
      gross: True counts all blocked time, False only what the SM's tensor core did not cover.
      height: pixels; 0: by the number of rows.
    """
    matrix = report.barrier_waits.matrix
    column = "blocked_cycles" if gross else "uncovered_cycles"
    waiters = matrix["role"].unique().sort().to_list()
    releasers = matrix.group_by("releaser").agg(pl.col(column).sum()).sort(column, "releaser", descending=[True, False])
    releaser_names = releasers["releaser"].to_list()
    cycles = {(row["role"], row["releaser"]): row[column] for row in matrix.iter_rows(named=True)}
    values = [[units.convert(cycles.get((waiter, name), 0)) for name in releaser_names] for waiter in waiters]
    text = [
        [units.text(cycles[waiter, name]) if (waiter, name) in cycles else "" for name in releaser_names]
        for waiter in waiters
    ]
    figure = go.Figure(
        go.Heatmap(
            z=values,
            x=[unit_name(name) for name in releaser_names],
            y=waiters,
            text=text,
            texttemplate="%{text}",
            textfont={"color": INK, "size": 12},
            colorscale=[list(stop) for stop in LOSS],
            zmin=0,
            showscale=False,
            xgap=3,
            ygap=3,
            hovertemplate="<b>%{y}</b> waited for <b>%{x}</b><br>%{text}<extra></extra>",
        )
    )
    style(figure, height=height or 70 + 76 * max(len(waiters), 1), legend=False)
    figure.update_xaxes(title_text="released by", side="top", showgrid=False)
    figure.update_yaxes(title_text="waiting", showgrid=False, autorange="reversed")
    return figure
