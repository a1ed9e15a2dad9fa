"""Activity of asynchronous units: loads, stores and MMAs in flight, with a lane each so that they can be drawn."""

from __future__ import annotations

import numpy as np
import polars as pl

from mgpu.capture import UNITS, Capture
from profiler.event_tables import SiteColumns
from profiler.grouping import combined_key, stable_order, with_shared_key
from profiler.trace import ASYNC_SPANS


def async_spans_table(capture: Capture, begin: np.ndarray, end: np.ndarray, sites: SiteColumns) -> pl.DataFrame:
    """Returns the `async_spans` table of a capture that holds unit activity (a simulated one).

    Args:
      begin, end: int64[unit spans], cycles since the launch began.
    """
    rows = capture.unit_spans
    unit = rows["unit"].astype(np.int32)
    site = rows["site"].astype(np.int32)
    known = (site >= 0) & (site < len(sites.name))
    units = pl.Series(UNITS, dtype=pl.String)
    names = pl.concat([sites.name, units])  # work of an unknown site is called by its unit
    frame = pl.DataFrame(
        {
            "unit": units.gather(unit),
            "sm": rows["sm"].astype(np.int32),
            "cta": rows["cta"].astype(np.int32),
            "warpgroup": rows["warpgroup"].astype(np.int32),
            "site": site,
            "name": names.gather(np.where(known, site, len(sites.name) + unit)),
            "slot": rows["slot"].astype(np.int32),
            "begin": begin,
            "dur": end - begin,
            "bytes": rows["bytes"].astype(np.int64),
            "flops": rows["flops"].astype(np.int64),
            "provenance": pl.repeat(capture.header.provenance, len(rows), eager=True, dtype=pl.String),
        }
    )
    return finish_async_spans(frame)


def finish_async_spans(frame: pl.DataFrame) -> pl.DataFrame:
    """Sorts rows that have everything but ids and lanes, and gives them both. Other columns are dropped."""
    (frame,) = with_shared_key([frame], ["unit", "sm"])
    frame = frame[stable_order(combined_key([frame["key"].to_numpy(), frame["begin"].to_numpy()]))]
    begin = frame["begin"].to_numpy()
    lane = assign_lanes(frame["key"].to_numpy(), begin, begin + frame["dur"].to_numpy())
    return frame.with_columns(lane=pl.Series(lane), async_span=pl.int_range(pl.len())).select(
        pl.col(name).cast(dtype) for name, dtype in ASYNC_SPANS.items()
    )


def assign_lanes(group: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
    """Gives every interval the smallest number of lanes per group on which no two overlap: int32[n].

    Freed lanes wait in a queue. With as many lanes as intervals ever overlap, the k-th interval of a group to begin
    takes the lane of the (k - lanes)-th to end, which is over by then; following these links back to the first
    intervals gives the lanes, by doubling, without a loop over intervals.

    Args:
      group: int64[n], ascending.
      begin, end: int64[n]; within a group, begins ascend. An interval without length takes its lane for one cycle.
    """
    num = len(begin)
    if not num:
        return np.zeros(0, np.int32)
    end = np.maximum(end, begin + 1)
    starts = np.flatnonzero(np.diff(group, prepend=group[0] - 1))
    sizes = np.diff(starts, append=num)
    first = np.repeat(starts, sizes)
    rank = np.arange(num) - first
    by_end = stable_order(combined_key([group, end]))
    lanes = np.repeat(_most_overlapping(group, begin, end, starts), sizes)
    link = np.where(rank >= lanes, by_end[np.maximum(first + rank - lanes, 0)], np.arange(num))
    while True:
        further = link[link]
        if np.array_equal(further, link):
            return rank[link].astype(np.int32)
        link = further


def _most_overlapping(group: np.ndarray, begin: np.ndarray, end: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Returns, per group, the largest number of intervals that are open at once."""
    moments = np.concatenate([end, begin])  # an end comes before a begin of the same cycle: the sort is stable
    order = stable_order(combined_key([np.concatenate([group, group]), moments]))
    open_now = np.cumsum(np.where(order < len(end), -1, 1))
    # Every group opens as often as it closes, so each starts from zero.
    return np.maximum.reduceat(open_now, 2 * starts)
