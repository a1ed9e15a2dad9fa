"""The arrivals of a capture that lists every one of them, each with the event behind it.

A warpgroup's arrival belongs to the arrive instant that its track recorded; a unit's to the piece of work that ended
with it. There may be millions, so all columns stay integers until the table is made.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import polars as pl

from mgpu.capture import UNITS, Capture, CaptureHeader
from mgpu.sites import SiteKind
from profiler.barriers import take_or
from profiler.grouping import combined_key, first_match, last_not_after, stable_order
from profiler.reallocations import continue_phases, find_reallocations
from profiler.trace import ARRIVALS
from profiler.windowed import gaps_before, is_windowed

_Columns = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ListedArrivals:
    """The arrivals of a capture in time order, and what can be said of them before any event is decoded.

    Attributes:
      rows: the columns of `ARRIVAL_DTYPE`; `time` in cycles since the launch began.
      barrier: rows of `barrier_names`.
      barrier_names: every barrier's name.
      phase: as the table counts them, going on over reallocations.
      reallocations: `find_reallocations` of the arrivals.
      work: async span that ended with the arrival of a unit, -1 for others.
    """

    rows: Mapping[str, np.ndarray]
    barrier: np.ndarray
    barrier_names: pl.Series
    phase: pl.Series
    reallocations: pl.DataFrame
    work: np.ndarray


def list_arrivals(capture: Capture, time: np.ndarray, async_spans: pl.DataFrame) -> ListedArrivals:
    """Sorts the arrivals of a capture that lists them all, and finds the work of the units behind theirs.

    Args:
      capture: the raw record.
      time: int64[arrivals], cycles since the launch began.
      async_spans: table of the trace.
    """
    order = stable_order(time)
    ordered = capture.arrivals[order]
    rows = {name: ordered[name] for name in ordered.dtype.names or ()}
    rows |= {name: rows[name].astype(np.int32) for name in ("sm", "cta", "slot", "site")}
    rows |= {"time": time[order], "source": rows["source"].astype(np.int32)}
    barrier, barrier_names = _barriers(capture.header, rows["barrier"])
    counted = pl.DataFrame(
        {"barrier": barrier, "phase": rows["phase"].astype(np.int64)}
        | {name: rows[name] for name in ("cta", "slot", "completes", "time")}
    )
    reallocations = find_reallocations(counted)
    phase = continue_phases(counted, reallocations)["phase"]
    names = barrier_names.gather(reallocations["barrier"]).alias("barrier")
    work = _work_behind(rows, async_spans)
    return ListedArrivals(rows, barrier, barrier_names, phase, reallocations.with_columns(names), work)


def simulated_arrivals(
    header: CaptureHeader,
    listed: ListedArrivals,
    tracks: pl.DataFrame,
    async_spans: pl.DataFrame,
    instants: pl.DataFrame,
    spans: pl.DataFrame,
) -> pl.DataFrame:
    """Returns the `arrivals` table of a capture that lists every arrival.

    Args:
      header: of the capture.
      listed: its arrivals.
      tracks, async_spans, instants, spans: tables of the trace.
    """
    rows, work = listed.rows, listed.work
    source = rows["source"]
    warpgroup = np.where(source < 0, take_or(async_spans["warpgroup"].to_numpy(), work, -1), source)
    source_track = _source_tracks(rows, warpgroup, tracks)
    instant = _instant_behind(rows, source_track, tracks, instants, spans, header)
    num_warpgroups = 1 + int(source.max(initial=0))
    source_names = pl.Series([*UNITS, *(f"WG{number}" for number in range(num_warpgroups))], dtype=pl.String)
    return pl.DataFrame(
        {
            "arrival": np.arange(len(source)),
            "barrier": listed.barrier_names.gather(listed.barrier),
            "slot": rows["slot"],
            "phase": listed.phase,
            "sm": rows["sm"],
            "cta": rows["cta"],
            "time": rows["time"],
            "source": source_names.gather(np.where(source < 0, -1 - source, source + len(UNITS))),
            "source_track": source_track.astype(np.int32),
            "site": rows["site"],
            "completes": rows["completes"],
            "source_event": np.where(source < 0, work, instant),
            "provenance": pl.repeat(header.provenance, len(source), eager=True, dtype=pl.String),
        },
        schema=dict(ARRIVALS),
    )


def _barriers(header: CaptureHeader, number: np.ndarray) -> tuple[np.ndarray, pl.Series]:
    """Returns a code for the barrier of each arrival, and the names that the codes stand for; "?" if unlisted."""
    names = {barrier.id: barrier.name for barrier in header.barriers}
    unlisted = 1 + max(names, default=-1)
    code = np.minimum(number.astype(np.int32), unlisted)
    # Barriers of one name are one to everybody who reads the table.
    listed = [names.get(one, "?") for one in range(unlisted)] + ["?"]
    distinct = list(dict.fromkeys(listed))
    return np.array([distinct.index(name) for name in listed], np.int32)[code], pl.Series(distinct, dtype=pl.String)


def _work_behind(rows: _Columns, async_spans: pl.DataFrame) -> np.ndarray:
    """Returns the async span that ended with each arrival of a unit, -1 for others: int64.

    Work without a slot may have completed any slot; work on the very slot is preferred.
    """
    source = rows["source"]
    arrived = np.flatnonzero(source < 0)
    ended = async_spans["begin"].to_numpy() + async_spans["dur"].to_numpy()
    unit = async_spans["unit"].cast(pl.Enum(UNITS)).to_physical().to_numpy()
    slot = async_spans["slot"].to_numpy()
    pairs = (
        (-1 - source[arrived], unit),
        (rows["site"][arrived], async_spans["site"].to_numpy()),
        (rows["source_cta"][arrived], async_spans["cta"].to_numpy()),
        (rows["time"][arrived], ended),
    )
    columns = [np.concatenate(pair).astype(np.int64) for pair in pairs]
    slots = np.concatenate([rows["slot"][arrived].astype(np.int64), slot])
    exact = combined_key([*columns, slots])
    found = first_match(exact[: len(arrived)], exact[len(arrived) :])
    missing, slotless = np.flatnonzero(found < 0), np.flatnonzero(slot < 0)
    if len(missing) and len(slotless):
        anywhere = combined_key(columns)
        match = first_match(anywhere[missing], anywhere[len(arrived) + slotless])
        found[missing] = take_or(slotless, match, -1)
    result = np.full(len(source), -1, np.int64)
    result[arrived] = found
    return result


def _source_tracks(rows: _Columns, warpgroup: np.ndarray, tracks: pl.DataFrame) -> np.ndarray:
    """Returns the track that arrived or issued the work; with a track per warp, the warpgroup's first; -1 if none."""
    pairs = ((rows["source_cta"], tracks["cta"].to_numpy()), (warpgroup, tracks["warpgroup"].to_numpy()))
    key = combined_key([np.concatenate(pair).astype(np.int64) for pair in pairs])
    return first_match(key[: len(warpgroup)], key[len(warpgroup) :])  # a track's number is its row


