"""Everything the analyses say about one launch, in one value: for the terminal, for JSON, for the dashboard."""

from __future__ import annotations

import dataclasses
import functools
import importlib
from typing import Any

import polars as pl

from profiler.analysis.advice import AdviceReport, Findings, give_advice
from profiler.analysis.balance import BalanceReport, find_balance
from profiler.analysis.barrier_waits import BarrierWaitReport, find_barrier_waits
from profiler.analysis.bubbles import BubbleReport, find_bubbles
from profiler.analysis.categories import CategoryReport, time_by_category
from profiler.analysis.causes import Cause, Detail, Reading, recommended_reading
from profiler.analysis.critical_path import CriticalPathReport, find_critical_path
from profiler.analysis.graph_edges import LaunchGraph, build_graph
from profiler.analysis.rings import find_rings
from profiler.analysis.roofline import RooflineReport, find_roofline
from profiler.analysis.steady_state import SteadyStateReport, steady_state
from profiler.analysis.utilisation import UtilisationReport, tensor_core_utilisation
from profiler.analysis.what_if import WhatIfReport, predict_changes
from profiler.analysis.window import Window, known_window
from profiler.inline_timeline import InlineTimeline, draw_timeline
from profiler.report_render import render_html, render_markdown, render_text
from profiler.report_sections import report_sections
from profiler.trace import Trace

