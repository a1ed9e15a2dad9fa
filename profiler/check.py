"""Checks a Trace against what must hold for any timeline, whatever made it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import polars as pl

from profiler.trace import SCHEMAS, Trace

_ID_COLUMNS = {
    "tracks": "track",
    "spans": "span",
    "instants": "instant",
    "async_spans": "async_span",
    "arrivals": "arrival",
}


def check_trace(trace: Trace) -> list[str]:
    """Returns every rule that a trace breaks, with an example row; empty for a sound one.

    Rules: tables have their columns, ids are row numbers, spans lie inside their parents and tracks and do not overlap
    their siblings, own times and gaps sum to the track's lifetime, lanes do not overlap, arrivals come from existing
    tracks, a blocked wait ends at or after the arrival that released it.
    """
    violations = list(_check_schemas(trace))
    if violations:
        return violations
    checks = (_check_ids, _check_nesting, _check_lifetimes, _check_lanes, _check_arrivals, _check_waits)
    return [violation for check in checks for violation in check(trace)]


def _example(rule: str, table: pl.DataFrame) -> Iterator[str]:
    """Yields one message if `table`, the rows that break a rule, is not empty."""
    if table.height:
        yield f"{rule}: {table.height} rows, such as {table.row(0, named=True)}"


def _check_schemas(trace: Trace) -> Iterator[str]:
    for name, schema in SCHEMAS.items():
        found = dict(trace.table(name).schema)
        if found != dict(schema):
            yield f"table {name} has columns {found}, expected {dict(schema)}"


def _check_ids(trace: Trace) -> Iterator[str]:
    for name, column in _ID_COLUMNS.items():
        table = trace.table(name)
        yield from _example(f"{name}: ids are row numbers", table.filter(pl.col(column) != pl.int_range(pl.len())))


def _check_nesting(trace: Trace) -> Iterator[str]:
    spans = trace.spans.with_columns(end=pl.col("begin") + pl.col("dur"))
    yield from _example("spans last at least 0 cycles", spans.filter((pl.col("dur") < 0) | (pl.col("self_dur") < 0)))
    outer = spans.select(parent="span", outer_track="track", outer_depth="depth", outer_begin="begin", outer_end="end")
    inner = spans.filter(pl.col("parent") >= 0).join(outer, on="parent", how="left")
    is_inside = (
        (pl.col("track") == pl.col("outer_track"))
        & (pl.col("depth") == pl.col("outer_depth") + 1)
        & (pl.col("begin") >= pl.col("outer_begin"))
        & (pl.col("end") <= pl.col("outer_end"))
    )
    yield from _example("spans lie inside their parents", inner.filter(~is_inside.fill_null(False)))
    before = pl.col("end").shift().over("track", "parent")
    yield from _example(
        "sibling spans do not overlap", spans.with_columns(before=before).filter(pl.col("begin") < pl.col("before"))
    )
    roots = spans.filter((pl.col("parent") < 0) != (pl.col("depth") == 0))
    yield from _example("spans without a parent have depth 0", roots)


def _check_lifetimes(trace: Trace) -> Iterator[str]:
    """Own times of all spans plus the gaps between outermost spans are the lifetime, to the cycle."""
    spans = trace.spans.with_columns(end=pl.col("begin") + pl.col("dur"))
    outermost = spans.filter(pl.col("depth") == 0).sort("track", "begin", maintain_order=True)
    lifetimes = trace.tracks.select("track", track_begin="begin", track_end="end")
    outermost = outermost.join(lifetimes, on="track", how="left", maintain_order="left")
    before = pl.coalesce(pl.col("end").shift().over("track"), "track_begin")
    gaps = outermost.with_columns(gap=pl.col("begin") - before)
    used = spans.group_by("track").agg(own=pl.col("self_dur").sum())
    totals = gaps.group_by("track").agg(
        gaps=pl.col("gap").sum() + (pl.col("track_end") - pl.col("end")).last(),
        smallest_gap=pl.min_horizontal(pl.col("gap").min(), (pl.col("track_end") - pl.col("end")).last()),
        lifetime=(pl.col("track_end") - pl.col("track_begin")).first(),
    )
    totals = totals.join(used, on="track").sort("track")
    unequal = pl.col("own") + pl.col("gaps") != pl.col("lifetime")
    yield from _example("own times and gaps sum to the lifetime", totals.filter(unequal))
    yield from _example("spans lie inside their track's lifetime", totals.filter(pl.col("smallest_gap") < 0))


def _check_lanes(trace: Trace) -> Iterator[str]:
    lane = ["unit", "sm", "lane"]
    spans = trace.async_spans.with_columns(end=pl.col("begin") + pl.col("dur")).sort(*lane, "begin", "end")
    overlap = spans.with_columns(before=pl.col("end").shift().over(lane)).filter(pl.col("begin") < pl.col("before"))
    yield from _example("spans of one lane do not overlap", overlap)


def _check_arrivals(trace: Trace) -> Iterator[str]:
    bad = ~pl.col("source_track").is_between(-1, trace.tracks.height - 1)
    yield from _example("arrivals come from existing tracks", trace.arrivals.filter(bad))
    backward = np.flatnonzero(np.diff(trace.arrivals["time"].to_numpy()) < 0)
    yield from _example("arrivals are in time order", trace.arrivals[backward])


def _check_waits(trace: Trace) -> Iterator[str]:
    waits = trace.waits.filter(pl.col("blocked"), pl.col("arrival") >= 0)
    waits = waits.join(trace.spans.filter("closed").select("span"), on="span", how="semi")  # others end at a guess
    early = waits.filter(pl.col("begin") + pl.col("dur") < pl.col("released_at"))
    yield from _example("a wait ends at or after the arrival that released it", early)
    unknown = ~pl.col("arrival").is_between(-1, trace.arrivals.height - 1)
    yield from _example("waits name existing arrivals", trace.waits.filter(unknown))
