"""Arrivals on barriers, and the waits that they released.

A barrier's phase n completes when its arrivals and bytes of round n are all in; the n-th wait of a warpgroup on a slot
waits for phase n. So a wait and the arrival that released it meet on (CTA, barrier, slot, phase): an equality join,
which stays right when several phases complete close together.

A simulated capture lists every arrival; what can be known of a measured one is in `profiler.measured`.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from mgpu.capture import UNITS, Capture, CaptureHeader
from mgpu.sites import SiteKind
from profiler.event_tables import SiteColumns
from profiler.grouping import first_rows, with_shared_key
from profiler.reallocations import continue_phases, find_reallocations, number_waits
from profiler.trace import ARRIVALS, WAITS
from profiler.windowed import gaps_before, is_windowed, number_waits_by_time

PHASE_KEYS = ("cta", "barrier", "slot", "phase")


def simulated_arrivals(
    capture: Capture,
    time: np.ndarray,
    tracks: pl.DataFrame,
    async_spans: pl.DataFrame,
    instants: pl.DataFrame,
    spans: pl.DataFrame,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the `arrivals` table of a capture that lists every arrival, and `find_reallocations` of it.

    Args:
      capture: the raw record.
      time: int64[arrivals], cycles since the launch began.
      tracks, async_spans, instants, spans: tables of the trace.
    """
    rows = capture.arrivals
    barrier_names = {barrier.id: barrier.name for barrier in capture.header.barriers}
    sources = {-1 - i: unit for i, unit in enumerate(UNITS)}
    frame = pl.DataFrame(
        {
            "barrier": pl.Series(rows["barrier"].astype(np.int64)).replace_strict(
                barrier_names, default="?", return_dtype=pl.String
            ),
            "slot": rows["slot"].astype(np.int32),
            "phase": rows["phase"].astype(np.int64),
            "sm": rows["sm"].astype(np.int32),
            "cta": rows["cta"].astype(np.int32),
            "time": time,
            "unit": pl.Series(rows["source"].astype(np.int64)).replace_strict(
                sources, default="", return_dtype=pl.String
            ),
            "warpgroup": np.maximum(rows["source"], -1).astype(np.int32),
            "source_cta": rows["source_cta"].astype(np.int32),
            "site": rows["site"].astype(np.int32),
            "completes": rows["completes"],
            "provenance": pl.repeat(capture.header.provenance, len(rows), eager=True, dtype=pl.String),
        }
    ).sort("time", maintain_order=True)
    reallocations = find_reallocations(frame)
    frame = _add_issuer(continue_phases(frame, reallocations), async_spans)
    frame = _add_source_track(frame, tracks)
    return _add_source_event(frame.with_columns(_source_name()), tracks, instants, spans, capture.header), reallocations


def _add_issuer(frame: pl.DataFrame, async_spans: pl.DataFrame) -> pl.DataFrame:
    """Finds, for arrivals of a unit, the work that ended with the arrival, and which warpgroup issued it."""
    work = async_spans.select(
        "unit",
        "slot",
        "site",
        pl.col("cta").alias("source_cta"),
        (pl.col("begin") + pl.col("dur")).alias("time"),
        pl.col("warpgroup").alias("issuer"),
        pl.col("async_span").alias("source_event"),
    )
    # Work without a slot may have completed any slot; the exact one is preferred.
    keys = ["unit", "site", "source_cta", "time"]
    frame, work = with_shared_key([frame, work], [*keys, "slot"], "exact")
    frame, work = with_shared_key([frame, work], keys, "any")
    found = work.select("exact", "any", "slot", "issuer", "source_event")
    slotted = first_rows(found, "exact").drop("slot", "any")
    unslotted = first_rows(found.filter(pl.col("slot") < 0), "any").drop("slot", "exact")
    joined = frame.join(slotted, on="exact", how="left", maintain_order="left")
    if unslotted.height:
        joined = joined.join(unslotted, on="any", how="left", maintain_order="left", suffix="_any")
    else:
        joined = joined.with_columns(issuer_any="issuer", source_event_any="source_event")
    return joined.with_columns(
        warpgroup=pl.when(pl.col("unit") == "").then("warpgroup").otherwise(pl.coalesce("issuer", "issuer_any")),
        source_event=pl.coalesce("source_event", "source_event_any"),
    )


def _add_source_track(frame: pl.DataFrame, tracks: pl.DataFrame) -> pl.DataFrame:
    """Adds the track that arrived or issued the work; with a track per warp, the warpgroup's first."""
    first = tracks.group_by("cta", "warpgroup").agg(pl.col("track").min().alias("source_track"))
    first = first.rename({"cta": "source_cta"})
    return frame.join(first, on=["source_cta", "warpgroup"], how="left", maintain_order="left")


def _source_name() -> pl.Expr:
    warpgroup = pl.format("WG{}", "warpgroup")
    return pl.when(pl.col("unit") == "").then(warpgroup).otherwise("unit").alias("source")