NUM_BUBBLES = 5
HBM_BOUND = 0.9
"""Of what HBM can move in the launch's time; start and end of a launch leave some of it unused."""
REPORT_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Report:
    """The answers about one launch. Each analysis runs when it is first asked for, and its report is kept.

    Attributes:
      trace: what is analysed.
    """

    trace: Trace

    @functools.cached_property
    def window(self) -> Window:
        """The stretch that is known; all shares are of its cycles."""
        return known_window(self.trace)

    @functools.cached_property
    def utilisation(self) -> UtilisationReport:
        """How busy the tensor cores were."""
        return tensor_core_utilisation(self.trace)

    @functools.cached_property
    def bubbles(self) -> BubbleReport:
        """When they had nothing in flight, and why."""
        return find_bubbles(self.trace)

    @functools.cached_property
    def barrier_waits(self) -> BarrierWaitReport:
        """Who waited on which barrier, and who released it."""
        return find_barrier_waits(self.trace)

    @functools.cached_property
    def categories(self) -> CategoryReport:
        """Where the time of each track and role went."""
        return time_by_category(self.trace)

    @functools.cached_property
    def steady_state(self) -> SteadyStateReport:
        """The main loop without prologue and epilogue."""
        return steady_state(self.trace)

    @functools.cached_property
    def _graph(self) -> LaunchGraph:
        return build_graph(self.trace)

    @functools.cached_property
    def critical_path(self) -> CriticalPathReport:
        """The chain of steps that took as long as the launch."""
        return find_critical_path(self.trace, self._graph)

    @functools.cached_property
    def what_if(self) -> WhatIfReport:
        """What the launch would take if one thing were different."""
        return predict_changes(self.trace, self._graph)

    @functools.cached_property
    def balance(self) -> BalanceReport:
        """How evenly SMs and waves were loaded."""
        return find_balance(self.trace)

    @functools.cached_property
    def roofline(self) -> RooflineReport:
        """What the rates of the device would allow."""
        return find_roofline(self.trace)

    @functools.cached_property
    def advice(self) -> AdviceReport:
        """What to change first."""
        rings = tuple(find_rings(self._graph))
        return give_advice(
            Findings(
                self.trace,
                self.bubbles,
                self.barrier_waits,
                self.categories,
                self.critical_path,
                self.what_if,
                self.balance,
                self.roofline,
                rings,
            )
        )

    @functools.cached_property
    def verdict(self) -> str:
        """The launch in one sentence."""
        loss = _memory_bound(self.roofline) + _verdict(self.utilisation, self.bubbles, self.barrier_waits)
        return _qualify(loss + _first_remedy(self.advice), self.window)

    def is_known(self, name: str) -> bool:
        """True if an analysis, such as "bubbles", has run already, so that asking for it costs nothing."""
        return name in vars(self)

    @property
    def kernel_cycles(self) -> int:
        """Duration of the launch in cycles."""
        return self.trace.end

    @property
    def kernel_us(self) -> float:
        """Duration of the launch in µs, at the launch's clock."""
        return self.trace.to_ns(self.trace.end) / 1e3

    @property
    def recording_share(self) -> float:
        """Part of the tracks' lifetimes that went into storing events, 0 to 1."""
        alive = self.window.end * self.categories.tracks.height - int(self.categories.tracks["idle_cycles"].sum())
        return int(self.categories.tracks["recording_cycles"].sum()) / max(alive, 1)

    @property
    def notes(self) -> list[str]:
        """What the reader must know before trusting a number: dropped events and other defects. Never hidden."""
        defects = self.trace.defects
        notes = [self.window.note] if self.window.note else []
        rows = defects.filter(pl.col("kind") != "dropped") if notes else defects
        counted = rows.group_by("kind", "message", maintain_order=True).agg(pl.col("count").sum(), tracks=pl.len())
        for kind, message, count, tracks in counted.iter_rows():
            notes.append(f"{kind}: {message} ({count:,} on {tracks:,} tracks)" if tracks > 1 else f"{kind}: {message}")
        if self.utilisation.provenance == "inferred" and self.utilisation.sms_used:
            notes.append("tensor-core activity is inferred from MMA issues and waits: bubbles are estimates.")
        return notes

    def largest_bubbles(self) -> list[tuple[dict[str, Any], Reading]]:
        """Returns the five largest groups of bubbles, largest first, each with what to read about its cause."""
        rows = self.bubbles.largest(NUM_BUBBLES).iter_rows(named=True)
        return [(row, recommended_reading(Cause(row["cause"]), Detail(row["detail"]))) for row in rows]

    def to_text(self, width: int = 100, color: bool = False) -> str:
        """Renders the report for a terminal of `width` columns; plain text unless `color`."""
        return render_text(report_sections(self), width, color)

    def to_markdown(self) -> str:
        """Renders the report as GitHub-flavoured Markdown."""
        return render_markdown(report_sections(self))

    def _repr_html_(self) -> str:
        """Shows the report in a notebook, below a timeline of one SM."""
        return f"{draw_timeline(self.trace).svg}\n{render_html(report_sections(self))}"

    def timeline(self, sm: int | None = None, begin: int = 0, end: int | None = None) -> InlineTimeline:
        """Returns a small drawing of one SM for a notebook, which needs no Plotly; see `draw_timeline`."""
        return draw_timeline(self.trace, sm, begin, end)

    def figure(self, name: str = "timeline", units: str = "cycles") -> Any:
        """Returns a Plotly chart for a notebook: "timeline", "tensor_core", "roles", "barriers", "pipeline", ...

        Raises:
          ParamsError: there is no such chart; the message lists those there are.
        """
        # Not an import statement: the dashboard sits above the profiler, and Plotly is optional.
        charts: Any = importlib.import_module("dashboard.figures.notebook")
        return charts.draw(self, name, units)

    def to_json(self) -> dict[str, Any]:
        """Returns the report as a JSON object. Keys are stable and carry their units; shares are 0 to 1."""
        header = self.trace.header
        return {
            "report_version": REPORT_VERSION,
            "kernel": header.kernel,
            "launch": header.launch,
            "device": header.device,
            "provenance": header.provenance,
            "clock_hz": header.clock_hz,
            "kernel_cycles": self.kernel_cycles,
            "kernel_us": self.kernel_us,
            "analysed_cycles": self.window.end,
            "verdict": self.verdict,
            "notes": self.notes,
            "events": self._events_json(),
            "tensor_core": self._tensor_core_json(),
            "bubbles": [row | dataclasses.asdict(reading) for row, reading in self.largest_bubbles()],
            "bubble_share": self.bubbles.bubble_share,
            "outside_use": self.bubbles.edge_groups.to_dicts(),
            "barrier_waits": self.barrier_waits.barriers.to_dicts(),
            "barrier_releasers": self.barrier_waits.releasers.to_dicts(),
            "categories": self.categories.roles.to_dicts(),
            "steady_state": {
                "interval_cycles": self.steady_state.interval_cycles,
                "bound_by": self.steady_state.bound_by,
                "warpgroups": self.steady_state.by_warpgroup().to_dicts(),
            },
            "critical_path": self.critical_path.parts.to_dicts(),
            "slack": self.critical_path.slack.to_dicts(),
            "what_if": self.what_if.scenarios.to_dicts(),
            "advice": [dataclasses.asdict(item) for item in self.advice.items],
            "limit": self.advice.limit,
            "balance": self._balance_json(),
            "roofline": {
                "intensity_flop_per_byte": self.roofline.intensity,
                "ceilings": self.roofline.ceilings.to_dicts(),
            },
            "defects": self.trace.defects.to_dicts(),
        }

    def _events_json(self) -> dict[str, Any]:
        return {
            "kept": self.trace.events_kept,
            "dropped": self.trace.events_dropped,
            "sufficient_profile_space": self.trace.sufficient_profile_space,
            "record_cycles": self.trace.header.record_cycles,
            "recording_share": self.recording_share,
            "profile_smem_bytes": self.trace.header.profile_smem_bytes,
        }

    def _balance_json(self) -> dict[str, Any]:
        balance = self.balance
        return {
            "ctas": balance.ctas.height,
            "waves": balance.waves,
            "wave_efficiency": balance.wave_efficiency,
            "occupied_share": balance.occupied_share,
            "unused_sms": balance.unused_sms,
            "tail_cycles": balance.tail_cycles,
            "imbalance": balance.imbalance,
            "even_cycles": balance.even_cycles,
        }

    def _tensor_core_json(self) -> dict[str, Any]:
        use = self.utilisation
        return {
            "busy_cycles": use.busy_cycles,
            "busy_share": use.busy_share,
            "busy_share_of_used_sms": use.busy_share_of_used_sms,
            "sms_used": use.sms_used,
            "sms": use.sms,
            "flops": use.flops,
            "flops_per_cycle_per_sm": use.flops_per_cycle,
            "peak_flops_per_cycle_per_sm": use.peak_flops_per_cycle,
            "peak_share": use.peak_share,
            "provenance": use.provenance,
        }