def _instant_behind(
    rows: _Columns,
    source_track: np.ndarray,
    tracks: pl.DataFrame,
    instants: pl.DataFrame,
    spans: pl.DataFrame,
    header: CaptureHeader,
) -> np.ndarray:
    """Returns the recorded instant of each arrival of a warpgroup: the latest of its site and slot; -1 if none."""
    source = rows["source"]
    arrived = np.flatnonzero((source >= 0) & (source_track >= 0))
    kinds = np.zeros(1 + max((site.id for site in header.sites), default=-1), bool)
    kinds[[site.id for site in header.sites if site.kind is SiteKind.BARRIER_ARRIVE]] = True
    recorded = np.flatnonzero(kinds[instants["site"].to_numpy()])
    place = {name: instants[name].to_numpy()[recorded] for name in ("track", "site", "slot")}
    pairs = (
        (source_track[arrived], place["track"]),
        (rows["site"][arrived], place["site"]),
        (rows["slot"][arrived], place["slot"]),
    )
    key = combined_key([np.concatenate(pair).astype(np.int64) for pair in pairs])
    track, time = source_track[arrived], rows["time"][arrived]
    recorded_at = instants["time"].to_numpy()[recorded]
    found = last_not_after(key[: len(arrived)], time, key[len(arrived) :], recorded_at)
    # After the last kept event of a full buffer, the latest instant would be one of an earlier phase.
    is_kept = time <= tracks["last"].to_numpy()[track]
    if is_windowed(header):  # after a stretch that was not recorded, likewise
        is_kept &= gaps_before(spans, track, take_or(recorded_at, found, -1)) == gaps_before(spans, track, time)
    result = np.full(len(source), -1, np.int64)
    result[arrived] = np.where(is_kept, take_or(recorded, found, -1), -1)
    return result
