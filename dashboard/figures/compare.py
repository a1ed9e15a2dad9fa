"""Two launches: where the difference of their lengths comes from."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dashboard.figures.pipeline import STATE_COLORS
from dashboard.quantities import Units
from dashboard.theme import style
from dashboard.timeline.slots import READING
from profiler.analysis.compare import CompareReport

LONGER, SHORTER, TOTAL = "#ee6677", "#2a9d59", "#4477aa"
_MAX_STEPS = 6


def waterfall(compared: CompareReport, units: Units) -> go.Figure:
    """Draws A's length, what each cause added or took, and B's length: means over the SMs in use."""
    rows = [row for row in compared.causes.iter_rows(named=True) if abs(row["delta_cycles"]) >= 1]
    ordered = sorted(rows, key=lambda row: (-abs(row["delta_cycles"]), row["cause"], row["detail"], row["barrier"]))
    shown, rest = ordered[:_MAX_STEPS], ordered[_MAX_STEPS:]
    labels = ["<br>".join(filter(None, (row["cause"], row["detail"], row["barrier"]))) for row in shown]
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
    figure.update_xaxes(showgrid=False, tickangle=0)
    return figure


def paired_gantt(before: pl.DataFrame, after: pl.DataFrame, units: Units) -> go.Figure:
    """Draws the same slots of two launches in neighbouring rows on one time axis, so that they zoom together.

    Time 0 is when the first tile of each began to be read: what came before, such as a longer start, does not shift
    one launch against the other. A slot that only one launch has is a row without a partner.

    Args:
      before, after: what `slot_uses` returns for one CTA of each launch; neither is empty.
      units: of the time axis.
    """
    aligned = pl.concat(
        [
            uses.with_columns(begin=pl.col("begin") - _first_read(uses), launch=pl.lit(launch))
            for launch, uses in (("before", before), ("after", after))
        ]
    )
    names = pl.format("{}[{}] {}", "barrier", "slot", "launch")
    aligned = aligned.with_columns(row=names)
    order = aligned.select("barrier", "slot", "launch", "row").unique()
    order = order.sort("barrier", "slot", "launch", descending=[False, False, True])["row"].to_list()
    figure = go.Figure()
    for state, color in STATE_COLORS.items():
        rows = aligned.filter(pl.col("state") == state)
        figure.add_bar(
            name=state,
            base=[units.convert(begin) for begin in rows["begin"]],
            x=[units.convert(dur) for dur in rows["dur"]],
            y=rows["row"].to_list(),
            width=0.86,
            orientation="h",
            marker={
                "color": color,
                "line": {"width": 0},
                "opacity": [1.0 if launch == "after" else 0.6 for launch in rows["launch"]],
            },
            customdata=rows.select("round").to_numpy(),
            hovertemplate=f"<b>{state}</b> %{{y}}, round %{{customdata[0]}}<br>from %{{base:,.0f}}, "
            f"%{{x:,.0f}} {units.name}<extra></extra>",
        )
    figure.update_layout(barmode="overlay")
    style(figure, height=110 + 26 * len(order))
    figure.update_xaxes(title_text=f"time since the first tile was read ({units.name})")
    figure.update_yaxes(autorange="reversed", showgrid=False, categoryorder="array", categoryarray=order)
    for number in range(1, len(order)):
        if order[number].rpartition(" ")[0] != order[number - 1].rpartition(" ")[0]:
            figure.add_hline(number - 0.5, line={"width": 1, "color": "rgba(128,138,150,0.45)"})
    return figure


def _first_read(uses: pl.DataFrame) -> int:
    """Returns when the first tile began to be read, or if none was, the first moment."""
    read = uses.filter(pl.col("state") == READING)
    first = (read if read.height else uses)["begin"].min()
    return first if isinstance(first, int) else 0
