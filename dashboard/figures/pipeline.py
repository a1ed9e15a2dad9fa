"""The ring of SMEM slots of one CTA: when each slot was being filled, held data, was being read, and stood empty."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl
from plotly.subplots import make_subplots

from dashboard.quantities import Units
from dashboard.theme import KIND_COLORS, SEQUENCE, style
from dashboard.timeline.slots import FILLING, HELD, READING
from profiler import Trace

STATE_COLORS = {FILLING: KIND_COLORS["tma_load"], HELD: "#ddaa33", READING: KIND_COLORS["tensor_core"]}
_SLOT_PIXELS = 34
_DEPTH_PIXELS = 110
_COUNTER = "full slots "


def pipeline_gantt(uses: pl.DataFrame, units: Units, barriers: list[str]) -> go.Figure:
    """Draws a row per slot: filling, full but not read, being read. Blank is an empty slot.

    Args:
      uses: what `slot_uses` returns for one CTA.
      units: of the time axis.
      barriers: full barriers in drawing order.
    """
    figure = go.Figure()
    rows = _add_slots(figure, uses, units, barriers)
    figure.update_layout(barmode="overlay")
    style(figure, height=90 + _SLOT_PIXELS * max(rows, 1))
    figure.update_xaxes(title_text=f"time ({units.name})")
    figure.update_yaxes(autorange="reversed", showgrid=False)
    return figure


def pipeline_over_time(trace: Trace, cta: int, uses: pl.DataFrame, units: Units, barriers: list[str]) -> go.Figure:
    """Draws `pipeline_gantt` with, below it on the same time axis, how many slots of each ring held data.

    Args:
      trace: the launch.
      cta: the CTA that `uses` is about.
      uses, units, barriers: as of `pipeline_gantt`.
    """
    slots = max(uses.select("barrier", "slot").n_unique(), 1)
    heights = [_SLOT_PIXELS * slots, _DEPTH_PIXELS]
    total = sum(heights)
    figure = make_subplots(
        2, 1, shared_xaxes=True, vertical_spacing=0.08, row_heights=[height / total for height in heights]
    )
    _add_slots(figure, uses, units, barriers)
    _add_depth(figure, trace, cta, uses, units)
    figure.update_layout(barmode="overlay")
    style(figure, height=80 + int(total * 1.1), legend=False)
    figure.update_xaxes(title_text=f"time ({units.name})", row=2, col=1)
    figure.update_yaxes(autorange="reversed", showgrid=False, row=1, col=1)
    figure.update_yaxes(title_text="full slots", rangemode="tozero", dtick=1, row=2, col=1)
    return figure


def depth_colors(trace: Trace, cta: int) -> dict[str, str]:
    """Returns the colour of each ring of a CTA in the lower part of `pipeline_over_time`."""
    names = _depths(trace, cta)["counter"].unique().sort().to_list()
    return {name.removeprefix(_COUNTER): SEQUENCE[(number + 5) % len(SEQUENCE)] for number, name in enumerate(names)}


def _add_slots(figure: go.Figure, uses: pl.DataFrame, units: Units, barriers: list[str]) -> int:
    """Adds the rows of slots to the first part of a figure; returns how many."""
    slots = uses.select("barrier", "slot").unique().sort("barrier", "slot")
    slots = sorted(slots.iter_rows(), key=lambda key: (barriers.index(key[0]), key[1]))
    many = len(barriers) > 1
    names = {key: f"{key[0]}[{key[1]}]" if many else f"slot {key[1]}" for key in slots}
    for state, color in STATE_COLORS.items():
        rows = uses.filter(pl.col("state") == state)
        figure.add_bar(
            name=state,
            base=[units.convert(begin) for begin in rows["begin"]],
            x=[units.convert(dur) for dur in rows["dur"]],
            y=[names[key] for key in rows.select("barrier", "slot").iter_rows()],
            orientation="h",
            marker={"color": color, "line": {"width": 0}},
            customdata=rows.select("round").to_numpy(),
            hovertemplate=f"<b>{state}</b> %{{y}}, round %{{customdata[0]}}<br>from %{{base:,.0f}}, "
            f"%{{x:,.0f}} {units.name}<extra></extra>",
        )
    figure.update_layout(yaxis={"categoryorder": "array", "categoryarray": list(names.values())})
    return len(names)


def _depths(trace: Trace, cta: int) -> pl.DataFrame:
    return trace.counters.filter((pl.col("cta") == cta) & (pl.col("unit") == "slots"))


def _add_depth(figure: go.Figure, trace: Trace, cta: int, uses: pl.DataFrame, units: Units) -> None:
    """Adds a stepped line per ring to the second part of a figure, from the ring's first use to the last of all."""
    counters = _depths(trace, cta)
    last = (uses["begin"] + uses["dur"]).max()
    for ring, color in depth_colors(trace, cta).items():
        rows = counters.filter(pl.col("counter") == f"{_COUNTER}{ring}")
        first = uses.filter(pl.col("barrier") == ring)["begin"].min()
        steps = [(first, 0), *rows.select("time", "value").iter_rows(), (last, rows["value"][-1])]
        steps = [(time, value) for time, value in steps if isinstance(time, int)]
        figure.add_scatter(
            name=ring,
            x=[units.convert(time) for time, _ in steps],
            y=[value for _, value in steps],
            mode="lines",
            line={"shape": "hv", "width": 1.4, "color": color},
            hovertemplate=f"<b>{ring}</b>: %{{y}} full at %{{x:,.0f}} {units.name}<extra></extra>",
            row=2,
            col=1,
        )
