"""When MMA groups ran, from what warpgroups recorded: the tensor core's activity in a measured capture.

The tensor core of an SM works its groups off in the order of issue, none faster than its rate, and a wait that leaves
`n` groups in flight ends when all older ones have. So a group begins with its issue or when those before it are done,
and ends

- with the first wait that covers it, if that wait blocked: the group's end is what woke the warpgroup;
- else where the rate puts its end behind the groups before it, at the latest with that wait.
"""

from __future__ import annotations

import polars as pl

from mgpu.capture import CaptureHeader
from mgpu.sites import SiteKind
from profiler.tensor_rate import tensor_rates

# What a wait takes that finds its groups done, beside the recording of its begin.
_UNBLOCKED_CYCLES = 16


def inferred_mma(tracks: pl.DataFrame, spans: pl.DataFrame, header: CaptureHeader) -> pl.DataFrame:
    """Returns rows for the `async_spans` table: one for each MMA issue that was recorded, without id and lane."""
    kinds = [str(SiteKind.MMA_ISSUE), str(SiteKind.MMA_WAIT)]
    # With a track per warp, all four warps record the same MMAs and the first one counts.
    place = tracks.filter(pl.col("warp") <= 0).select("track", "sm", "cta", "warpgroup", track_end="end")
    rows = spans.filter(pl.col("kind").is_in(kinds)).join(place, on="track").sort("track", "begin", "span")
    rows = rows.with_columns(issued=(pl.col("kind") == kinds[0]).cast(pl.Int64).cum_sum().over("track"))
    groups = with_covering_wait(rows.filter(pl.col("kind") == kinds[0]), covering_waits(rows, kinds[1], header))
    flops = {site.id: site.flops for site in header.sites}
    groups = _with_end(groups.with_columns(flops=of_site(flops, pl.Int64())), header)
    done_before = pl.col("end").cum_max().shift(1).over("sm").fill_null(0)
    begin = pl.max_horizontal("begin", pl.min_horizontal(pl.col("end") - 1, done_before))
    return groups.with_columns(
        unit=pl.lit("tensor_core"),
        begin=begin,
        dur=pl.col("end") - begin,
        bytes=pl.lit(0),
        provenance=pl.lit("inferred"),
    )


def of_site(values: dict[int, int] | dict[int, float], dtype: pl.DataType) -> pl.Expr:
    """Returns the value of each row's `site`, 0 if there is none."""
    return pl.col("site").cast(pl.Int64).replace_strict(values, default=0, return_dtype=dtype)


def covering_waits(rows: pl.DataFrame, kind: str, header: CaptureHeader) -> pl.DataFrame:
    """Returns the waits that complete more groups of their track than those before them.

    Args:
      rows: issues and waits, with `issued`: the groups that the track has issued by then.
      kind: of the waits among them.
      header: of the capture.

    Returns:
      `track`, `done` (groups that it completes), `asked`, `woken` (its begin and end), `blocked`.
    """
    left = {site.id: site.in_flight for site in header.sites}
    waits = rows.filter(pl.col("kind") == kind, "closed").with_columns(
        done=(pl.col("issued") - of_site(left, pl.Int64())).cum_max().over("track"),
        asked="begin",
        woken=pl.col("begin") + pl.col("dur"),
        blocked=pl.col("dur") > header.record_cycles + _UNBLOCKED_CYCLES,
    )
    return waits.unique(["track", "done"], keep="first", maintain_order=True).select(
        "track", "done", "asked", "woken", "blocked"
    )


def with_covering_wait(groups: pl.DataFrame, waits: pl.DataFrame) -> pl.DataFrame:
    """Adds `asked`, `woken` and `blocked` of the first wait that covers each group, null where there is none."""
    return groups.sort("issued").join_asof(
        waits.sort("done"), left_on="issued", right_on="done", by="track", strategy="forward", check_sortedness=False
    )


def _with_end(groups: pl.DataFrame, header: CaptureHeader) -> pl.DataFrame:
    """Adds `end`; sorts by SM and issue."""
    groups = groups.sort("sm", "begin")
    latest = pl.coalesce("woken", "track_end")
    rates = tensor_rates(header)
    if not rates:
        return groups.with_columns(end=pl.max_horizontal(pl.col("begin") + 1, latest))
    # A group ends `cycles` after its issue or after the end of the one before it on its SM: a running maximum of what
    # is known of the ends, less the work done by then.
    groups = groups.with_columns(
        cycles=(pl.col("flops") / of_site(rates, pl.Float64())).fill_nan(0.0).ceil().cast(pl.Int64),
        seen=pl.when("blocked").then("woken"),
    )
    worked = pl.col("cycles").cum_sum().over("sm")
    known = pl.max_horizontal(pl.col("begin") + pl.col("cycles"), "seen")
    by_rate = (known - worked).cum_max().over("sm") + worked
    end = pl.coalesce("seen", pl.min_horizontal(by_rate, latest))
    return groups.with_columns(end=pl.max_horizontal(pl.col("begin") + 1, end))
