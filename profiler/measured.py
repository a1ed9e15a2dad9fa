"""What a measured capture, which has no record of asynchronous units, still tells of arrivals and loads.

Arrive operations of warpgroups are "recorded". That a load landed shows only in the first wait for it: the data was
there when the wait ended, maybe earlier. Such arrivals and loads are marked "inferred"; their ends are upper bounds.
`profiler.measured_mma` does the same for the tensor core, `profiler.measured_stores` for TMA stores.

Arrivals are taken to be on a barrier of the CTA that made them; an arrive on another CTA of the cluster does not say
which one it meant.
"""

from __future__ import annotations

import polars as pl

from mgpu.capture import CaptureHeader
from mgpu.sites import SiteKind
from profiler.activity import finish_async_spans
from profiler.barriers import PHASE_KEYS, finish_arrivals, with_barrier
from profiler.event_tables import SiteColumns
from profiler.measured_mma import inferred_mma
from profiler.measured_stores import inferred_stores
from profiler.trace import ARRIVALS, ASYNC_SPANS


def measured_tables(
    header: CaptureHeader, tracks: pl.DataFrame, spans: pl.DataFrame, instants: pl.DataFrame, sites: SiteColumns
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the `arrivals` and `async_spans` tables of a launch of which only its warpgroups' events are known."""
    arrivals = _recorded_arrivals(header, tracks, spans, instants, sites)
    return arrivals, _inferred_async_spans(arrivals, tracks, spans, sites, header)


def _recorded_arrivals(
    header: CaptureHeader, tracks: pl.DataFrame, spans: pl.DataFrame, instants: pl.DataFrame, sites: SiteColumns
) -> pl.DataFrame:
    """Returns the `arrivals` table of a measured capture: recorded arrivals of warpgroups, inferred ones of loads."""
    num_arrivals = {barrier.name: barrier.num_arrivals for barrier in header.barriers}
    arrive = with_barrier(instants.filter(pl.col("kind") == str(SiteKind.BARRIER_ARRIVE)), sites, tracks)
    arrive = _while_complete(arrive, tracks)
    # The warps of a warpgroup arrive together, as one, when the last of them does.
    arrive = (
        arrive.group_by("cta", "sm", "warpgroup", "barrier", "slot", "phase", maintain_order=True)
        .agg(pl.col("track", "site", "instant").first(), pl.col("time").max())
        .sort("time", maintain_order=True)
    )
    ordinal = pl.int_range(pl.len()).over("cta", "barrier", "slot")
    expected = pl.col("barrier").replace_strict(num_arrivals, default=1, return_dtype=pl.Int64)
    arrive = arrive.with_columns(
        phase=ordinal // expected,
        completes=(ordinal + 1) % expected == 0,
        source=pl.format("WG{}", "warpgroup"),
        source_track="track",
        source_event="instant",
        provenance=pl.lit("recorded"),
    )
    loads = _inferred_landings(tracks, spans, sites, num_arrivals)
    columns = [name for name in ARRIVALS if name != "arrival"]
    rows = pl.concat([arrive.select(columns), loads.select(columns)], how="vertical_relaxed")
    return finish_arrivals(rows.sort("time", maintain_order=True))


def _while_complete(rows: pl.DataFrame, tracks: pl.DataFrame) -> pl.DataFrame:
    """Keeps what happened before any track of the CTA lost an event: counting phases needs every arrival."""
    cut = tracks.filter(pl.col("dropped") > 0).group_by("cta").agg(pl.col("last").min().alias("cut"))
    return rows.join(cut, on="cta", how="left", maintain_order="left").filter(
        pl.col("cut").is_null() | (pl.col("time") <= pl.col("cut"))
    )


def _inferred_landings(
    tracks: pl.DataFrame, spans: pl.DataFrame, sites: SiteColumns, num_arrivals: dict[str, int]
) -> pl.DataFrame:
    """Returns an arrival for each barrier phase that loads completed and that somebody waited for."""
    loads = _loads_by_phase(tracks, spans, sites, num_arrivals)
    loads = loads.group_by(PHASE_KEYS, maintain_order=True).agg(pl.col("track", "site", "sm").last())
    waits = with_barrier(spans.filter(pl.col("kind") == str(SiteKind.BARRIER_WAIT)), sites, tracks)
    seen = (
        waits.filter("closed")
        .group_by(PHASE_KEYS, maintain_order=True)
        .agg((pl.col("begin") + pl.col("dur")).min().alias("time"))
    )
    return loads.join(seen, on=PHASE_KEYS, maintain_order="left").with_columns(
        source=pl.lit("tma_load"),
        source_track="track",
        source_event=pl.lit(-1),
        completes=pl.lit(True),
        provenance=pl.lit("inferred"),
    )


def _loads_by_phase(
    tracks: pl.DataFrame, spans: pl.DataFrame, sites: SiteColumns, num_arrivals: dict[str, int]
) -> pl.DataFrame:
    """Returns the load spans with the phase of the barrier slot that each takes part in."""
    loads = with_barrier(spans.filter(pl.col("kind") == str(SiteKind.TMA_LOAD), pl.col("slot") >= 0), sites, tracks)
    expected = pl.col("barrier").replace_strict(num_arrivals, default=1, return_dtype=pl.Int64)
    # With a track per warp, all four warps record the same loads and the first one counts.
    loads = loads.filter(pl.col("warp") <= 0).sort("begin", maintain_order=True)
    return loads.with_columns(phase=pl.int_range(pl.len()).over("cta", "barrier", "slot") // expected)


def _inferred_async_spans(
    arrivals: pl.DataFrame, tracks: pl.DataFrame, spans: pl.DataFrame, sites: SiteColumns, header: CaptureHeader
) -> pl.DataFrame:
    """Returns the `async_spans` table of a measured capture: loads up to their arrival, others up to their end."""
    rows = (
        _inferred_loads(arrivals, tracks, spans, sites, header),
        inferred_mma(tracks, spans, header),
        inferred_stores(tracks, spans, header),
    )
    columns = [name for name in ASYNC_SPANS if name not in ("async_span", "lane")]
    return finish_async_spans(pl.concat([each.select(columns) for each in rows], how="vertical_relaxed"))


def _inferred_loads(
    arrivals: pl.DataFrame, tracks: pl.DataFrame, spans: pl.DataFrame, sites: SiteColumns, header: CaptureHeader
) -> pl.DataFrame:
    """Returns rows for the `async_spans` table, without id and lane: loads, from issue to the inferred arrival."""
    num_arrivals = {barrier.name: barrier.num_arrivals for barrier in header.barriers}
    size_bytes = {site.id: site.size_bytes for site in header.sites}
    landed = arrivals.filter(pl.col("provenance") == "inferred").select(*PHASE_KEYS, "time")
    loads = _loads_by_phase(tracks, spans, sites, num_arrivals)
    loads = loads.join(landed, on=PHASE_KEYS, maintain_order="left").filter(pl.col("time") >= pl.col("begin"))
    return loads.with_columns(
        unit=pl.lit("tma_load"),
        dur=pl.col("time") - pl.col("begin"),
        bytes=pl.col("site").replace_strict(size_bytes, default=0, return_dtype=pl.Int64),
        flops=pl.lit(0),
        provenance=pl.lit("inferred"),
    )
