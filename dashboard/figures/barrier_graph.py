"""Barriers and roles as a graph: who signals whom through which barrier, and how long the waiter was blocked."""

from __future__ import annotations

import math

import plotly.graph_objects as go
import polars as pl

from dashboard.names import unit_name
from dashboard.quantities import Units
from dashboard.theme import INK, KIND_COLORS, style
from profiler import Report

FORWARD, BACKWARD, WITHIN = "forward", "backward", "within"
DIRECTION_COLORS = {FORWARD: KIND_COLORS["tma_load"], BACKWARD: "#cc6677", WITHIN: KIND_COLORS["tma_store"]}
DIRECTION_MEANINGS = {
    FORWARD: "forward: data is there",
    BACKWARD: "backward: the slot is free again",
    WITHIN: "within a role",
}
_ORDER = ("memory", "memory+compute", "compute", "other")  # data flows from those that load to those that multiply
_STEPS = 24  # of a drawn curve
_GAP = 4.0  # between two roles
_LOOP = 0.3  # radius of a role's first loop; the next one is twice as large
_LABEL_ROOM = 1.9  # beside a loop
_REACH = 1.15  # how far the first edge bends; the next one twice as far


def signals(report: Report) -> pl.DataFrame:
    """Returns an edge for each signaller, barrier and waiter, longest blocked first.

    The columns are `signaller` (role), `via` (the unit whose work arrives, "" if the warpgroup does itself),
    `barrier`, `waiter` (role), `direction`, `waits`, `blocked`, `blocked_cycles`, `uncovered_cycles`. The signaller is
    who arrived last, or who issued the work that did: it decides how long a wait lasts. An edge is "forward" if it
    leads from a role that loads towards one that multiplies, "backward" if it leads back, "within" if both are one.
    """
    roles = report.trace.tracks.select(pl.col("track").alias("source_track"), signaller="role")
    arrivals = report.trace.arrivals.select("arrival", "source", "source_track").join(
        roles, on="source_track", how="left"
    )
    waits = report.barrier_waits.waits.join(arrivals, on="arrival", how="inner").filter(
        pl.col("signaller").is_not_null()
    )
    from_unit = ~pl.col("source").str.starts_with("WG")
    rank = {name: number for number, name in enumerate(_ORDER)}

    def place(column: str) -> pl.Expr:
        return pl.col(column).replace_strict(rank, default=len(rank), return_dtype=pl.Int32)

    edges = (
        waits.with_columns(via=pl.when(from_unit).then("source").otherwise(pl.lit("")))
        .group_by("signaller", "via", "barrier", pl.col("role").alias("waiter"))
        .agg(
            waits=pl.len(),
            blocked=pl.col("blocked").sum(),
            blocked_cycles=pl.col("blocked_cycles").sum(),
            uncovered_cycles=pl.col("uncovered_cycles").sum(),
        )
    )
    direction = (
        pl.when(pl.col("signaller") == pl.col("waiter"))
        .then(pl.lit(WITHIN))
        .when(place("signaller") <= place("waiter"))
        .then(pl.lit(FORWARD))
        .otherwise(pl.lit(BACKWARD))
    )
    keys = ["barrier", "signaller", "waiter", "via"]
    return edges.with_columns(direction=direction).sort(
        "blocked_cycles", *keys, descending=[True, False, False, False, False]
    )


