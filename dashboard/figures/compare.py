"""Two launches: where the difference of their lengths comes from."""

from __future__ import annotations

import plotly.graph_objects as go

from dashboard.quantities import Units
from dashboard.theme import style
from profiler.analysis.compare import CompareReport

LONGER, SHORTER, TOTAL = "#ee6677", "#2a9d59", "#4477aa"
_MAX_STEPS = 10


def waterfall(compared: CompareReport, units: Units) -> go.Figure:
    """Draws A's length, what each cause added or took, and B's length: means over the SMs in use."""
    rows = [row for row in compared.causes.iter_rows(named=True) if abs(row["delta_cycles"]) >= 1]
    ordered = sorted(rows, key=lambda row: (-abs(row["delta_cycles"]), row["cause"], row["detail"], row["barrier"]))
    shown, rest = ordered[:_MAX_STEPS], ordered[_MAX_STEPS:]
    labels = [", ".join(filter(None, (row["cause"], row["detail"], row["barrier"]))) for row in shown]
    deltas = [row["delta_cycles"] for row in shown]
    if rest:
        labels.append("all else")
        deltas.append(sum(row["delta_cycles"] for row in rest))
    figure = go.Figure(
        go.Waterfall(
            x=["before", *labels, "after"],
            y=[units.convert(value) for value in (compared.a_cycles, *deltas, compared.b_cycles)],
            measure=["absolute", *["relative"] * len(deltas), "total"],
            text=[
                units.number(compared.a_cycles),
                *(f"{units.convert(value):+,.0f}" for value in deltas),
                units.number(compared.b_cycles),
            ],
            textposition="outside",
            increasing={"marker": {"color": LONGER}},
            decreasing={"marker": {"color": SHORTER}},
            totals={"marker": {"color": TOTAL}},
            connector={"line": {"width": 1, "color": "rgba(128,138,150,0.5)"}},
            hovertemplate=f"<b>%{{x}}</b><br>%{{text}} {units.name}<extra></extra>",
        )
    )
    style(figure, height=380, legend=False)
    figure.update_yaxes(title_text=f"{units.name} per SM in use", tickformat=",.3~s")
    figure.update_xaxes(showgrid=False, tickangle=-20)
    return figure
