"""Overview: what bounds this launch, what that costs, and what to change."""

from __future__ import annotations

import dataclasses

from dash import html
from dash.development.base_component import Component

from dashboard.markup import extra
from dashboard.quantities import CYCLES, share_text
from dashboard.views import tables
from dashboard.views.base import PageContext
from dashboard.views.components import NOTHING, Column, card, download, link, notes, table, tile


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
                        tables.budget_chart(report),
                        note="time of the SMs in use: a bubble is time without an MMA in flight",
                    ),
                    card(
                        "Warpgroups",
                        tables.roles_chart(report),
                        note="time of each role's warpgroups; waits are hatched",
                    ),
                ],
                className="columns",
            ),
            *_advice(context),
            card(
                "Barrier waits",
                tables.barrier_waits(context),
                note="summed over all warpgroups; bare: while the SM's tensor core had nothing in flight",
                actions=[
                    download("CSV", csv(name, "barrier_waits.csv")),
                    link("Who waits for whom", context.links.page("barriers")),
                ],
            ),
            card(
                "Tensor-core bubbles and losses",
                tables.bubbles(context, limit=8),
                note="longest first; gain ≤ says how much faster the kernel could get at most",
                actions=[download("CSV", csv(name, "bubbles.csv")), link("All", context.links.page("bubbles"))],
            ),
        ],
        className="page",
    )


def _verdict(context: PageContext) -> Component:
    report = context.loaded.report
    sentence = f"{report.verdict[:1].upper()}{report.verdict[1:]}."
    limit = [html.P(f"{report.advice.limit}.", className="muted")] if report.advice.limit else []
    return html.Section(
        [html.P(sentence, className="verdict-sentence"), *limit],
        className="verdict",
        **extra({"aria-label": "Verdict"}),
    )


def _advice(context: PageContext) -> list[Component]:
    """Lays out what to try, largest gain first."""
    items = context.loaded.report.advice.items
    if not items:
        return []
    largest = max(item.gain_share for item in items)
    columns = [
        Column("What to try", lambda row: html.B(row["remedy"])),
        Column("because", lambda row: row["evidence"]),
        Column(
            "Gain",
            lambda row: f"{share_text(row['gain_share'])}",
            lambda row: row["gain_share"],
            lambda row: row["gain_share"] / largest,
            is_number=True,
            meaning="Of the launch.",
        ),
        Column(
            context.units.name,
            lambda row: context.units.number(row["gain_cycles"]),
            lambda row: row["gain_cycles"],
            is_number=True,
        ),
        Column(
            "",
            lambda row: html.Span({"replay": "by replay"}.get(row["basis"], row["basis"]), className="short muted"),
            meaning="by replay: an estimate on the graph of events. at most: a bound.",
        ),
    ]
    rows = [dataclasses.asdict(item) for item in items]
    more = link("What if …", context.links.page("critical-path"))
    return [card("What to try", table(columns, rows, "What to try"), note="largest gain first", actions=[more])]


def _tiles(context: PageContext) -> Component:
    report, units = context.loaded.report, context.units
    use, waits = report.utilisation, report.barrier_waits.barriers
    alive = max(report.window.end * report.categories.tracks.height, 1)
    bare = int(waits["uncovered_cycles"].sum())
    tiles = [
        tile(
            "Kernel",
            units.text(report.kernel_cycles).removesuffix(" cycles"),
            f"cycles = {report.kernel_us:,.2f} µs" if units.name == CYCLES else f"{report.kernel_cycles:,} cycles",
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
            share_text(use.peak_share) if use.peak_flops_per_cycle else NOTHING,
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
            units.text(report.steady_state.interval_cycles).removesuffix(" cycles")
            if report.steady_state.interval_cycles
            else NOTHING,
            f"{'cycles ' if units.name == CYCLES else ''}per iteration, bound by {report.steady_state.bound_by}"
            if report.steady_state.bound_by
            else "no loop found",
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
