"""When TMA stores were under way, from what warpgroups recorded: the activity of stores in a measured capture.

A warpgroup hands stores over in groups and waits for all groups but the newest few. Such a wait tells of every group
that it covers: if it blocked, the group ended with it; if not, the group was done when the wait began. So a store is
shown from its issue to the first wait that covers it, which is late rather than early. A wait until SMEM has been read
tells no more than that: the write to memory may go on behind it.

Which stores are a group is not recorded. Stores with no wait between them are one, until a place stores again: with
several groups in one such run, a wait that leaves some of them in flight may be taken to cover fewer than it does.
"""

from __future__ import annotations

import polars as pl

from mgpu.capture import CaptureHeader
from mgpu.sites import SiteKind
from profiler.measured_mma import covering_waits, of_site, with_covering_wait


def inferred_stores(tracks: pl.DataFrame, spans: pl.DataFrame, header: CaptureHeader) -> pl.DataFrame:
    """Returns rows for the `async_spans` table: one for each TMA store that was recorded, without id and lane."""
    kinds = [str(SiteKind.TMA_STORE), str(SiteKind.STORE_WAIT)]
    # With a track per warp, all four warps record the same stores and the first one counts.
    place = tracks.filter(pl.col("warp") <= 0).select("track", "sm", "cta", "warpgroup", track_end="end")
    rows = spans.filter(pl.col("kind").is_in(kinds)).join(place, on="track").sort("track", "begin", "span")
    is_store = pl.col("kind") == kinds[0]
    rows = rows.with_columns(run=(~is_store).cast(pl.Int64).cum_sum().over("track"))
    rows = rows.with_columns(turn=pl.int_range(pl.len()).over("track", "run", "site"))
    rows = rows.with_columns(turn=pl.when(is_store).then(pl.col("turn").cum_max().over("track", "run")))
    begins_group = is_store & (pl.struct("run", "turn") != pl.struct("run", "turn").shift().over("track")).fill_null(
        True
    )
    rows = rows.with_columns(issued=begins_group.cast(pl.Int64).cum_sum().over("track"))
    stores = with_covering_wait(rows.filter(is_store), covering_waits(rows, kinds[1], header))
    done = pl.when("blocked").then("woken").otherwise("asked")
    end = pl.max_horizontal(pl.col("begin") + 1, pl.coalesce(done, "track_end"))
    size_bytes = {site.id: site.size_bytes for site in header.sites}
    return stores.with_columns(
        unit=pl.lit("tma_store"),
        dur=end - pl.col("begin"),
        bytes=of_site(size_bytes, pl.Int64()),
        flops=pl.lit(0),
        provenance=pl.lit("inferred"),
    )
