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


def durations(tracks: Any, ctas: Any, defects: Any) -> Any:
    """How long each launch took and how many of its events were kept: the order of names is that of time.

    `recorded` is "part" if some CTAs, warpgroups or iterations were left out. A simulated launch lasts as long as all
    its CTAs all the same; of a measured one only the recorded tracks are known: it may have taken longer.
    """
    launch = ["kernel", "launch"]
    lazy = [nw.from_native(with_launch(table)).lazy() for table in (tracks, ctas, defects)]
    of_tracks = (
        lazy[0]
        .group_by(*launch)
        .agg(
            nw.col("end").max().alias("track_cycles"),
            nw.col("kept").sum().cast(nw.Int64).alias("events_kept"),
            nw.col("dropped").sum().cast(nw.Int64).alias("events_dropped"),
        )
    )
    of_ctas = lazy[1].group_by(*launch).agg(nw.col("end").max().alias("cta_cycles"))
    filtered = lazy[2].filter(nw.col("kind") == "filtered").group_by(*launch).agg(nw.col("count").sum().alias("notes"))
    joined = of_tracks.join(of_ctas, on=launch, how="left").join(filtered, on=launch, how="left")
    cycles = nw.when(nw.col("cta_cycles") > nw.col("track_cycles")).then(nw.col("cta_cycles"))
    return (
        joined.with_columns(
            launch_cycles=cycles.otherwise(nw.col("track_cycles")).cast(nw.Int64),
            recorded=nw.when(nw.col("notes") > 0).then(nw.lit("part")).otherwise(nw.lit("whole")),
            digits=nw.col("launch").str.len_chars(),  # launch 10000 comes after launch 9999
        )
        .sort("kernel", "digits", "launch")
        .select(*launch, "launch_cycles", "events_kept", "events_dropped", "recorded")
        .to_native()
    )


def kernel_durations(tracks: Any, ctas: Any, defects: Any) -> Any:
    """How long the launches of each kernel took: count, sum and quantiles."""
    return summarise(durations(tracks, ctas, defects), ["kernel", "recorded"], "launch_cycles")


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
