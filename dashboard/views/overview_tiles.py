"""The numbers at the top of the overview."""

from __future__ import annotations

from collections.abc import Callable

from dash import html
from dash.development.base_component import Component

from dashboard.quantities import CYCLES, share_text
from dashboard.views.base import PageContext
from dashboard.views.components import NOTHING, tile


def tiles(context: PageContext) -> Component:
    """Lays out the tiles; one whose number has not been found yet says so."""
    return html.Div([_tile(context, label, parts, make) for label, parts, make in _TILES], className="tiles")


def _tile(
    context: PageContext, label: str, parts: tuple[str, ...], make: Callable[[PageContext, str], Component]
) -> Component:
    progress = context.missing(*parts)
    return make(context, label) if progress is None else tile(label, "…", progress.title.lower())


def _kernel(context: PageContext, label: str) -> Component:
    report, units = context.loaded.report, context.units
    return tile(
        label,
        units.text(report.kernel_cycles).removesuffix(" cycles"),
        f"cycles = {report.kernel_us:,.2f} µs" if units.name == CYCLES else f"{report.kernel_cycles:,} cycles",
        "From the first CTA's start to the last one's end.",
    )


def _use(context: PageContext, label: str) -> Component:
    use = context.loaded.report.utilisation
    return tile(
        label,
        share_text(use.busy_share_of_used_sms),
        f"on {use.sms_used} of {use.sms} SMs",
        "Share of the launch in which an SM in use had an MMA in flight.",
        use.busy_share_of_used_sms,
    )


def _peak(context: PageContext, label: str) -> Component:
    use = context.loaded.report.utilisation
    return tile(
        label,
        share_text(use.peak_share) if use.peak_flops_per_cycle else NOTHING,
        f"{use.flops_per_cycle:,.0f} FLOP/cycle/SM",
        "Floating-point operations per cycle over what the device's tensor cores can do, all SMs counted.",
        use.peak_share if use.peak_flops_per_cycle else None,
    )


def _bubbles(context: PageContext, label: str) -> Component:
    share = context.loaded.report.bubbles.bubble_share
    return tile(
        label,
        share_text(share),
        "between first and last MMA",
        "Share of the launch in which an SM had no MMA in flight between its first and its last.",
        share,
    )


def _barriers(context: PageContext, label: str) -> Component:
    report = context.loaded.report
    waits = report.barrier_waits.barriers
    alive = max(report.window.end * report.categories.tracks.height, 1)
    return tile(
        label,
        share_text(int(waits["blocked_cycles"].sum()) / alive),
        f"{context.units.text(int(waits['uncovered_cycles'].sum()))} of it bare",
        "Share of all warpgroups' time in waits that began before their phase was complete. Bare: while the SM's "
        "tensor core had nothing in flight.",
        int(waits["blocked_cycles"].sum()) / alive,
    )


def _main_loop(context: PageContext, label: str) -> Component:
    state, units = context.loaded.report.steady_state, context.units
    unit = "cycles " if units.name == CYCLES else ""
    return tile(
        label,
        units.text(state.interval_cycles).removesuffix(" cycles") if state.interval_cycles else NOTHING,
        f"{unit}per iteration, bound by {state.bound_by}" if state.bound_by else "no loop found",
        "Median time from one iteration's wait for data to the next one's.",
    )


def _recording(context: PageContext, label: str) -> Component:
    share = context.loaded.report.recording_share
    return tile(
        label,
        share_text(share),
        "of warpgroup time, included above",
        "What storing events costs the warpgroups. The timeline contains it.",
        share,
    )


_TILES: tuple[tuple[str, tuple[str, ...], Callable[[PageContext, str], Component]], ...] = (
    ("Kernel", (), _kernel),
    ("Tensor cores busy", ("utilisation",), _use),
    ("Of peak", ("utilisation",), _peak),
    ("Bubbles", ("bubbles",), _bubbles),
    ("Blocked at barriers", ("barrier_waits", "categories"), _barriers),
    ("Main loop", ("steady_state",), _main_loop),
    ("Recording", ("categories",), _recording),
)