def build_report(trace: Trace) -> Report:
    """Returns the answers about a launch. Analyses run when they are asked for."""
    return Report(trace)


def _first_remedy(advice: AdviceReport) -> str:
    """Names the first thing to try, and, if what it gains is only bounded, the first whose gain was predicted."""
    if not advice.items:
        return ""
    predicted = next((item for item in advice.items if item.basis == "replay"), advice.items[0])
    named = dict.fromkeys((advice.items[0], predicted))
    return "; try first: " + "; then: ".join(f"{item.remedy}, gaining {item.gain_text}" for item in named)


def _qualify(verdict: str, window: Window) -> str:
    """Says for which part of the launch a verdict holds, if not for all of it."""
    if window.is_whole:
        return verdict
    if not window.end:
        return f"nothing is known: no event was kept (profile_space={window.sufficient_profile_space} keeps all)"
    return f"in the first {window.end:,} of {window.launch_end:,} cycles: {verdict}"


def _memory_bound(roofline: RooflineReport) -> str:
    """Says that the launch moves about as much as HBM can, if it does: then no earlier load would fill the waits."""
    share = roofline.share("HBM")
    return f"HBM-bound, at {share:.0%} of its bandwidth; " if share >= HBM_BOUND else ""


def _verdict(use: UtilisationReport, bubbles: BubbleReport, waits: BarrierWaitReport) -> str:
    if not use.sms_used:
        return _verdict_without_mma(waits)
    of_sms = "" if use.sms_used == use.sms else f" on the {use.sms_used} of {use.sms} SMs in use"
    busy = f"tensor core {use.busy_share_of_used_sms:.0%} busy{of_sms}"
    losses = _losses(bubbles)
    if losses.is_empty():
        return f"{busy}; no bubbles"
    return f"{busy}; largest loss: {_describe_loss(losses.row(0, named=True), waits)}"


def _losses(bubbles: BubbleReport) -> pl.DataFrame:
    """Sums bubbles and edges over source lines; a loss at the ends of a CTA counts once, whatever it consists of."""
    at_ends = pl.col("cause").is_in([str(Cause.FILL), str(Cause.DRAIN), str(Cause.SCHEDULING)])
    keys = ["cause", "detail", "barrier", "root_barrier"]
    groups = pl.concat([bubbles.groups, bubbles.edge_groups]).with_columns(
        pl.when(at_ends).then(pl.lit("")).otherwise(name).alias(name) for name in keys[1:]
    )
    sums = groups.group_by(keys).agg(pl.col("total_cycles", "kernel_share").sum())
    return sums.sort("total_cycles", *keys, descending=[True] + [False] * len(keys))


def _describe_loss(row: dict[str, Any], waits: BarrierWaitReport) -> str:
    place = f" on {row['barrier']}" if row["barrier"] else ""
    parts = [f"{row['cause']}{place} ({row['kernel_share']:.0%} of kernel)"]
    if row["barrier"]:
        by = waits.barriers.filter((pl.col("barrier") == row["barrier"]) & pl.col("role").str.contains("compute"))
        releaser = by["released_by"].to_list()[:1]
        parts += [f"released by {'TMA' if name == 'tma_load' else name}" for name in releaser]
    if row["root_barrier"] and row["root_barrier"] != row["barrier"]:
        parts.append(f"held up by waits on {row['root_barrier']}")
    return ", ".join([*parts, row["detail"]] if row["detail"] else parts)


def _verdict_without_mma(waits: BarrierWaitReport) -> str:
    longest = waits.barriers.head(1).to_dicts()
    if not longest or not longest[0]["blocked_cycles"]:
        return "no MMA was recorded, and no wait was blocked"
    row = longest[0]
    return (
        f"no MMA was recorded; longest wait: {row['role']} on {row['barrier']}, {row['blocked_cycles']:,} cycles, "
        f"released by {row['released_by']}"
    )
