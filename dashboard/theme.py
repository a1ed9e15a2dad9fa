"""Colours and the Plotly template, shared by charts, the timeline canvas and tables.

Hues are Paul Tol's "bright" and "muted" qualitative schemes, which stay apart under the common colour-vision
deficiencies (https://personal.sron.nl/~pault/). Waits are also hatched, so that no meaning rests on colour alone.
Charts have a transparent ground and mid-tone colours: `assets/` gives text and grid lines the page's theme.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import plotly.graph_objects as go


@dataclasses.dataclass(frozen=True)
class LegendEntry:
    """What one colour of a chart means; `hatched` for waits."""

    color: str
    text: str
    hatched: bool = False


KIND_COLORS: Mapping[str, str] = {
    "tensor_core": "#4477aa",
    "mma_issue": "#7fa6cf",
    "mma_wait": "#b5b533",
    "tma_load": "#2a9d59",
    "tma_store": "#3bb3cf",
    "store_wait": "#aa3377",
    "barrier_wait": "#ee6677",
    "barrier_arrive": "#8b93a1",
    "set_registers": "#9aa0a8",
    "sync": "#9aa0a8",
    "commit_smem": "#9aa0a8",
    "scope": "#8d9db6",
    "not_recorded": "#d5dae1",
}
HATCHED_KINDS = ("barrier_wait", "mma_wait", "store_wait", "sync", "set_registers")

CATEGORY_COLORS: Mapping[str, str] = {
    "busy": "#4477aa",
    "wait": "#ee6677",
    "overhead": "#9aa0a8",
    "idle": "#c9ced6",
}

CAUSE_COLORS: Mapping[str, str] = {
    "data not ready": "#cc6677",
    "slot not free": "#ddaa33",
    "dependency": "#882255",
    "epilogue": "#44aa99",
    "store wait": "#aa4499",
    "warpgroup or cluster skew": "#999933",
    "recording": "#9aa0a8",
    "fill": "#e28e4c",
    "drain/CTA switch": "#7a68b8",
    "scheduling": "#66778c",
}

# One colour per slot, phase or source line, in turn.
SEQUENCE = (
    "#4477aa",
    "#ee6677",
    "#2a9d59",
    "#ccbb44",
    "#3bb3cf",
    "#aa3377",
    "#e28e4c",
    "#7a68b8",
    "#44aa99",
    "#999933",
)

INK = "#6b7480"
GRID = "rgba(128,138,150,0.22)"
FONT = "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"

# From the page's own ground to one hue: more is stronger on both themes and in grey. Text stands on LOSS.
SEQUENTIAL = ((0.0, "rgba(68,119,170,0.10)"), (1.0, "rgba(68,119,170,1)"))
LOSS = ((0.0, "rgba(238,102,119,0.05)"), (1.0, "rgba(238,102,119,0.62)"))


def color_of_cause(cause: str) -> str:
    """Returns the colour of a bubble's cause."""
    return CAUSE_COLORS.get(cause, "#9aa0a8")


def style(figure: go.Figure, *, height: int, legend: bool = True) -> go.Figure:
    """Gives a chart the dashboard's look.

    Args:
      figure: the chart, changed in place and returned.
      height: pixels.
      legend: False hides it, for charts whose colours are explained in words.
    """
    axis = {
        "gridcolor": GRID,
        "linecolor": GRID,
        "zeroline": False,
        "ticks": "",
        "automargin": True,
        "title": {"font": {"size": 12}, "standoff": 8},
    }
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 8, "r": 8, "t": 8, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": FONT, "size": 12, "color": INK},
        showlegend=legend,
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0, "title": None, "traceorder": "normal"},
        hoverlabel={"font": {"family": FONT, "size": 12}, "align": "left", "namelength": -1},
        bargap=0.35,
    )
    figure.update_xaxes(axis)
    figure.update_yaxes(axis)
    return figure
