"""What each barrier wait waited for: the load that filled the slot, when it was requested, and what held it up.

The chain goes from a consumer's wait on a *full* barrier to the TMA load that completed it, to the track that issued
the load, to what that track was doing when it should have issued: if it was blocked on an *empty* barrier, the slot was
not free, and the consumers themselves are the root.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import Category, SiteKind
from profiler.analysis.leaves import Leaves, cut_into_leaves
from profiler.analysis.mma_activity import issuing_tracks
from profiler.event_tables import SiteColumns
from profiler.grouping import combined_key
from profiler.trace import Trace

# A load that takes longer than this many times the fastest one of its size has queued somewhere.
QUEUED_RATIO = 1.5
UNKNOWN = -1


@dataclasses.dataclass(frozen=True)
class WaitCauses:
    """One entry per row of `Trace.waits`; int64 unless said, `UNKNOWN` where there is no answer.

    Attributes:
      waits_for_data: bool: the barrier is completed by TMA loads.
      load_issued: when the load that completed the phase was issued, in cycles.
      load_site: where.
      load_cycles: from issue to landing (for measured traces: to the end of the blocked wait).
      fastest_cycles: the shortest `load_cycles` of a load of that size in the trace.
      issuer: the track that issued the load.
      held_by: the blocked wait (row of `Trace.waits`) in which the issuer was when it should have issued, so that the
        data would have been there in time; `UNKNOWN` if it was not blocked then.
      issuer_worked: bool: at that moment another warpgroup, which was to issue the load, did work of its own instead.
    """

    waits_for_data: np.ndarray
    load_issued: np.ndarray
    load_site: np.ndarray
    load_cycles: np.ndarray
    fastest_cycles: np.ndarray
    issuer: np.ndarray
    held_by: np.ndarray
    issuer_worked: np.ndarray

    @property
    def queued(self) -> np.ndarray:
        """True where the load took more than `QUEUED_RATIO` times the fastest of its size."""
        known = (self.load_cycles != UNKNOWN) & (self.fastest_cycles != UNKNOWN)
        return known & (self.load_cycles > QUEUED_RATIO * self.fastest_cycles)


@dataclasses.dataclass(frozen=True)
class _Loads:
    cta: np.ndarray
    barrier: np.ndarray  # number of the barrier name
    slot: np.ndarray
    issued: np.ndarray
    landed: np.ndarray  # UNKNOWN if measured
    site: np.ndarray
    size: np.ndarray
    track: np.ndarray


def find_wait_causes(trace: Trace) -> WaitCauses:
    """Matches every wait for data to its load and looks at what the load's issuer was doing; once for each trace."""
    return trace.derive(_find_wait_causes)


def _find_wait_causes(trace: Trace) -> WaitCauses:
    leaves = cut_into_leaves(trace)
    waits = trace.waits
    sites = SiteColumns.of(trace.header)
    loads = _find_loads(trace, sites)
    for_data = _waits_for_data(trace)
    begin = waits["begin"].to_numpy().astype(np.int64)
    end = begin + waits["dur"].to_numpy()
    wait_barrier = sites.barrier_code[waits["site"].to_numpy()]
    wait_slot = waits["slot"].to_numpy().astype(np.int64)
    released = waits["released_at"].to_numpy().astype(np.int64)
    observed = bool((loads.landed != UNKNOWN).any())
    moment = np.where(released == UNKNOWN, end, released) if observed else end - 1
    load = _last_before(
        loads, loads.landed if observed else loads.issued, _issuing_cta(trace), wait_barrier, wait_slot, moment
    )
    load = np.where(for_data, load, UNKNOWN)

    load_end = loads.landed if observed else np.full_like(loads.issued, UNKNOWN)
    blocked = waits["blocked"].to_numpy()
    issued = _take(loads.issued, load)
    landed = _take(load_end, load) if observed else np.where(blocked, end, UNKNOWN)
    cycles = np.where((issued != UNKNOWN) & (landed != UNKNOWN), landed - issued, UNKNOWN)
    size = _take(loads.size, load)
    fastest = (
        fastest_of_size(loads.size, load_end - loads.issued, size) if observed else fastest_of_size(size, cycles, size)
    )
    issuer = _take(loads.track, load)
    held_by = _held_by(trace, leaves, issuer, begin - fastest, for_data)
    is_known = (fastest != UNKNOWN) & (issuer != UNKNOWN)
    held_by = np.where(is_known, held_by, UNKNOWN)
    is_other = is_known & (issuer != waits["track"].to_numpy())
    worked = is_other & (issued > begin - fastest) & _works(trace, leaves, issuer, begin - fastest)
    return WaitCauses(for_data, issued, _take(loads.site, load), cycles, fastest, issuer, held_by, worked)


def wait_row_of_span(trace: Trace) -> np.ndarray:
    """Returns for each span the row of `Trace.waits` that describes it, or `UNKNOWN`: int64."""
    rows = np.full(trace.spans.height, UNKNOWN, np.int64)
    rows[trace.waits["span"].to_numpy()] = np.arange(trace.waits.height)
    return rows


def _waits_for_data(trace: Trace) -> np.ndarray:
    """A barrier that TMA loads name is a full barrier, unless a consumer's arrival was what completed the phase."""
    filled = [site.barrier for site in trace.header.sites if site.kind is SiteKind.TMA_LOAD and site.barrier]
    by = pl.col("released_by_role")
    by_producer = by.is_in(["", "memory", "memory+compute"])
    return (
        trace.waits.select((by == "tma_load") | (pl.col("barrier").is_in(filled) & by_producer)).to_series().to_numpy()
    )


