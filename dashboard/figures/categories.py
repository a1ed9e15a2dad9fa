"""Where each role's time went: busy, waits by what they wait for, overhead, idle."""

from __future__ import annotations

import plotly.graph_objects as go
import polars as pl

from dashboard.quantities import share_text
from dashboard.theme import CATEGORY_COLORS, KIND_COLORS, LegendEntry, style
from profiler import Report

_BARRIER_SHADES = ("#ddaa33", "#ee6677", "#7a68b8", "#999933", "#e28e4c", "#44aa99")
_BARRIER_WAIT = "wait "


def role_parts(report: Report) -> pl.DataFrame:
    """Returns `role, part, category, share`: shares of a role's tracks over the window, which sum to 1 per role.

    Waits are split by barrier, or by kind where there is none. Time for storing events is apart from other overhead.
    """
    parts = report.categories.parts.with_columns(part=_part_name())
    sums = parts.group_by("role", "category", "part").agg(pl.col("cycles").sum())
    totals = report.categories.tracks.group_by("role").agg(total=pl.len().cast(pl.Int64) * report.window.end)
    shares = sums.join(totals, on="role").with_columns(share=pl.col("cycles") / pl.col("total"))
    return shares.sort("role", "category", "cycles", "part", descending=[False, False, True, False])


def _part_name() -> pl.Expr:
    waits = (
        pl.when(pl.col("barrier") != "")
        .then(pl.format(f"{_BARRIER_WAIT}{{}}", "barrier"))
        .otherwise(pl.col("kind").str.replace_all("_", " "))
    )
    is_recording = pl.col("kind") == "recording"
    return (
        pl.when(pl.col("category") == "wait")
        .then(waits)
        .when(is_recording)
        .then(pl.lit("recording events"))
        .otherwise(pl.col("category"))
    )


def role_legend(report: Report) -> list[LegendEntry]:
    """Returns an entry for each part, in the order of the bars."""
    parts = _parts_in_order(role_parts(report))
    return [LegendEntry(color, name, category == "wait") for name, category, color in parts]


def role_categories(report: Report) -> go.Figure:
    """Draws a stacked bar for each role: the parts of `role_parts`, with waits hatched."""
    shares = role_parts(report)
    roles = shares["role"].unique().sort(descending=True).to_list()
    figure = go.Figure()
    for name, category, color in _parts_in_order(shares):
        rows = dict(shares.filter(pl.col("part") == name).select("role", "share").iter_rows())
        values = [rows.get(role, 0.0) for role in roles]
        figure.add_bar(
            name=name,
            x=values,
            y=roles,
            orientation="h",
            marker={
                "color": color,
                "line": {"width": 0},
                "pattern": {
                    "shape": "/" if category == "wait" else "",
                    "fillmode": "overlay",
                    "size": 7,
                    "solidity": 0.18,
                    "fgcolor": "rgba(255,255,255,0.75)",
                },
            },
            text=[f"{name} {share_text(value)}" if value > 0.12 else "" for value in values],
            textposition="inside",
            insidetextanchor="middle",
            insidetextfont={"color": "#1d2530" if category == "idle" else "#ffffff", "size": 11},
            hovertemplate=f"<b>{name}</b> (%{{y}})<br>%{{x:.2%}} of the launch<extra></extra>",
        )
    figure.update_layout(barmode="stack", uniformtext={"minsize": 10, "mode": "hide"})
    style(figure, height=40 + 46 * max(len(roles), 1))
    figure.update_xaxes(range=[0, 1], tickformat=".0%")
    return figure


def _parts_in_order(shares: pl.DataFrame) -> list[tuple[str, str, str]]:
    """Returns name, category and colour of each part: busy, waits (longest first), overhead, recording, idle."""
    order = {"busy": 0, "wait": 1, "overhead": 2, "idle": 3}
    totals = shares.group_by("part", "category").agg(pl.col("cycles").sum())
    rows = sorted(totals.iter_rows(named=True), key=lambda row: (order[row["category"]], -row["cycles"], row["part"]))
    barriers = sorted(row["part"] for row in rows if row["part"].startswith(_BARRIER_WAIT))
    colors = {name: _BARRIER_SHADES[number % len(_BARRIER_SHADES)] for number, name in enumerate(barriers)}
    colors |= {kind.replace("_", " "): color for kind, color in KIND_COLORS.items()}
    colors |= {"busy": KIND_COLORS["tensor_core"], "overhead": CATEGORY_COLORS["overhead"]}
    colors |= {"recording events": "#7c8491", "idle": CATEGORY_COLORS["idle"]}
    return [(row["part"], row["category"], colors.get(row["part"], CATEGORY_COLORS["overhead"])) for row in rows]
