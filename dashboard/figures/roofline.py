"""The roofline: what the launch computed per byte and cycle, under the roofs of its device."""

from __future__ import annotations

import math

import plotly.graph_objects as go

from dashboard.theme import KIND_COLORS, style
from profiler import Report


def roofline(report: Report) -> go.Figure | None:
    """Draws FLOP per cycle and SM over FLOP per byte; None if the launch moved or computed nothing, or without peaks.

    Slanted roofs are what TMA (bytes per cycle into an SM) and HBM (its share per SM) can feed; the flat one is the
    tensor core's rate. Williams, Waterman, Patterson: Roofline, CACM 52(4), 2009.
    """
    peaks = report.trace.header.peaks
    peak, intensity = peaks.get("tensor_flops", 0.0), report.roofline.intensity
    if not peak or not intensity or not report.utilisation.flops_per_cycle:
        return None
    feeds = [
        (name, peaks[key]) for name, key in (("TMA into SMEM", "tma_bytes"), ("HBM", "hbm_bytes")) if peaks.get(key)
    ]
    low = min([intensity, *(peak / rate for _, rate in feeds)]) / 8
    high = max([intensity, *(peak / rate for _, rate in feeds)]) * 8
    figure = go.Figure()
    for (name, rate), dash in zip(feeds, ("solid", "dash"), strict=False):
        knee = peak / rate
        figure.add_scatter(
            name=f"{name}: {rate:,.3g} bytes/cycle/SM",
            x=[low, knee],
            y=[low * rate, peak],
            mode="lines",
            line={"color": KIND_COLORS["tma_load"], "width": 2, "dash": dash},
        )
    figure.add_scatter(
        name=f"tensor core: {peak:,.0f} FLOP/cycle/SM",
        x=[min((peak / rate for _, rate in feeds), default=low), high],
        y=[peak, peak],
        mode="lines",
        line={"color": KIND_COLORS["tensor_core"], "width": 2},
    )
    achieved = report.utilisation.flops_per_cycle
    figure.add_scatter(
        name=report.trace.header.kernel,
        x=[intensity],
        y=[achieved],
        mode="markers+text",
        text=[f" {achieved / peak:.0%} of peak"],
        textposition="middle right",
        marker={"size": 13, "color": "#ee6677", "line": {"width": 2, "color": "#ffffff"}},
        hovertemplate="%{x:,.1f} FLOP/byte<br>%{y:,.0f} FLOP/cycle/SM<extra></extra>",
    )
    style(figure, height=400)
    figure.update_xaxes(
        type="log", title_text="FLOP per byte moved by TMA", range=[math.log10(low), math.log10(high)], dtick=1
    )
    lowest = min([achieved, *(low * rate for _, rate in feeds)])
    figure.update_yaxes(
        type="log", title_text="FLOP per cycle and SM", range=[math.log10(lowest / 2), math.log10(peak * 2)], dtick=1
    )
    return figure
