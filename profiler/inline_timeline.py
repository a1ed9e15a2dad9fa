"""A small timeline of one SM as SVG, for notebooks: no Plotly, no script, a few kilobytes however long the launch.

A row per unit and warpgroup. The time axis has a fixed number of columns; each shows what took most of its cycles, and
equal neighbours are one rectangle. For single events zoom in with `begin` and `end`, or use Perfetto or the dashboard.
"""

from __future__ import annotations

import dataclasses
import html
from collections.abc import Mapping

import numpy as np
import polars as pl

from mgpu.errors import ParamsError
from mgpu.sites import Category
from profiler.analysis.leaves import BETWEEN, cut_into_leaves
from profiler.intervals import merge_intervals
from profiler.trace import Trace

_NUM_COLUMNS = 720
_LABEL_PIXELS = 150
_ROW_PIXELS = 16
_GAP_PIXELS = 3
_AXIS_PIXELS = 22
_NUM_TICKS = 5

# The hues of Paul Tol's "bright" scheme, https://personal.sron.nl/~pault/
_COLORS: Mapping[str, str] = {
    "wait": "#ee6677",
    "busy": "#4477aa",
    "overhead": "#9aa0a8",
    "load": "#2a9d59",
    "store": "#3bb3cf",
    "MMA": "#4477aa",
}
_UNITS: Mapping[str, tuple[str, str]] = {
    "tensor_core": ("tensor core", "MMA"),
    "tma_load": ("TMA loads", "load"),
    "tma_store": ("TMA stores", "store"),
}


@dataclasses.dataclass(frozen=True)
class InlineTimeline:
    """A drawn timeline; a notebook shows it when it is the value of a cell.

    Attributes:
      svg: the drawing.
    """

    svg: str

    def _repr_svg_(self) -> str:
        """Shows the drawing in a notebook."""
        return self.svg


@dataclasses.dataclass(frozen=True)
class _Row:
    """One line of the drawing: the cycles that each activity takes in each column, int64[columns]."""

    label: str
    cycles: dict[str, np.ndarray]


def draw_timeline(trace: Trace, sm: int | None = None, begin: int = 0, end: int | None = None) -> InlineTimeline:
    """Draws what the units and warpgroups of one SM did.

    Args:
      trace: the launch.
      sm: which SM; by default the one with the lowest number that ran a CTA.
      begin, end: the part of the launch to show, in cycles since its first moment; all of it by default.

    Raises:
      ParamsError: the SM ran nothing, or the part is empty.
    """
    used: list[int] = trace.tracks["sm"].unique().sort().to_list()
    sm = next(iter(used), 0) if sm is None else sm
    end = max(trace.end, begin + 1) if end is None else end
    if used and sm not in used:
        raise ParamsError(f"draw_timeline: no CTA ran on SM {sm}; those with CTAs are {used[0]} to {used[-1]}.")
    if not 0 <= begin < end:
        raise ParamsError(f"draw_timeline: got begin={begin}, end={end}; expected 0 <= begin < end.")
    edges = np.unique(np.linspace(begin, end, _NUM_COLUMNS + 1).astype(np.int64))
    rows = [*_unit_rows(trace, sm, edges), *_warpgroup_rows(trace, sm, edges)]
    return InlineTimeline(_draw(f"{trace.header.kernel}, SM {sm}", rows, edges))


def _unit_rows(trace: Trace, sm: int, edges: np.ndarray) -> list[_Row]:
    rows = []
    for unit, (label, activity) in _UNITS.items():
        spans = trace.async_spans.filter(pl.col("unit") == unit, pl.col("sm") == sm)
        if spans.height:
            begin = spans["begin"].to_numpy()
            inferred = " (inferred)" if spans["provenance"][0] == "inferred" else ""
            cycles = _cycles_per_column(begin, begin + spans["dur"].to_numpy(), edges)
            rows.append(_Row(label + inferred, {activity: cycles}))
    return rows