def _issuing_cta(trace: Trace) -> np.ndarray:
    """The CTA that issued the work which completed each wait's phase: with multicast not always the waiter's own."""
    cta = trace.waits["cta"].to_numpy().astype(np.int64)
    arrival = trace.waits["arrival"].to_numpy()
    source = _take(trace.arrivals["source_track"].to_numpy().astype(np.int64), arrival)
    source_cta = _take(trace.tracks["cta"].to_numpy().astype(np.int64), source)
    return np.where(source_cta == UNKNOWN, cta, source_cta)


def _find_loads(trace: Trace, sites: SiteColumns) -> _Loads:
    observed = trace.async_spans.filter(pl.col("unit") == "tma_load")
    source = observed if observed.height else trace.spans.filter(pl.col("kind") == str(SiteKind.TMA_LOAD))
    columns = {name: source[name].to_numpy().astype(np.int64) for name in ("site", "slot", "begin")}
    barrier = np.append(sites.barrier_code, UNKNOWN)[columns["site"]]
    if observed.height:
        cta, warpgroup, size = (observed[name].to_numpy().astype(np.int64) for name in ("cta", "warpgroup", "bytes"))
        track = issuing_tracks(trace, cta, warpgroup, SiteKind.TMA_LOAD)
        landed = columns["begin"] + observed["dur"].to_numpy()
    else:
        track = source["track"].to_numpy().astype(np.int64)
        cta = trace.tracks["cta"].to_numpy().astype(np.int64)[track]
        size_of_site = np.zeros(len(sites.name), np.int64)
        for site in trace.header.sites:
            size_of_site[site.id] = site.size_bytes
        size = size_of_site[columns["site"]]
        landed = np.full(len(track), UNKNOWN, np.int64)
    return _Loads(cta, barrier, columns["slot"], columns["begin"], landed, columns["site"], size, track)


def _last_before(
    loads: _Loads, time: np.ndarray, cta: np.ndarray, barrier: np.ndarray, slot: np.ndarray, moment: np.ndarray
) -> np.ndarray:
    """Returns for each query the load of that (CTA, barrier, slot) with the latest `time` not after `moment`.

    That is the right one: the slot's next load cannot land, or be issued, before this phase has been consumed.
    """
    if not len(time):
        return np.full(len(moment), UNKNOWN, np.int64)
    pairs = ((loads.cta, cta), (loads.barrier, barrier), (loads.slot, slot))
    key = combined_key([np.concatenate(pair) for pair in pairs])
    load_key, wait_key = key[: len(time)], key[len(time) :]
    stride = int(max(time.max(), moment.max(initial=0))) + 2
    order = np.argsort(load_key * stride + time, kind="stable")
    row = np.searchsorted((load_key * stride + time)[order], wait_key * stride + moment, side="right") - 1
    found = order[np.maximum(row, 0)]
    return np.where((row >= 0) & (load_key[found] == wait_key), found, UNKNOWN)


def fastest_of_size(size: np.ndarray, cycles: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Returns for each wanted size the fewest `cycles` among loads of that size whose duration is known."""
    known = (cycles > 0) & (size != UNKNOWN)
    sizes, group = np.unique(size[known], return_inverse=True)
    if not sizes.size:
        return np.full(len(wanted), UNKNOWN, np.int64)
    fewest = np.full(len(sizes), np.iinfo(np.int64).max)
    np.minimum.at(fewest, group, cycles[known])
    row = np.minimum(np.searchsorted(sizes, wanted), len(sizes) - 1)
    return np.where(sizes[row] == wanted, fewest[row], UNKNOWN)


def _held_by(trace: Trace, leaves: Leaves, track: np.ndarray, time: np.ndarray, for_data: np.ndarray) -> np.ndarray:
    """Returns the blocked wait for a slot in which `track` was at `time`, or `UNKNOWN`."""
    span = leaves.span[leaves.find(np.maximum(track, 0), time)]
    return slot_waits(trace, for_data)[span]


def _works(trace: Trace, leaves: Leaves, track: np.ndarray, time: np.ndarray) -> np.ndarray:
    """True where `track` was at `time` in code of its own: neither waiting, nor before its begin or after its end."""
    waits = trace.spans["category"].is_in([str(Category.WAIT), str(Category.IDLE)]).to_numpy()
    # The last three are the leaf states AFTER, BEFORE and BETWEEN, addressed as negative indices.
    return np.concatenate([~waits, [False, False, True]])[leaves.span[leaves.find(np.maximum(track, 0), time)]]


def slot_waits(trace: Trace, for_data: np.ndarray) -> np.ndarray:
    """Returns for each span the row of its wait if it was blocked on something else than data, else `UNKNOWN`.

    The last three entries, which the leaf states AFTER, BEFORE and BETWEEN address as negative indices, are `UNKNOWN`.
    """
    rows = wait_row_of_span(trace)
    is_slot_wait = trace.waits["blocked"].to_numpy() & ~for_data
    rows = np.where((rows != UNKNOWN) & _take(is_slot_wait, rows, default=False), rows, UNKNOWN)
    return np.concatenate([rows, np.full(3, UNKNOWN, np.int64)])


def _take(values: np.ndarray, rows: np.ndarray, default: int | bool = UNKNOWN) -> np.ndarray:
    """Returns `values[rows]`, and `default` where the row is unknown."""
    if not len(values):
        return np.full(len(rows), default, values.dtype)
    return np.where(rows >= 0, values[np.maximum(rows, 0)], default)
