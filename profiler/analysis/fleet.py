"""Questions about many launches at once, asked of their Parquet tables wherever those are: Polars, DuckDB or Spark.

Every function takes tables as `profiler.engines` opens them (all launches one after another, with the `path` of the
file that a row is from) and returns a lazy table of the same engine: nothing is read before it is collected, and then
in pieces, so the tables may be larger than memory. Times are in cycles of each launch's own clock.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw

from profiler.analysis.summaries import summarise, total_by


def with_launch(table: Any) -> Any:
    """Replaces `path` (`.../matmul-0001/tables/waits.parquet`) by `launch` (`matmul-0001`) and `kernel` (`matmul`)."""
    folder = nw.col("path").str.replace_all(r"[/\\]tables[/\\][^/\\]*$", "")
    lazy = nw.from_native(table).lazy().with_columns(launch=folder.str.replace_all(r"^.*[/\\]", ""))
    return lazy.with_columns(kernel=nw.col("launch").str.replace_all(r"-[0-9]+$", "")).drop("path").to_native()


def durations(tracks: Any) -> Any:
    """How long each launch took and how many of its events were kept: the order of names is that of time."""
    return (
        nw.from_native(with_launch(tracks))
        .lazy()
        .group_by("kernel", "launch")
        .agg(
            nw.col("end").max().cast(nw.Int64).alias("launch_cycles"),
            nw.col("kept").sum().cast(nw.Int64).alias("events_kept"),
            nw.col("dropped").sum().cast(nw.Int64).alias("events_dropped"),
        )
        .with_columns(digits=nw.col("launch").str.len_chars())  # launch 10000 comes after launch 9999
        .sort("kernel", "digits", "launch")
        .drop("digits")
        .to_native()
    )


def kernel_durations(tracks: Any) -> Any:
    """How long the launches of each kernel took: count, sum and quantiles."""
    return summarise(durations(tracks), ["kernel"], "launch_cycles")


def waits_by_barrier(waits: Any) -> Any:
    """How long the roles of each kernel waited on which barrier, and for whom; blocked waits only."""
    blocked = nw.from_native(with_launch(waits)).lazy().filter(nw.col("blocked")).to_native()
    return summarise(blocked, ["kernel", "barrier", "role", "released_by_role"], "dur")


def time_by_category(spans: Any) -> Any:
    """What the recorded spans of each kernel were doing, each span without its children."""
    return total_by(with_launch(spans), ["kernel", "category"], ["self_dur"])


def bubbles_by_cause(bubbles: Any) -> Any:
    """Why the tensor cores of each kernel had nothing to do; `place` tells bubbles from fill, drain and tail."""
    return summarise(with_launch(bubbles), ["kernel", "place", "cause", "barrier", "root_barrier"], "dur")