def barrier_graph(report: Report, units: Units, *, gross: bool = True) -> go.Figure:
    """Draws roles from left to right in the order of the data, and an arrow for each row of `signals`.

    Args:
      report: the launch's report.
      units: of the durations.
      gross: True shows all blocked time, False only what the SM's tensor core did not cover.
    """
    edges = signals(report)
    column = "blocked_cycles" if gross else "uncovered_cycles"
    present = {*edges["signaller"].to_list(), *edges["waiter"].to_list()}
    roles = [*(name for name in _ORDER if name in present), *sorted(present - set(_ORDER))]
    at = {role: number * _GAP for number, role in enumerate(roles)}
    longest = max(edges[column].max() or 0, 1)  # pyright: ignore[reportArgumentType]  # an integer column
    figure = go.Figure()
    used: dict[tuple[str, ...], int] = {}
    outward = {role: -1 if x < max(at.values()) / 2 else 1 for role, x in at.items()}
    for edge in edges.iter_rows(named=True):
        ends = (edge["signaller"], edge["waiter"])
        level = used[ends] = used.get(ends, 0) + 1
        width = 1.5 + 6.5 * math.sqrt(edge[column] / longest)
        side = outward[ends[0]] if edge["direction"] == WITHIN else 0
        path = _path(at[ends[0]], at[ends[1]], level, edge["direction"], side)
        _add_edge(figure, edge, path, width, edge[column], units, side)
    for role, x in at.items():
        figure.add_annotation(
            x=x,
            y=0,
            text=f"<b>{role}</b>",
            showarrow=False,
            bgcolor="rgba(68,119,170,0.22)",
            bordercolor="#4477aa",
            borderwidth=1.5,
            borderpad=9,
            font={"size": 13, "color": INK},
        )
    height = 0.75 + _REACH * max([*used.values(), 1])
    style(figure, height=min(max(int(125 * height), 220), 420), legend=False)
    loops = {
        side: max((n for (one, other), n in used.items() if one == other and outward[one] == side), default=0)
        for side in (-1, 1)
    }
    room = {side: 1.2 + (loops[side] and _LABEL_ROOM + _LOOP * loops[side]) for side in (-1, 1)}
    figure.update_xaxes(visible=False, range=[-room[-1], max(at.values(), default=0) + room[1]])
    figure.update_yaxes(visible=False, range=[-height, height])
    return figure


def _path(x0: float, x1: float, level: int, direction: str, outward: int) -> tuple[list[float], list[float]]:
    """Returns the points of an edge: an arc above for forward, below for backward, a loop outward for within a role."""
    if direction == WITHIN:
        turns = [math.tau * step / _STEPS for step in range(_STEPS + 1)]
        reach = _LOOP * level
        xs = [x0 + outward * (0.35 + reach * (1 - math.cos(turn))) for turn in turns]
        return xs, [0.62 * level * math.sin(turn) for turn in turns]
    side = 1 if direction == FORWARD else -1
    shares = [step / _STEPS for step in range(_STEPS + 1)]
    xs = [x0 + (x1 - x0) * (share - 0.04 * math.sin(math.tau * share)) for share in shares]
    return xs, [side * (0.3 + _REACH * level * 0.85 * math.sin(math.pi * share)) for share in shares]


def _add_edge(
    figure: go.Figure,
    edge: dict[str, object],
    path: tuple[list[float], list[float]],
    width: float,
    cycles: int,
    units: Units,
    outward: int,
) -> None:
    xs, ys = path
    color = DIRECTION_COLORS[str(edge["direction"])]
    via = unit_name(str(edge["via"]))
    text = f"<b>{edge['barrier']}</b>{f' by {via}' if via else ''}: {units.text(cycles)}"
    meaning = (
        f"<b>{edge['signaller']}</b>{f' (its {via})' if via else ''} completes <b>{edge['barrier']}</b>, "
        f"<b>{edge['waiter']}</b> waits for it<br>{edge['waits']:,} waits, {edge['blocked']:,} blocked, "
        f"{units.text(cycles)}"
    )
    figure.add_scatter(
        x=xs, y=ys, mode="lines", line={"width": width, "color": color}, hoverinfo="text", hovertext=meaning
    )
    figure.add_annotation(
        x=xs[-1],
        y=ys[-1],
        ax=xs[-3],
        ay=ys[-3],
        axref="x",
        ayref="y",
        xref="x",
        yref="y",
        text="",
        arrowhead=2,
        arrowwidth=max(width * 0.7, 1.8),
        arrowsize=1.0,
        arrowcolor=color,
    )
    middle = _STEPS // 2
    figure.add_annotation(
        x=xs[middle],
        y=ys[middle],
        text=text,
        hovertext=meaning,
        showarrow=False,
        xanchor={-1: "right", 0: "center", 1: "left"}[outward],
        xshift=6 * outward,
        yshift=0 if outward else 13 if ys[middle] >= 0 else -13,
        font={"size": 12, "color": INK},
    )
