"""The timeline of one SM as a chart: for notebooks and static reports, where the canvas cannot go."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from dashboard.quantities import Units
from dashboard.theme import style
from dashboard.timeline.index import TimelineIndex
from dashboard.timeline.lanes import TICKS
from dashboard.timeline.rows import Row
from dashboard.timeline.window import visible_boxes

_PIXELS = 1200
_ROW_PIXELS = 26


def sm_timeline(index: TimelineIndex, sm: int, units: Units) -> go.Figure:
    """Draws what an SM's units and warpgroups did over the launch. What is narrower than a pixel is merged.

    Args:
      index: the launch's boxes.
      sm: the SM.
      units: of the time axis.
    """
    rows = [number for number, row in enumerate(index.rows) if row.sm == sm and row.kind in ("sm", "unit", "track")]
    boxes, row, depth, _ = visible_boxes(index, rows, 0, max(index.end, 1), _PIXELS)
    labels = {number: _label(index.rows[number], sm) for number in rows}
    drawn = depth != TICKS
    figure = go.Figure()
    kinds = [index.styles.styles[number].kind for number in boxes.style.tolist()]
    for kind in dict.fromkeys(kinds):
        own = drawn & np.array([one == kind for one in kinds], bool)
        first = index.styles.styles[int(boxes.style[own][0])] if own.any() else None
        if first is None:
            continue
        lanes = np.array([index.rows[number].lanes for number in row[own].tolist()])
        height = 0.8 / lanes
        figure.add_bar(
            name=kind.replace("_", " "),
            base=[units.convert(begin) for begin in boxes.begin[own].tolist()],
            x=[units.convert(length) for length in (boxes.end - boxes.begin)[own].tolist()],
            y=[labels[number] for number in row[own].tolist()],
            width=height,
            offset=-0.4 + depth[own] * height,
            orientation="h",
            marker={"color": first.color, "line": {"width": 0}},
            customdata=[index.styles.styles[number].name for number in boxes.style[own].tolist()],
            hovertemplate=f"<b>%{{customdata}}</b><br>at %{{base:,.0f}}, %{{x:,.0f}} {units.name}<extra></extra>",
        )
    figure.update_layout(barmode="overlay")
    style(figure, height=120 + _ROW_PIXELS * max(len(rows), 1))
    figure.update_xaxes(title_text=f"time ({units.name})")
    names = [labels[number] for number in rows]
    figure.update_yaxes(autorange="reversed", showgrid=False, categoryorder="array", categoryarray=names)
    return figure


def _label(row: Row, sm: int) -> str:
    if row.kind == "sm":
        return f"SM {sm:03d}"
    return f"CTA {row.cta} {row.label}" if row.cta >= 0 else row.label
