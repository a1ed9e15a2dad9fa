"""The phases of one barrier in one CTA: per slot, when they completed, who arrived, and who waited."""

from __future__ import annotations

import dataclasses

import plotly.graph_objects as go
import polars as pl

from dashboard.names import unit_name
from dashboard.quantities import Units
from dashboard.theme import GRID, KIND_COLORS, SEQUENCE, style
from profiler import Trace

MAX_PHASES = 400
_PHASE_COLORS = ("rgba(128,138,150,0.10)", "rgba(128,138,150,0.24)")  # of even and of odd phases
_LANE_PIXELS = 15


@dataclasses.dataclass(frozen=True)
class BarrierPhases:
    """What happened on a barrier of a CTA.

    Attributes:
      phases: table `slot, phase, begin, end`: from the completion of the phase before (or time 0) to its own, cycles.
      arrivals: rows of the trace's `arrivals`.
      waits: rows of the trace's `waits`.
      total: phases that completed; more than `phases` holds if there are too many to draw.
    """

    phases: pl.DataFrame
    arrivals: pl.DataFrame
    waits: pl.DataFrame
    total: int

    @property
    def waiters(self) -> list[str]:
        """Names of those that waited, such as "WG0 compute", in order."""
        return self.waits.select("warpgroup", "role", "name").unique().sort("warpgroup", "name")["name"].to_list()


def barrier_phases(trace: Trace, barrier: str, cta: int, first: int = 0, last: int = -1) -> BarrierPhases:
    """Returns the phases of a CTA's barrier that were open between two moments, at most the first `MAX_PHASES`.

    Args:
      trace: the launch.
      barrier: the barrier's name.
      cta: the CTA whose barrier it is; arrivals may come from others of its cluster.
      first, last: cycles; -1 for the end of the launch.
    """
    own = (pl.col("cta") == cta) & (pl.col("barrier") == barrier)
    arrivals = trace.arrivals.filter(own)
    completed = arrivals.filter("completes").unique(["slot", "phase"], keep="first", maintain_order=True)
    phases = completed.sort("slot", "phase").select(
        "slot", "phase", begin=pl.col("time").shift(1).over("slot").fill_null(0), end="time"
    )
    window = (pl.col("end") >= first) & ((pl.col("begin") <= last) | (last < 0))
    shown = phases.filter(window).sort("end", "slot").head(MAX_PHASES).sort("slot", "phase")
    keys = ["slot", "phase"]
    names = trace.tracks.select("track", "name")
    waits = trace.waits.filter(own).join(names, on="track", how="left", maintain_order="left")
    return BarrierPhases(
        shown,
        arrivals.join(shown.select(keys), on=keys, how="semi"),
        waits.join(shown.select(keys), on=keys, how="semi"),
        phases.height,
    )


def phase_strip(found: BarrierPhases, units: Units) -> go.Figure:
    """Draws a band of phases for each slot, the waits as bars within it, arrivals as ticks, completions as diamonds.

    Args:
      found: what `barrier_phases` returns.
      units: of the time axis.
    """
    figure = go.Figure()
    slots = found.phases["slot"].unique().sort().to_list()
    labels = {slot: f"slot {slot}" for slot in slots}
    for parity, color in enumerate(_PHASE_COLORS):
        rows = found.phases.filter(pl.col("phase") % 2 == parity)
        figure.add_bar(
            name=("even phase", "odd phase")[parity],
            **_bars(rows.with_columns(dur=pl.col("end") - pl.col("begin")), labels, units),
            width=0.94,
            marker={"color": color, "line": {"width": 1, "color": GRID}},
            customdata=rows.select("phase").to_numpy(),
            hovertemplate=f"phase %{{customdata[0]}} of %{{y}}<br>from %{{base:,.0f}}, %{{x:,.0f}} {units.name}"
            "<extra></extra>",
        )
    waiters = found.waiters
    for number, waiter in enumerate(waiters):
        _add_waits(figure, found.waits.filter(pl.col("name") == waiter), waiter, number, len(waiters), labels, units)
    _add_arrivals(figure, found.arrivals, labels, units)
    figure.update_layout(barmode="overlay")
    style(figure, height=110 + len(slots) * (24 + _LANE_PIXELS * max(len(waiters), 1)))
    figure.update_xaxes(title_text=f"time ({units.name})")
    figure.update_yaxes(
        autorange="reversed", showgrid=False, categoryorder="array", categoryarray=list(labels.values())
    )
    return figure


def _bars(rows: pl.DataFrame, labels: dict[int, str], units: Units) -> dict[str, object]:
    return {
        "base": [units.convert(begin) for begin in rows["begin"]],
        "x": [units.convert(dur) for dur in rows["dur"]],
        "y": [labels[slot] for slot in rows["slot"]],
        "orientation": "h",
    }


def _add_waits(
    figure: go.Figure, rows: pl.DataFrame, waiter: str, lane: int, lanes: int, labels: dict[int, str], units: Units
) -> None:
    """Adds the bars of one waiter: in a lane of its own, hatched where the wait blocked, pale where it did not."""
    height = 0.62 / lanes
    blocked = rows["blocked"].to_list()
    figure.add_bar(
        name=f"{waiter} waits",
        **_bars(rows, labels, units),
        width=height * 0.9,
        offset=-0.24 + lane * height,
        marker={
            "color": SEQUENCE[lane % len(SEQUENCE)],
            "opacity": [0.85 if one else 0.3 for one in blocked],
            "line": {"width": 0},
            "pattern": {
                "shape": ["/" if one else "" for one in blocked],
                "fillmode": "overlay",
                "size": 6,
                "solidity": 0.2,
                "fgcolor": "rgba(255,255,255,0.8)",
            },
        },
        customdata=[
            [row["phase"], "blocked" if row["blocked"] else "did not block", _source(row["released_by"])]
            for row in rows.iter_rows(named=True)
        ],
        hovertemplate=f"<b>{waiter}</b> waited for phase %{{customdata[0]}} of %{{y}}: %{{customdata[1]}}<br>"
        f"from %{{base:,.0f}}, %{{x:,.0f}} {units.name}; completed by %{{customdata[2]}}<extra></extra>",
    )


def _add_arrivals(figure: go.Figure, arrivals: pl.DataFrame, labels: dict[int, str], units: Units) -> None:
    kinds = (
        ("arrival", False, {"symbol": "line-ns-open", "size": 13, "color": KIND_COLORS["barrier_arrive"]}),
        ("completes the phase", True, {"symbol": "diamond", "size": 8, "color": KIND_COLORS["tma_load"]}),
    )
    for name, completes, marker in kinds:
        rows = arrivals.filter(pl.col("completes") == completes)
        figure.add_scatter(
            name=name,
            mode="markers",
            x=[units.convert(time) for time in rows["time"]],
            y=[labels[slot] for slot in rows["slot"]],
            marker={**marker, "line": {"width": 1.5, "color": "#ffffff" if completes else marker["color"]}},
            customdata=[[_source(source), phase] for source, phase in rows.select("source", "phase").iter_rows()],
            hovertemplate=f"<b>%{{customdata[0]}}</b>: {name}, phase %{{customdata[1]}}, at %{{x:,.0f}} {units.name}"
            "<extra></extra>",
        )


def _source(name: str) -> str:
    return unit_name(name) or "unknown"
