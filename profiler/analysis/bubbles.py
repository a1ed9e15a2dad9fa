"""When did each SM's tensor core have nothing in flight, and why?"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from profiler.analysis.attribution import CAUSES, DETAILS, Attribution
from profiler.analysis.mma_activity import MmaActivity, find_mma_activity
from profiler.analysis.pieces import NONE
from profiler.analysis.summaries import summarise, to_polars, total_by
from profiler.analysis.window import Window, known_window
from profiler.intervals import find_gaps
from profiler.trace import Trace

_GROUP = ["cause", "detail", "barrier", "root_barrier", "source"]


@dataclasses.dataclass(frozen=True)
class BubbleReport:
    """Bubbles of the tensor cores. Per SM: busy + bubbles = last use - first use, to the cycle.

    Attributes:
      window: the analysed stretch.
      provenance: where tensor-core activity comes from: "simulated" or "inferred".
      bubbles: a row per bubble, split where the cause changes: `sm, cta, begin, dur` (cycles), `cause, detail`; the
        explaining track's wait: `barrier, slot, phase, track, waiter` (its name), `site, source` (file:line); the end
        of the blame chain: `root_track, root_barrier, root_site, root_source`. -1 and "" mean none.
      edges: the same columns, for the time before each SM's first use (fill, launch ramp) and after its last (drain,
        tail). A window that ends before the launch has no known last use, and so nothing after it.
      sms: per SM that used its tensor core: `sm, first_use, last_use, busy_cycles, bubble_cycles, before_cycles,
        after_cycles`; the last four sum to the window.
      groups: bubbles by `cause, detail, barrier, root_barrier, source`: `count, total_cycles, p50_cycles, p95_cycles,
        max_cycles`, `kernel_share` (of the analysed cycles of the SMs in use), `gain_bound_cycles` (the kernel cannot
        get faster by more: what the group costs the SM that has most of it), and the longest example: `example_sm,
        example_begin, example_dur`.
      edge_groups: the same for `edges`.
    """

    window: Window
    provenance: str
    bubbles: pl.DataFrame
    edges: pl.DataFrame
    sms: pl.DataFrame
    groups: pl.DataFrame
    edge_groups: pl.DataFrame

    def __post_init__(self) -> None:
        per_sm = self.bubbles.group_by("sm").agg(pl.col("dur").sum())
        rows = self.sms.join(per_sm, on="sm", how="left").with_columns(pl.col("dur").fill_null(0))
        span = pl.col("last_use") - pl.col("first_use")
        wrong = rows.filter(
            (pl.col("dur") + pl.col("busy_cycles") != span) | (pl.col("dur") != pl.col("bubble_cycles"))
        )
        assert wrong.is_empty(), f"bubbles and busy time do not sum to the span of use on SMs {wrong['sm'].to_list()}"

    def largest(self, count: int = 5) -> pl.DataFrame:
        """Returns the groups that cost most, largest first; fill, drain and tail of the SMs compete with the rest."""
        every = pl.concat([self.groups, self.edge_groups])
        order = ["total_cycles", "cause", "detail", "barrier", "root_barrier", "source"]
        return every.sort(order, descending=[True, *[False] * (len(order) - 1)]).head(count)

    @property
    def bubble_share(self) -> float:
        """Bubbles as a part of the analysed cycles of the SMs in use, 0 to 1."""
        total = self.sms.height * self.window.end
        return int(self.sms["bubble_cycles"].sum()) / total if total else 0.0


def find_bubbles(trace: Trace) -> BubbleReport:
    """Finds every stretch between an SM's first and last MMA in which none was in flight, and its cause.

    CTAs that share an SM share its tensor core: only stretches in which none of them uses it are bubbles.
    """
    window = known_window(trace)
    mma = find_mma_activity(trace, window)
    rules = Attribution.of(trace)
    gaps = find_gaps(mma.in_flight())
    bubbles = _describe(trace, rules, rules.explain_gaps(mma, *gaps))
    edges = [rules.explain_before(mma, window.end)]
    if window.is_whole:  # else the last use is not known, nor what came after it
        edges.append(rules.explain_after(mma, window.end))
    edge_frame = _describe(trace, rules, np.concatenate(edges))
    sms = _per_sm(mma, window)
    total = sms.height * window.end
    groups, edge_groups = _group(bubbles, total), _group(edge_frame, total)
    return BubbleReport(window, mma.provenance, bubbles, edge_frame, sms, groups, edge_groups)


def _describe(trace: Trace, rules: Attribution, pieces: np.ndarray) -> pl.DataFrame:
    """Turns pieces into a table with names instead of numbers."""
    span = rules.leaves.span[np.maximum(pieces["leaf"], 0)]
    own_site = np.append(trace.spans["site"].to_numpy().astype(np.int64), NONE)[np.where(span >= 0, span, -1)]
    wait_site = _column(trace.waits["site"], pieces["wait"])
    site = np.select([wait_site != NONE, own_site != NONE], [wait_site, own_site], pieces["next_site"])
    location = {place.id: place.location for place in trace.header.sites}
    track = pieces["track"]
    return pl.DataFrame(
        {
            "sm": pieces["sm"],
            "cta": pieces["cta"],
            "begin": pieces["begin"],
            "dur": pieces["end"] - pieces["begin"],
            "cause": [str(CAUSES[code]) for code in pieces["cause"].tolist()],
            "detail": [str(DETAILS[code]) for code in pieces["detail"].tolist()],
            "barrier": _names(trace.waits["barrier"], pieces["wait"]),
            "slot": _column(trace.waits["slot"], pieces["wait"]),
            "phase": _column(trace.waits["phase"], pieces["wait"]),
            "track": track,
            "waiter": _names(trace.tracks["name"], track),
            "site": site,
            "source": [location.get(number, "") for number in site.tolist()],
            "root_track": pieces["root_track"],
            "root_barrier": _names(trace.waits["barrier"], pieces["root_wait"]),
            "root_site": pieces["root_site"],
            "root_source": [location.get(number, "") for number in pieces["root_site"].tolist()],
        },
        schema_overrides=dict.fromkeys(("cause", "detail", "source", "root_source"), pl.String()),
    )


def _column(series: pl.Series, rows: np.ndarray) -> np.ndarray:
    return np.append(series.to_numpy().astype(np.int64), NONE)[np.where(rows >= 0, rows, -1)]


def _names(series: pl.Series, rows: np.ndarray) -> pl.Series:
    return pl.concat([series.rechunk(), pl.Series([""], dtype=pl.String)]).gather(
        np.where(rows >= 0, rows, len(series))
    )


def _per_sm(mma: MmaActivity, window: Window) -> pl.DataFrame:
    busy = mma.in_flight()
    intervals = pl.DataFrame({"sm": busy.group, "begin": busy.begin, "end": busy.end})
    sums = intervals.group_by("sm").agg(
        first_use=pl.col("begin").min(),
        last_use=pl.col("end").max(),
        busy_cycles=(pl.col("end") - pl.col("begin")).sum(),
    )
    return sums.sort("sm").with_columns(
        bubble_cycles=pl.col("last_use") - pl.col("first_use") - pl.col("busy_cycles"),
        before_cycles=pl.col("first_use"),
        after_cycles=window.end - pl.col("last_use"),
    )


def _group(bubbles: pl.DataFrame, total_cycles: int) -> pl.DataFrame:
    """Groups bubbles by cause and place, with what removing a group could gain at most."""
    sums = to_polars(summarise(bubbles, _GROUP, "dur"))
    per_sm = to_polars(total_by(bubbles, [*_GROUP, "sm"], ["dur"]))
    worst = per_sm.group_by(_GROUP).agg(gain_bound_cycles=pl.col("dur").max())
    longest = bubbles.sort("dur", "sm", "begin", descending=[True, False, False]).unique(
        _GROUP, keep="first", maintain_order=True
    )
    example = longest.select(*_GROUP, example_sm="sm", example_begin="begin", example_dur="dur")
    shares = sums.with_columns(kernel_share=pl.col("total_cycles") / max(total_cycles, 1))
    return shares.join(worst, on=_GROUP, how="left", maintain_order="left").join(
        example, on=_GROUP, how="left", maintain_order="left"
    )
