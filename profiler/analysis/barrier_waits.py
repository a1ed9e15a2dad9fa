"""Which barrier did whom wait for, how long, who released it, and what had that one been doing?"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import Category
from profiler.analysis.leaves import BETWEEN, Leaves, cut_into_leaves
from profiler.analysis.mma_activity import find_mma_activity
from profiler.analysis.summaries import summarise, to_polars, total_by
from profiler.analysis.wait_causes import UNKNOWN, WaitCauses, find_wait_causes
from profiler.analysis.window import Window, known_window
from profiler.event_tables import SiteColumns
from profiler.grouping import combined_key, stable_order
from profiler.trace import Trace

_UNKNOWN_RELEASER = "unknown"


@dataclasses.dataclass(frozen=True)
class BarrierWaitReport:
    """Waits for barriers. "Blocked" cycles are those of waits that began before their phase was complete.

    Attributes:
      window: the analysed stretch; waits that end after it are left out.
      waits: a row per wait: the columns of `Trace.waits`, `blocked_cycles`, `uncovered_cycles` (blocked while the
        SM's tensor core had nothing in flight), `releaser` (role or unit), `load_issued`, `load_cycles`, `had_been`
        (what the releaser, or the issuer of the releasing load, had been doing until then), `had_been_source`
        (file:line).
      barriers: per `barrier, role` (of the waiter): `waits, blocked, blocked_cycles, uncovered_cycles`, and of the
        blocked waits `p50_cycles, p95_cycles, max_cycles`; `released_by`: the releaser of most blocked cycles.
        Longest first.
      slots: the same sums per `barrier, slot, role`.
      releasers: per `barrier, role, releaser, had_been, had_been_source`: `count, total_cycles, p50_cycles, ...` of
        blocked waits.
      matrix: per `role` (waiter) and `releaser`: `blocked_cycles, uncovered_cycles`.
    """

    window: Window
    waits: pl.DataFrame
    barriers: pl.DataFrame
    slots: pl.DataFrame
    releasers: pl.DataFrame
    matrix: pl.DataFrame


def find_barrier_waits(trace: Trace) -> BarrierWaitReport:
    """Summarises all waits for barriers inside the window, and blames the releasers."""
    window = known_window(trace)
    waits = _with_blame(trace, window).filter(pl.col("begin") + pl.col("dur") <= window.end)
    blocked = waits.filter(pl.col("blocked"))
    releasers = to_polars(
        summarise(blocked, ["barrier", "role", "releaser", "had_been", "had_been_source"], "blocked_cycles")
    )
    sums = ["blocked_cycles", "uncovered_cycles"]
    return BarrierWaitReport(
        window,
        waits,
        _per_barrier(waits, blocked, ["barrier", "role"]),
        _per_barrier(waits, blocked, ["barrier", "slot", "role"]),
        releasers,
        to_polars(total_by(waits, ["role", "releaser"], sums)),
    )


def _with_blame(trace: Trace, window: Window) -> pl.DataFrame:
    leaves = cut_into_leaves(trace)
    causes = find_wait_causes(trace)
    waits = trace.waits
    begin = waits["begin"].to_numpy().astype(np.int64)
    dur = waits["dur"].to_numpy().astype(np.int64)
    blocked = waits["blocked"].to_numpy()
    in_flight = find_mma_activity(trace, window).in_flight()
    covered = in_flight.covered(waits["sm"].to_numpy().astype(np.int64), begin, begin + dur)
    had_been, site = _releasers_activity(trace, leaves, causes)
    location = [""] * (2 + max((place.id for place in trace.header.sites), default=-1))
    for place in trace.header.sites:
        location[place.id] = place.location
    return waits.with_columns(
        blocked_cycles=pl.Series(np.where(blocked, dur, 0), dtype=pl.Int64),
        uncovered_cycles=pl.Series(np.where(blocked, dur - covered, 0), dtype=pl.Int64),
        releaser=pl.when(pl.col("released_by_role") != "")
        .then(pl.col("released_by_role"))
        .otherwise(pl.Series(np.where(causes.waits_for_data, "tma_load", _UNKNOWN_RELEASER), dtype=pl.String)),
        load_issued=pl.Series(causes.load_issued),
        load_cycles=pl.Series(causes.load_cycles),
        had_been=had_been,
        had_been_source=pl.Series(location, dtype=pl.String).gather(np.where(site >= 0, site, len(location) - 1)),
    )


def _releasers_activity(trace: Trace, leaves: Leaves, causes: WaitCauses) -> tuple[pl.Series, np.ndarray]:
    """Says for each wait what the releaser did while it was waited for: text, and the site (-1 if none).

    Its moment is the arrival, or, if a TMA load released the wait, the issue of that load. A load that was issued
    before the wait began explains the wait by itself. Else the releaser's longest leaf between the wait's begin and
    that moment.
    """
    waits = trace.waits
    begin = waits["begin"].to_numpy().astype(np.int64)
    arrival = waits["arrival"].to_numpy()
    source = np.append(trace.arrivals["source_track"].to_numpy().astype(np.int64), UNKNOWN)[
        np.where(arrival >= 0, arrival, -1)
    ]
    by_load = causes.waits_for_data & (causes.load_issued != UNKNOWN)
    track = np.where(by_load, causes.issuer, source)
    moment = np.where(by_load, causes.load_issued, waits["released_at"].to_numpy())
    span = _longest_leaf(leaves, track, begin, moment)
    sites = trace.spans["site"].to_numpy().astype(np.int64)
    site = np.where(span >= 0, np.append(sites, UNKNOWN)[np.maximum(span, -1)], UNKNOWN)
    in_flight = by_load & (moment <= begin)
    site[in_flight] = causes.load_site[in_flight]
    phrases = [*_phrases_of_sites(trace), "busy", "not running", "load in flight", "load queued", _UNKNOWN_RELEASER]
    busy, not_running, flying, queued, unknown = range(len(phrases) - 5, len(phrases))
    phrase = np.where(
        span >= 0, np.append(sites, 0)[np.maximum(span, -1)], np.where(span == BETWEEN, busy, not_running)
    )
    phrase = np.where(in_flight, np.where(causes.queued, queued, flying), phrase)
    is_unknown = (track == UNKNOWN) & ~in_flight
    site[is_unknown] = UNKNOWN
    phrase[is_unknown] = unknown
    return pl.Series(phrases, dtype=pl.String).gather(phrase), site


def _phrases_of_sites(trace: Trace) -> list[str]:
    """Returns for each site, by its id, what a track in it was doing."""
    sites = SiteColumns.of(trace.header)
    verb = {str(Category.WAIT): "waiting in", str(Category.IDLE): "in iterations that were"}
    return [
        f"{verb.get(category, 'busy in')} {name}"
        for name, category in zip(sites.name.to_list(), sites.category.to_list(), strict=True)
    ]


def _longest_leaf(leaves: Leaves, track: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Returns the span of each track's longest leaf within [begin, end), or at `end` if that is empty."""
    track = np.maximum(track, 0)
    end = np.maximum(end, begin + 1)
    first = leaves.find(track, begin)
    count = leaves.find(track, end - 1) - first + 1
    query = np.repeat(np.arange(len(track)), count)
    starts = np.cumsum(count) - count
    leaf = np.arange(len(query)) - np.repeat(starts, count) + first[query]
    length = np.minimum(leaves.end[leaf], end[query]) - np.maximum(leaves.begin[leaf], begin[query])
    order = stable_order(combined_key([query, -length, -leaf]))
    return leaves.span[leaf[order[starts]]] if len(track) else np.zeros(0, np.int64)


def _per_barrier(waits: pl.DataFrame, blocked: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    counted = waits.with_columns(one=pl.lit(1, pl.Int64), is_blocked=pl.col("blocked").cast(pl.Int64))
    sums = to_polars(total_by(counted, keys, ["one", "is_blocked", "blocked_cycles", "uncovered_cycles"]))
    sums = sums.rename({"one": "waits", "is_blocked": "blocked"})
    quantiles = to_polars(summarise(blocked, keys, "blocked_cycles")).drop("count", "total_cycles")
    by_releaser = to_polars(summarise(waits, [*keys, "releaser"], "blocked_cycles")).unique(
        keys, keep="first", maintain_order=True
    )
    joined = sums.join(quantiles, on=keys, how="left").join(
        by_releaser.select(*keys, pl.col("releaser").alias("released_by")), on=keys, how="left"
    )
    joined = joined.with_columns(pl.col("p50_cycles", "p95_cycles", "max_cycles").fill_null(0))
    return joined.sort("blocked_cycles", *keys, descending=[True] + [False] * len(keys))
