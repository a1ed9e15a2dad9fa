"""The ring of SMEM slots of one CTA: when each slot was being filled, held data, was being read, and stood empty."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dashboard.quantities import Units
from dashboard.theme import KIND_COLORS, style
from dashboard.timeline.slots import FILLING, HELD, READING, SlotUse
from profiler import Trace

STATE_COLORS = {FILLING: KIND_COLORS["tma_load"], HELD: "#ddaa33", READING: KIND_COLORS["tensor_core"]}


def pipeline_gantt(uses: pl.DataFrame, units: Units, barriers: list[str]) -> go.Figure:
    """Draws a row per slot: filling, full but not read, being read. Blank is an empty slot.

    Args:
      uses: what `slot_uses` returns for one CTA.
      units: of the time axis.
      barriers: full barriers in drawing order.
    """
    figure = go.Figure()
    slots = uses.select("barrier", "slot").unique().sort("barrier", "slot")
    many = len(barriers) > 1
    names = {key: f"{key[0]}[{key[1]}]" if many else f"slot {key[1]}" for key in slots.iter_rows()}
    for state, color in STATE_COLORS.items():
        rows = uses.filter(pl.col("state") == state)
        labels = [names[key] for key in rows.select("barrier", "slot").iter_rows()]
        figure.add_bar(
            name=state,
            base=[units.convert(begin) for begin in rows["begin"]],
            x=[units.convert(dur) for dur in rows["dur"]],
            y=labels,
            orientation="h",
            marker={"color": color, "line": {"width": 0}},
            customdata=rows.select("round").to_numpy(),
            hovertemplate=f"<b>{state}</b> %{{y}}, round %{{customdata[0]}}<br>from %{{base:,.0f}}, "
            f"%{{x:,.0f}} {units.name}<extra></extra>",
        )
    figure.update_layout(barmode="overlay")
    style(figure, height=110 + 38 * max(len(names), 1))
    figure.update_xaxes(title_text=f"time ({units.name})")
    figure.update_yaxes(autorange="reversed", showgrid=False, categoryorder="array", categoryarray=list(names.values()))
    return figure


def pipeline_depth(trace: Trace, cta: int, units: Units) -> go.Figure:
    """Draws how many slots held data over time, for each ring of the CTA."""
    figure = go.Figure()
    counters = trace.counters.filter((pl.col("cta") == cta) & (pl.col("unit") == "slots"))
    for name in counters["counter"].unique().sort().to_list():
        rows = counters.filter(pl.col("counter") == name)
        figure.add_scatter(
            name=name,
            x=[units.convert(time) for time in rows["time"]],
            y=rows["value"].to_list(),
            line={"shape": "hv", "width": 1.2, "color": "#ddaa33"},
            fill="tozeroy",
            fillcolor="rgba(221,170,51,0.25)",
            hovertemplate=f"%{{y}} full at %{{x:,.0f}} {units.name}<extra></extra>",
        )
    style(figure, height=170, legend=len(figure.data) > 1)  # pyright: ignore[reportArgumentType]  # a tuple of traces
    figure.update_xaxes(title_text=f"time ({units.name})")
    figure.update_yaxes(title_text="full slots", rangemode="tozero", dtick=1)
    return figure


__all__ = ["STATE_COLORS", "SlotUse", "pipeline_depth", "pipeline_gantt"]