def _add_source_event(
    frame: pl.DataFrame, tracks: pl.DataFrame, instants: pl.DataFrame, spans: pl.DataFrame, header: CaptureHeader
) -> pl.DataFrame:
    """Finds, for arrivals of a warpgroup, the recorded instant: the latest of its site and slot."""
    recorded = instants.filter(pl.col("kind") == str(SiteKind.BARRIER_ARRIVE)).select(
        pl.col("track").alias("source_track"), "site", "slot", "time", "instant", pl.col("time").alias("recorded_at")
    )
    joined = frame.join_asof(
        recorded.sort("time"),
        on="time",
        by=["source_track", "site", "slot"],
        strategy="backward",
        check_sortedness=False,
    ).join(tracks.select(pl.col("track").alias("source_track"), "last"), on="source_track", how="left")
    # After the last kept event of a full buffer, the latest instant would be one of an earlier phase.
    is_kept = (pl.col("unit") == "") & (pl.col("time") <= pl.col("last"))
    if is_windowed(header):  # after a stretch that was not recorded, likewise
        track = joined["source_track"].fill_null(-1).to_numpy()
        times = (joined["recorded_at"].fill_null(-1).to_numpy(), joined["time"].to_numpy())
        before, now = (gaps_before(spans, track, time) for time in times)
        is_kept &= pl.Series(before == now)
    return finish_arrivals(
        joined.sort("time", maintain_order=True).with_columns(
            source_event=pl.when(pl.col("unit") != "").then("source_event").when(is_kept).then("instant")
        )
    )


def finish_arrivals(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers the rows, already in time order, and gives them the columns and types of the `arrivals` table."""
    return frame.with_columns(
        pl.col("source_track").fill_null(-1), pl.col("source_event").fill_null(-1), arrival=pl.int_range(pl.len())
    ).select(pl.col(name).cast(dtype) for name, dtype in ARRIVALS.items())


def with_barrier(rows: pl.DataFrame, sites: SiteColumns, tracks: pl.DataFrame) -> pl.DataFrame:
    """Adds the barrier's name and the place of the track to rows of the span or instant table."""
    barrier = sites.barrier.gather(rows["site"]) if rows.height else pl.Series([], dtype=pl.String)
    # A track's number is its row.
    place = [tracks[name].gather(rows["track"]) for name in ("sm", "cta", "warpgroup", "warp", "role")]
    return rows.with_columns(barrier.alias("barrier"), *place)


def waits_table(
    spans: pl.DataFrame,
    arrivals: pl.DataFrame,
    tracks: pl.DataFrame,
    sites: SiteColumns,
    reallocations: pl.DataFrame | None = None,
    header: CaptureHeader | None = None,
) -> pl.DataFrame:
    """Returns the `waits` table: every barrier wait with the arrival that completed the phase it waited for.

    Args:
      spans, arrivals, tracks: tables of the trace.
      sites: the launch's sites.
      reallocations: `find_reallocations` of the arrivals, if they are all known.
      header: the capture's; says whether only some iterations were recorded.

    Where that arrival is not known, or known only from the wait itself, a wait counts as blocked if it took more than
    twice as long as the shortest wait of the launch, which is what a wait costs when its phase is already complete.
    """
    waits = with_barrier(spans.filter(pl.col("kind") == str(SiteKind.BARRIER_WAIT)), sites, tracks)
    if header is not None and is_windowed(header):
        waits = number_waits_by_time(waits, arrivals, spans)
    elif reallocations is not None:
        waits = number_waits(waits, reallocations)
    waits, completing = with_shared_key([waits, arrivals.filter("completes")], PHASE_KEYS)
    completing = first_rows(completing, "key").select(
        "key",
        "arrival",
        pl.col("time").alias("released_at"),
        pl.col("source").alias("released_by"),
        "source_track",
        "provenance",
    )
    roles = tracks.select(pl.col("track").alias("source_track"), pl.col("role").alias("source_role"))
    joined = waits.join(completing, on="key", how="left", maintain_order="left").join(
        roles, on="source_track", how="left", maintain_order="left"
    )
    is_exact = pl.col("provenance").is_not_null() & (pl.col("provenance") != "inferred")
    looks_blocked = (pl.col("dur") > 2 * pl.col("dur").filter("closed").min()) & (
        pl.col("released_at").is_null() | (pl.col("released_at") > pl.col("begin"))
    )
    from_warpgroup = pl.col("released_by").str.starts_with("WG")
    return joined.with_columns(
        blocked=pl.when(is_exact).then(pl.col("released_at") > pl.col("begin")).otherwise(looks_blocked),
        arrival=pl.col("arrival").fill_null(-1),
        released_at=pl.col("released_at").fill_null(-1),
        released_by=pl.col("released_by").fill_null(""),
        released_by_role=pl.when(from_warpgroup).then("source_role").otherwise("released_by").fill_null(""),
    ).select(pl.col(name).cast(dtype) for name, dtype in WAITS.items())
