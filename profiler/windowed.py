"""Captures of which only some iterations were recorded: which phase a wait was for, when those before are unknown.

The n-th recorded wait on a slot is then not the wait for phase n. But between two completions of a slot's phase
somebody must have waited for the first of them, so a wait was released by the last completion up to its end.

A stretch that was not recorded is a span of kind "not_recorded" on its track. Nothing is matched across one.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from mgpu.capture import CaptureHeader
from mgpu.sites import SiteKind
from profiler.reallocations import SLOT_KEYS


def is_windowed(header: CaptureHeader) -> bool:
    """True if only some iterations of the launch were recorded."""
    return any(site.kind is SiteKind.UNRECORDED for site in header.sites)


def gaps_before(spans: pl.DataFrame, track: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns how many unrecorded stretches of each track had begun at a time: int64[n].

    Args:
      spans: the `spans` table.
      track, time: int64[n], one row for each question.
    """
    gaps = spans.filter(pl.col("kind") == str(SiteKind.UNRECORDED)).select("track", "begin").sort("track", "begin")
    extent = 2 + max(int(gaps["begin"].max() or 0), int(time.max(initial=0)))  # pyright: ignore[reportArgumentType]
    begins = gaps["track"].cast(pl.Int64).to_numpy() * extent + gaps["begin"].to_numpy()
    first = np.searchsorted(begins, track.astype(np.int64) * extent)
    return np.searchsorted(begins, track.astype(np.int64) * extent + time, side="right") - first


def number_waits_by_time(waits: pl.DataFrame, arrivals: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Gives waits the phase of the last completion up to their end; -1 where that is not known.

    Waits for arrivals that are themselves inferred from waits keep their phase: loads and waits of one iteration are
    recorded both or neither.

    Args:
      waits: rows of the `spans` table with `cta` and `barrier`, in any order.
      arrivals: the `arrivals` table.
      spans: the `spans` table.
    """
    inferred = arrivals.filter(pl.col("provenance") == "inferred").select("barrier").unique()
    completing = arrivals.filter(pl.col("completes"), pl.col("provenance") != "inferred").select(
        *SLOT_KEYS, "time", "source_track", "provenance", pl.col("phase").alias("completed")
    )
    found = (
        waits.with_row_index("row")
        .with_columns(end=pl.col("begin") + pl.col("dur"))
        .sort("end")
        .join_asof(completing.sort("time"), left_on="end", right_on="time", by=list(SLOT_KEYS), check_sortedness=False)
        .sort("row")
    )
    source = found["source_track"].fill_null(-1).to_numpy()
    between = gaps_before(spans, source, found["end"].to_numpy()) - gaps_before(
        spans, source, found["time"].fill_null(0).to_numpy()
    )
    # A simulated capture lists all arrivals, those of unrecorded iterations too.
    is_known = (pl.col("provenance") == "simulated") | (pl.Series(between) == 0)
    phase = pl.when(is_known.fill_null(False)).then("completed").otherwise(-1).fill_null(-1)
    by_loads = pl.col("barrier").is_in(inferred["barrier"].implode())
    return found.with_columns(phase=pl.when(by_loads).then("phase").otherwise(phase)).select(waits.columns)
