"""Arrivals on barriers, and the waits that they released.

A barrier's phase n completes when its arrivals and bytes of round n are all in; the n-th wait of a warpgroup on a slot
waits for phase n. So a wait and the arrival that released it meet on (CTA, barrier, slot, phase): an equality join,
which stays right when several phases complete close together.

A simulated capture lists every arrival (`profiler.simulated_arrivals`); what can be known of a measured one is in
`profiler.measured`.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from mgpu.capture import CaptureHeader
from mgpu.sites import SiteKind
from profiler.event_tables import SiteColumns, rows_of_kind
from profiler.grouping import first_match, with_shared_key
from profiler.reallocations import number_waits
from profiler.trace import ARRIVALS, WAITS
from profiler.windowed import is_windowed, number_waits_by_time

LONGEST_UNBLOCKED_CYCLES = 100
"""A try_wait that finds its phase complete takes some 20 cycles, and recording its two ends the rest at most."""

PHASE_KEYS = ("cta", "barrier", "slot", "phase")


def finish_arrivals(frame: pl.DataFrame) -> pl.DataFrame:
    """Numbers the rows, already in time order, and gives them the columns and types of the `arrivals` table."""
    return frame.with_columns(
        pl.col("source_track").fill_null(-1), pl.col("source_event").fill_null(-1), arrival=pl.int_range(pl.len())
    ).select(pl.col(name).cast(dtype) for name, dtype in ARRIVALS.items())


def take_or(values: np.ndarray, rows: np.ndarray, default: int | bool) -> np.ndarray:
    """Returns `values[rows]`, and `default` where the row is -1."""
    return np.append(values, np.array(default, values.dtype))[rows]


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
    twice as long as the shortest wait of the launch, which is what a wait costs when its phase is already complete; or
    than twice `LONGEST_UNBLOCKED_CYCLES`, for every wait of a launch may have blocked.
    """
    waits = with_barrier(rows_of_kind(spans, sites, SiteKind.BARRIER_WAIT), sites, tracks)
    if header is not None and is_windowed(header):
        waits = number_waits_by_time(waits, arrivals, spans)
    elif reallocations is not None:
        waits = number_waits(waits, reallocations)
    arrival = _completing_arrivals(waits, arrivals)
    source, source_role = _sources(arrivals, tracks)
    released_at = take_or(arrivals["time"].to_numpy(), arrival, -1)
    is_exact = take_or((arrivals["provenance"] != "inferred").to_numpy(), arrival, False)
    begin, dur = waits["begin"].to_numpy(), waits["dur"].to_numpy()
    shortest = int(dur[waits["closed"].to_numpy()].min(initial=LONGEST_UNBLOCKED_CYCLES))
    looks_blocked = (dur > 2 * shortest) & ((arrival < 0) | (released_at > begin))
    found = {
        "blocked": np.where(is_exact, released_at > begin, looks_blocked),
        "arrival": arrival,
        "released_at": released_at,
        "released_by": source.gather(arrival),
        "released_by_role": source_role.gather(arrival),
    }
    columns = {name: found[name] if name in found else waits[name] for name in WAITS}
    return pl.DataFrame(columns, schema=dict(WAITS))


def _completing_arrivals(waits: pl.DataFrame, arrivals: pl.DataFrame) -> np.ndarray:
    """Returns the arrival that completed the phase of each wait, -1 if none is known: int64."""
    completing = np.flatnonzero(arrivals["completes"].to_numpy())
    keyed = with_shared_key(
        [waits.select(PHASE_KEYS), arrivals.select(PHASE_KEYS)[completing]],
        PHASE_KEYS,
    )
    found = first_match(*(frame["key"].to_numpy() for frame in keyed))
    return take_or(completing, found, -1)


def _sources(arrivals: pl.DataFrame, tracks: pl.DataFrame) -> tuple[pl.Series, pl.Series]:
    """Returns who made each arrival, and its role (a unit's is its name); both end with "", which -1 addresses."""
    nobody = pl.Series([""], dtype=pl.String)
    source = pl.concat([arrivals["source"].rechunk(), nobody])
    role = pl.concat([tracks["role"].rechunk(), nobody]).gather(arrivals["source_track"])
    of_unit = ~arrivals["source"].str.starts_with("WG")
    return source, pl.concat([arrivals["source"].zip_with(of_unit, role), nobody])
