"""Counters over time: what waits in rings, is in flight in TMA, occupies tensor cores, and goes through HBM."""

from __future__ import annotations

import numpy as np
import polars as pl

from mgpu.capture import HBM_STRETCH_CYCLES, CaptureHeader
from mgpu.sites import SiteKind
from profiler.event_tables import SiteColumns, rows_of_kind
from profiler.grouping import combined_key, stable_order
from profiler.intervals import merge_intervals
from profiler.trace import COUNTERS

FULL_SLOTS = "full slots"
BYTES_IN_FLIGHT = "tma bytes in flight"
TENSOR_CORE_BUSY = "tensor core busy"
HBM_READ, HBM_WRITE = "HBM read", "HBM write"


def loads_with_cta(spans: pl.DataFrame, tracks: pl.DataFrame, sites: SiteColumns) -> pl.DataFrame:
    """Returns the TMA load spans of the warpgroups, with the column `cta`."""
    loads = rows_of_kind(spans, sites, SiteKind.TMA_LOAD)
    return loads.with_columns(tracks["cta"].gather(loads["track"]))  # a track's number is its row


def counters_table(
    header: CaptureHeader,
    arrivals: pl.DataFrame,
    waits: pl.DataFrame,
    loads: pl.DataFrame,
    of_units: pl.DataFrame,
    hbm: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """Returns the `counters` table. Slots are named `full slots BARRIER`, after the barrier that loads complete.

    Args:
      header: of the capture.
      arrivals, waits: tables of the trace.
      loads: from `loads_with_cta`.
      of_units: from `unit_counters`.
      hbm: from `hbm_counters`, if HBM was observed.
    """
    barriers = {site.barrier for site in header.sites if site.kind is SiteKind.TMA_LOAD and site.barrier}
    tables = [_full_slots(header, barrier, arrivals, waits, loads) for barrier in sorted(barriers)]
    return pl.concat([*tables, of_units, *([] if hbm is None else [hbm])])


def unit_counters(async_spans: pl.DataFrame) -> pl.DataFrame:
    """Returns the counters of the asynchronous units: bytes that TMA has in flight, and whether tensor cores work."""
    return pl.concat([_bytes_in_flight(async_spans), _tensor_core_busy(async_spans)])


def hbm_counters(hbm: np.ndarray, origin: int, clock_hz: float) -> pl.DataFrame:
    """Returns the counters of what HBM moved, in GB/s over stretches of `HBM_STRETCH_CYCLES`, for the whole device.

    Args:
      hbm: table of `HBM_DTYPE`.
      origin: cycle at which the launch began.
      clock_hz: SM clock.
    """
    tables = []
    for counter, column in ((HBM_READ, "read_bytes"), (HBM_WRITE, "write_bytes")):
        begin, moved = hbm["begin"][hbm[column] > 0], hbm[column][hbm[column] > 0]
        rate = np.rint(moved * (clock_hz / HBM_STRETCH_CYCLES / 1e9)).astype(np.int64)
        # A stretch ends with 0 unless the next one follows at once.
        last = begin + HBM_STRETCH_CYCLES
        ends = last[~np.isin(last, begin)]
        time, value = np.concatenate([begin, ends]), np.concatenate([rate, np.zeros_like(ends)])
        order = np.argsort(time)
        nowhere = np.full(len(time), -1)
        tables.append(_table(counter, "GB/s", nowhere, nowhere, time[order], value[order]))
    table = pl.concat(tables)
    return table.with_columns((pl.col("time") - origin).clip(lower_bound=0))


def _tensor_core_busy(async_spans: pl.DataFrame) -> pl.DataFrame:
    """1 while an SM's tensor core has something in flight, else 0."""
    mma = async_spans.filter(pl.col("unit") == "tensor_core")
    sm, begin, dur = (mma[name].to_numpy().astype(np.int64) for name in ("sm", "begin", "dur"))
    busy = merge_intervals(sm, begin, begin + dur)
    sm, time = (np.concatenate(pair) for pair in ((busy.group, busy.group), (busy.begin, busy.end)))
    value = np.repeat([1, 0], len(busy.group))
    order = np.lexsort((time, sm))
    return _table(TENSOR_CORE_BUSY, "busy", sm[order], np.full(len(sm), -1), time[order], value[order])


def _table(
    counter: str, unit: str, sm: np.ndarray, cta: np.ndarray, time: np.ndarray, value: np.ndarray
) -> pl.DataFrame:
    names = {"counter": pl.repeat(counter, len(time), eager=True), "unit": pl.repeat(unit, len(time), eager=True)}
    return pl.DataFrame(names | {"sm": sm, "cta": cta, "time": time, "value": value}, schema=dict(COUNTERS))


def _bytes_in_flight(async_spans: pl.DataFrame) -> pl.DataFrame:
    """Bytes of loads and stores between issue and completion, per SM."""
    copies = async_spans.filter(pl.col("unit").is_in(["tma_load", "tma_store"]))
    issued = copies.select("sm", pl.col("begin").alias("time"), pl.col("bytes").alias("change"))
    landed = copies.select("sm", (pl.col("begin") + pl.col("dur")).alias("time"), -pl.col("bytes").alias("change"))
    return _accumulate(pl.concat([issued, landed]).with_columns(cta=pl.lit(-1)), BYTES_IN_FLIGHT, "bytes")


def _full_slots(
    header: CaptureHeader, barrier: str, arrivals: pl.DataFrame, waits: pl.DataFrame, loads: pl.DataFrame
) -> pl.DataFrame:
    """Slots of a ring between the arrival that filled them and the consumers' release.

    The release is the first completion, after the fill, of the barrier that the loads' issuer waits for (if it is one
    barrier); else the next load into the slot.
    """
    keys = ["cta", "slot"]
    filled = (
        arrivals.filter(pl.col("barrier") == barrier, pl.col("completes"), pl.col("source") == "tma_load")
        .select("sm", *keys, "time")
        .sort("time")
    )
    released = _releases(header, barrier, arrivals, waits, loads).sort("released")
    emptied = filled.join_asof(
        released,
        left_on="time",
        right_on="released",
        by=keys,
        strategy="forward",
        allow_exact_matches=False,
        check_sortedness=False,
    ).filter(pl.col("released").is_not_null())
    changes = pl.concat(
        [
            filled.select("sm", "cta", "time", pl.lit(1).alias("change")),
            emptied.select("sm", "cta", pl.col("released").alias("time"), pl.lit(-1).alias("change")),
        ]
    )
    return _accumulate(changes, f"{FULL_SLOTS} {barrier}", "slots")


def _releases(
    header: CaptureHeader, barrier: str, arrivals: pl.DataFrame, waits: pl.DataFrame, loads: pl.DataFrame
) -> pl.DataFrame:
    """Returns when slots (`cta`, `slot`) became free (`released`)."""
    load_sites = [site.id for site in header.sites if site.kind is SiteKind.TMA_LOAD and site.barrier == barrier]
    loads = loads.filter(pl.col("site").is_in(load_sites))
    issuer_waits = waits.filter(pl.col("track").is_in(loads["track"].unique().implode()))
    guards = issuer_waits.filter(pl.col("barrier") != barrier)["barrier"].unique(maintain_order=True)
    if len(guards) == 1 and issuer_waits.height:
        done = arrivals.filter(pl.col("barrier") == guards[0], pl.col("completes"))
        return done.select("cta", "slot", pl.col("time").alias("released"))
    return loads.select("cta", "slot", pl.col("begin").alias("released"))


def _accumulate(changes: pl.DataFrame, counter: str, unit: str) -> pl.DataFrame:
    """Sums changes (`sm`, `cta`, `time`, `change`) of one moment and runs the sum along each SM and CTA."""
    sm, cta, time, change = (changes[name].to_numpy().astype(np.int64) for name in ("sm", "cta", "time", "change"))
    moment = combined_key([sm, cta, time])
    order = stable_order(moment)
    starts = np.flatnonzero(np.diff(moment[order], prepend=-1))
    total = np.add.reduceat(change[order], starts) if len(starts) else change
    rows = order[starts][total != 0]
    value = np.cumsum(total[total != 0])
    lane = combined_key([sm, cta])[rows]
    first = np.flatnonzero(np.diff(lane, prepend=-1))
    value -= np.repeat(np.concatenate([[0], value])[first], np.diff(first, append=len(lane)))
    return _table(counter, unit, sm[rows], cta[rows], time[rows], value)