def _warpgroup_rows(trace: Trace, sm: int, edges: np.ndarray) -> list[_Row]:
    """Returns a row per warpgroup (or warp) number; the CTAs that the SM ran follow each other on it."""
    leaves = cut_into_leaves(trace)
    tracks = trace.tracks.filter(pl.col("sm") == sm)
    here = np.flatnonzero(np.isin(leaves.track, tracks["track"].to_numpy()) & (leaves.span >= BETWEEN))
    track, begin, end, span = leaves.track[here], leaves.begin[here], leaves.end[here], leaves.span[here]
    # Code between recorded places is the role's own work.
    category = pl.concat([trace.spans["category"], pl.Series([str(Category.BUSY)])]).gather(
        np.where(span >= 0, span, trace.spans.height)
    )
    activities = {name: (category == name).to_numpy() for name in map(str, Category) if name in _COLORS}
    rows = []
    numbers = tracks.group_by("warpgroup", "warp").agg("track", pl.col("name").first()).sort("warpgroup", "warp")
    for members, label in numbers.select("track", "name").iter_rows():
        own = np.isin(track, members)
        cycles = {name: _cycles_per_column(begin[own & is_], end[own & is_], edges) for name, is_ in activities.items()}
        rows.append(_Row(label, cycles))
    return rows


def _cycles_per_column(begin: np.ndarray, end: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Returns how many cycles of each column [edges[i], edges[i + 1]) lie in the union of the intervals."""
    covered = merge_intervals(np.zeros(len(begin), np.int64), begin.astype(np.int64), end.astype(np.int64))
    return covered.covered(np.zeros(len(edges) - 1, np.int64), edges[:-1], np.minimum(edges[1:], covered.stride - 1))


def _draw(title: str, rows: list[_Row], edges: np.ndarray) -> str:
    height = (len(rows) + 1) * (_ROW_PIXELS + _GAP_PIXELS) + _AXIS_PIXELS
    width = _LABEL_PIXELS + _NUM_COLUMNS + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="11" fill="currentColor" style="max-width:100%">',
        f"<title>{html.escape(title)}</title>",
        f'<text x="0" y="12" font-weight="bold">{html.escape(title)}</text>',
        *_legend(rows),
    ]
    for number, row in enumerate(rows, 1):
        top = number * (_ROW_PIXELS + _GAP_PIXELS)
        parts.append(f'<text x="0" y="{top + 12}">{html.escape(row.label)}</text>')
        parts += _rectangles(row, top, edges)
    return "\n".join([*parts, *_axis(edges, height - _AXIS_PIXELS + 2), "</svg>"])


def _legend(rows: list[_Row]) -> list[str]:
    shown = [name for name in _COLORS if any(row.cycles.get(name, np.zeros(0)).any() for row in rows)]
    parts = []
    for number, name in enumerate(shown):
        left = _LABEL_PIXELS + 90 * number
        parts.append(f'<circle cx="{left + 5}" cy="8" r="5" fill="{_COLORS[name]}"/>')
        parts.append(f'<text x="{left + 14}" y="12">{name}</text>')
    return parts


def _rectangles(row: _Row, top: int, edges: np.ndarray) -> list[str]:
    """Returns a rectangle per run of columns that show the same; a column that is mostly idle shows nothing."""
    names = list(row.cycles)
    table = np.stack([row.cycles[name] for name in names])
    idle = np.diff(edges) - table.sum(axis=0)
    most = np.where(table.max(axis=0) >= idle, table.argmax(axis=0), -1)
    starts = np.flatnonzero(np.diff(most, prepend=-2))
    scale = _NUM_COLUMNS / int(edges[-1] - edges[0])
    parts = []
    for first, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(most)], strict=True):
        if most[first] < 0:
            continue
        name, begin, end = names[most[first]], int(edges[first]), int(edges[stop])
        left = _LABEL_PIXELS + (begin - int(edges[0])) * scale
        parts.append(
            f'<rect x="{left:.1f}" y="{top}" width="{(end - begin) * scale:.1f}" height="{_ROW_PIXELS}" '
            f'fill="{_COLORS[name]}"><title>{name}, cycles {begin:,} to {end:,}</title></rect>'
        )
    return parts


def _axis(edges: np.ndarray, top: int) -> list[str]:
    first, last = int(edges[0]), int(edges[-1])
    parts = []
    for number in range(_NUM_TICKS):
        cycle = first + (last - first) * number // (_NUM_TICKS - 1)
        left = _LABEL_PIXELS + _NUM_COLUMNS * number // (_NUM_TICKS - 1)
        unit = " cycles" if number == 0 else ""
        parts.append(f'<text x="{left}" y="{top + 12}" text-anchor="middle">{cycle:,}{unit}</text>')
    return parts
