"""Where did every cycle of every track go?"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import Category
from profiler.analysis.leaves import Leaves, cut_into_leaves
from profiler.analysis.summaries import to_polars, total_by
from profiler.analysis.window import Window, known_window
from profiler.event_tables import SiteColumns
from profiler.trace import Trace

RECORDING = "recording"
_UNRECORDED = "unrecorded code"


@dataclasses.dataclass(frozen=True)
class CategoryReport:
    """Cycles per track and category; the four categories of a track sum to the window, to the cycle.

    Attributes:
      window: the analysed stretch.
      tracks: a row per track: `track, name, role, sm, cta`, then `busy_cycles`, `wait_cycles`, `overhead_cycles` (which
        contains `recording_cycles`: storing events), `idle_cycles` (before its start and after its exit).
      parts: cycles by `track, role, category, kind, barrier`: what the categories are made of.
      roles: cycles by `role` and category over all tracks, with the number of `tracks`.
    """

    window: Window
    tracks: pl.DataFrame
    parts: pl.DataFrame
    roles: pl.DataFrame

    def __post_init__(self) -> None:
        total = self.tracks.select(pl.sum_horizontal(f"{category}_cycles" for category in Category)).to_series()
        wrong = self.tracks.filter(total != self.window.end)
        assert wrong.is_empty(), f"categories of {wrong['name'].to_list()} do not sum to {self.window.end} cycles"

    @property
    def waits(self) -> pl.DataFrame:
        """The waiting part by `role, kind, barrier`, longest first."""
        waiting = self.parts.filter(pl.col("category") == str(Category.WAIT))
        grouped = waiting.group_by("role", "kind", "barrier").agg(pl.col("cycles").sum())
        return grouped.sort("cycles", "role", "kind", "barrier", descending=[True, False, False, False])

    def waiting_share(self, barrier: str) -> tuple[str, float]:
        """Returns who waits on a barrier most, and what part of that role's lifetime; ("", 0.0) if nobody waits."""
        rows = self.waits.filter(pl.col("barrier") == barrier).group_by("role").agg(pl.col("cycles").sum())
        if rows.is_empty():
            return "", 0.0
        role, cycles = rows.sort("cycles", "role", descending=[True, False]).row(0)
        alive = self.parts.filter((pl.col("role") == role) & (pl.col("category") != str(Category.IDLE)))["cycles"].sum()
        return role, cycles / max(int(alive), 1)


def time_by_category(trace: Trace) -> CategoryReport:
    """Splits every track's share of the launch into busy, wait, overhead and idle cycles.

    The innermost span decides. Code between recorded places, and in the user's own scopes, is busy: it does the role's
    work. Storing an event costs `header.record_cycles` after its time stamp and is taken out of whatever it fell into.
    """
    window = known_window(trace)
    leaves = cut_into_leaves(trace)
    parts = to_polars(total_by(_label(trace, leaves, window), ["track", "category", "kind", "barrier"], ["cycles"]))
    parts = parts.join(trace.tracks.select(pl.col("track").cast(pl.Int64), "role"), on="track", how="left")
    parts = parts.select("track", "role", "category", "kind", "barrier", "cycles")
    return CategoryReport(window, _per_track(trace, parts), parts, _per_role(trace, parts))


def _label(trace: Trace, leaves: Leaves, window: Window) -> pl.DataFrame:
    """Returns the cycles of each track in spans of each site, between spans, and outside its life; and in recording."""
    end = np.minimum(leaves.end, window.end)
    begin = np.minimum(leaves.begin, end)
    recording = np.minimum(leaves.recording, end - begin)
    sites = SiteColumns.of(trace.header)
    num_sites = len(sites.name)
    # Leaves are millions, tracks and sites are few: sums come before names. The states BETWEEN, BEFORE and AFTER
    # address the last places as negative indices.
    place = np.append(trace.spans["site"].to_numpy(), num_sites + np.array([2, 1, 0]))[leaves.span]
    width = num_sites + 3
    # Sums of cycles stay below 2**53, so the float64 that bincount adds in is exact.
    used = np.bincount(leaves.track * width + place, end - begin - recording, trace.tracks.height * width)
    stored = np.bincount(leaves.track, recording, trace.tracks.height)
    states = {
        "category": [str(Category.BUSY), str(Category.IDLE), str(Category.IDLE)],
        "kind": [_UNRECORDED, "before start", "after exit"],
        "barrier": [""] * 3,
    }
    columns = {"category": sites.category, "kind": sites.kind, "barrier": sites.barrier}
    track, place = np.divmod(np.flatnonzero(used), width)
    named = pl.DataFrame(
        {"track": track, "cycles": used[used != 0].astype(np.int64)}
        | {name: pl.concat([column, pl.Series(states[name])]).gather(place) for name, column in columns.items()}
    )
    recorded = pl.DataFrame({"track": np.flatnonzero(stored), "cycles": stored[stored != 0].astype(np.int64)})
    recorded = recorded.with_columns(
        category=pl.lit(str(Category.OVERHEAD)), kind=pl.lit(RECORDING), barrier=pl.lit("")
    )
    return pl.concat([named, recorded.select(named.columns)])


def _per_track(trace: Trace, parts: pl.DataFrame) -> pl.DataFrame:
    frame = trace.tracks.select(pl.col("track").cast(pl.Int64), "name", "role", "sm", "cta")
    conditions = {f"{category}_cycles": pl.col("category") == str(category) for category in Category}
    conditions["recording_cycles"] = pl.col("kind") == RECORDING
    sums = [pl.col("cycles").filter(condition).sum().alias(name) for name, condition in conditions.items()]
    return frame.join(parts.group_by("track").agg(sums), on="track", how="left").fill_null(0).sort("track")


def _per_role(trace: Trace, parts: pl.DataFrame) -> pl.DataFrame:
    counts = trace.tracks.group_by("role").agg(pl.len().cast(pl.Int64).alias("tracks"))
    sums = parts.group_by("role", "category").agg(pl.col("cycles").sum())
    return sums.join(counts, on="role", how="left").sort("role", "category")
