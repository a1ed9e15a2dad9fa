"""Overview: what bounds this launch, what that costs, and what to change."""

from __future__ import annotations

from typing import Any

from dash import html
from dash.development.base_component import Component

from dashboard import figures
from dashboard.quantities import CYCLES, share_text
from dashboard.views import tables
from dashboard.views.base import PageContext
from dashboard.views.components import card, chart, download, link, notes, tile
from profiler import Report


def build(context: PageContext) -> Component:
    """Lays the page out."""
    report = context.loaded.report
    name = context.loaded.name
    csv = context.links.download
    return html.Div(
        [
            _verdict(context),
            *notes(report.notes),
            _tiles(context),
            html.Div(
                [
                    card(
                        "Tensor cores",
                        chart("tensor-core-budget", figures.tensor_core_budget(report)),
                        note="time of the SMs in use: a bubble is time without an MMA in flight",
                    ),
                    card(
                        "Warpgroups",
                        chart("role-categories", figures.role_categories(report)),
                        note="time of each role's warpgroups; waits are hatched",
                    ),
                ],
                className="columns",
            ),
            card(
                "Tensor-core bubbles and losses",
                tables.bubbles(context, limit=8),
                note="longest first; gain ≤ says how much faster the kernel could get at most",
                actions=[download("CSV", csv(name, "bubbles.csv")), link("All", context.links.page("bubbles"))],
            ),
            card(
                "Barrier waits",
                tables.barrier_waits(context),
                note="summed over all warpgroups; bare: while the SM's tensor core had nothing in flight",
                actions=[download("CSV", csv(name, "barrier_waits.csv")), link("Who waits for whom", context.links.page("barriers"))],
            ),
        ],
        className="page",
    )  # fmt: skip


def largest_loss(report: Report) -> dict[str, Any] | None:
    """Returns the group of bubbles or edges that costs most, None if there is no loss."""
    groups = tables.loss_groups(report)
    return groups[0] if groups else None


def _verdict(context: PageContext) -> Component:
    report = context.loaded.report
    loss = largest_loss(report)
    children: list[Component | str] = [html.P(f"{_capitalise(report.verdict)}.", className="verdict-sentence")]
    if loss is not None:
        reading = loss["reading"]
        gain = loss["gain_bound_cycles"] / max(report.kernel_cycles, 1)
        children.append(
            html.P(
                [
                    html.B("Change first: "),
                    f"{reading.remedy}. ",
                    html.Span(
                        f"Worth at most {context.units.text(loss['gain_bound_cycles'])} ({share_text(gain)} of the kernel). ",
                        className="muted",
                    ),
                    tables.example_link(context, loss, "Show me"),
                ],
                className="verdict-advice",
                title=reading.meaning,
            )
        )
    return html.Section(children, className="verdict", **{"aria-label": "Verdict"})


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tiles(context: PageContext) -> Component:
    report, units = context.loaded.report, context.units
    use, waits = report.utilisation, report.barrier_waits.barriers
    other = "time" if units.name == CYCLES else "cycles"
    alive = max(report.window.end * report.categories.tracks.height, 1)
    bare = int(waits["uncovered_cycles"].sum())
    tiles = [
        tile(
            "Kernel",
            units.text(report.kernel_cycles),
            f"{report.kernel_us:,.2f} µs" if other == "time" else f"{report.kernel_cycles:,} cycles",
            "From the first CTA's start to the last one's end.",
        ),
        tile(
            "Tensor cores busy",
            share_text(use.busy_share_of_used_sms),
            f"on {use.sms_used} of {use.sms} SMs",
            "Share of the launch in which an SM in use had an MMA in flight.",
            use.busy_share_of_used_sms,
        ),
        tile(
            "Of peak",
            share_text(use.peak_share) if use.peak_flops_per_cycle else "–",
            f"{use.flops_per_cycle:,.0f} FLOP/cycle/SM",
            "Floating-point operations per cycle over what the device's tensor cores can do, all SMs counted.",
            use.peak_share if use.peak_flops_per_cycle else None,
        ),
        tile(
            "Bubbles",
            share_text(report.bubbles.bubble_share),
            "between first and last MMA",
            "Share of the launch in which an SM had no MMA in flight between its first and its last.",
            report.bubbles.bubble_share,
        ),
        tile(
            "Blocked at barriers",
            share_text(int(waits["blocked_cycles"].sum()) / alive),
            f"{units.text(bare)} of it bare",
            "Share of all warpgroups' time in waits that began before their phase was complete. Bare: while the SM's "
            "tensor core had nothing in flight.",
            int(waits["blocked_cycles"].sum()) / alive,
        ),
        tile(
            "Main loop",
            units.text(report.steady_state.interval_cycles) if report.steady_state.interval_cycles else "–",
            f"per iteration, bound by {report.steady_state.bound_by}" if report.steady_state.bound_by else "no loop found",
            "Median time from one iteration's wait for data to the next one's.",
        ),
        tile(
            "Recording",
            share_text(report.recording_share),
            "of warpgroup time, included above",
            "What storing events costs the warpgroups. The timeline contains it.",
            report.recording_share,
        ),
    ]
    return html.Div(tiles, className="tiles")
