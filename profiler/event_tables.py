"""Events to tables: spans, instants and tracks of a Trace."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

import numpy as np
import polars as pl

from mgpu.capture import UNITS, Capture, CaptureHeader
from mgpu.sites import SiteKind
from profiler.decode import Events
from profiler.grouping import combined_key, count_before
from profiler.pairing import Pairing
from profiler.trace import CTAS, INSTANTS, SPANS, TRACKS

ISSUING_KINDS = (SiteKind.TMA_LOAD, SiteKind.MMA_ISSUE)
"""What a track does that tells its role: memory, compute."""


@dataclasses.dataclass(frozen=True)
class SiteColumns:
    """The sites of a launch as arrays indexed by site id; ids without a site read as nameless scopes."""

    name: pl.Series
    kind: pl.Series
    category: pl.Series
    barrier: pl.Series
    kind_code: np.ndarray
    barrier_code: np.ndarray  # -1: touches no barrier

    @classmethod
    def of(cls, header: CaptureHeader) -> SiteColumns:
        """Returns the columns of a header's sites."""
        size = 1 + max((site.id for site in header.sites), default=-1)
        sites = {site.id: site for site in header.sites}
        kinds = [sites[i].kind if i in sites else SiteKind.SCOPE for i in range(size)]
        barriers = [sites[i].barrier if i in sites else "" for i in range(size)]
        codes = {name: code for code, name in enumerate(dict.fromkeys(filter(None, barriers)))}
        order = list(SiteKind)
        return cls(
            name=pl.Series([sites[i].name if i in sites else f"site {i}" for i in range(size)], dtype=pl.String),
            kind=pl.Series([str(kind) for kind in kinds], dtype=pl.String),
            category=pl.Series([str(kind.category) for kind in kinds], dtype=pl.String),
            barrier=pl.Series(barriers, dtype=pl.String),
            kind_code=np.array([order.index(kind) for kind in kinds], np.int64),
            barrier_code=np.array([codes.get(name, -1) for name in barriers], np.int64),
        )

    def is_kind(self, kind: SiteKind) -> np.ndarray:
        """Returns which sites are of a kind: bool, indexed by site id."""
        return self.kind_code == list(SiteKind).index(kind)

    def codes_of_barriers(self, names: Iterable[str]) -> np.ndarray:
        """Returns the `barrier_code` of each name, -1 for a barrier that no site touches: int64."""
        codes = dict(zip(self.barrier.to_list(), self.barrier_code.tolist(), strict=True))
        return np.array([codes.get(name, -1) for name in names], np.int64)


def rows_of_kind(table: pl.DataFrame, sites: SiteColumns, kind: SiteKind) -> pl.DataFrame:
    """Returns the rows of the `spans` or `instants` table whose site is of a kind; by number, faster than by name."""
    return table[np.flatnonzero(sites.is_kind(kind)[table["site"].to_numpy()])]


def span_columns(events: Events, time: np.ndarray, pairing: Pairing, sites: SiteColumns) -> dict[str, np.ndarray]:
    """Returns the columns of the `spans` table that events tell; `time`: the events' cycles since the launch began."""
    site = events.site[pairing.begin]
    track = events.track[pairing.begin]
    begin = time[pairing.begin]
    dur = time[pairing.end] - begin
    inner = np.flatnonzero(pairing.parent >= 0)
    # Sums of cycles stay below 2**53, so the float64 that bincount adds in is exact.
    children = np.bincount(pairing.parent[inner], dur[inner], len(dur)).astype(np.int64)
    slot, phase = _slot_and_phase(track, site, events.payload[pairing.begin], sites)
    return {
        "track": track,
        "parent": pairing.parent.astype(np.int64),
        "depth": pairing.depth,
        "site": site,
        "begin": begin,
        "dur": dur,
        "self_dur": dur - children,
        "slot": slot,
        "phase": phase,
        "closed": pairing.closed,
    }


def spans_table(columns: Mapping[str, np.ndarray], sites: SiteColumns) -> pl.DataFrame:
    """Returns the `spans` table from what `span_columns` found."""
    site = columns["site"]
    named = {
        "span": np.arange(len(site)),
        "kind": sites.kind.gather(site),
        "category": sites.category.gather(site),
        "name": sites.name.gather(site),
    }
    rows = {**columns, **named}
    return pl.DataFrame({name: rows[name] for name in SPANS}, schema=dict(SPANS))


def instant_columns(events: Events, time: np.ndarray, pairing: Pairing, sites: SiteColumns) -> dict[str, np.ndarray]:
    """Returns the columns of the `instants` table that events tell; `time`: as for `span_columns`."""
    rows = pairing.instants
    site, track = events.site[rows], events.track[rows]
    slot, phase = _slot_and_phase(track, site, events.payload[rows], sites)
    return {"track": track, "site": site, "time": time[rows], "slot": slot, "phase": phase}


def instants_table(columns: Mapping[str, np.ndarray], sites: SiteColumns) -> pl.DataFrame:
    """Returns the `instants` table from what `instant_columns` found."""
    site = columns["site"]
    named = {
        "instant": np.arange(len(site)),
        "kind": sites.kind.gather(site),
        "name": sites.name.gather(site),
    }
    rows = {**columns, **named}
    return pl.DataFrame({name: rows[name] for name in INSTANTS}, schema=dict(INSTANTS))


def _slot_and_phase(
    track: np.ndarray, site: np.ndarray, payload: np.ndarray, sites: SiteColumns
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the barrier slot and how often the track touched it before from this kind of site; -1 without barrier."""
    barrier = sites.barrier_code[site]
    touches = np.flatnonzero(barrier >= 0)
    slot = np.full(len(site), -1, np.int32)
    slot[touches] = payload[touches]
    phase = np.full(len(site), -1, np.int64)
    key = combined_key([track[touches], sites.kind_code[site[touches]], barrier[touches], slot[touches]])
    phase[touches] = count_before(key)
    return slot, phase


def tracks_table(
    capture: Capture, last: np.ndarray, issued: np.ndarray, lifetime: tuple[np.ndarray, np.ndarray]
) -> pl.DataFrame:
    """Returns the `tracks` table.

    Args:
      capture: the raw record.
      last: int64[tracks], time of each track's last stored event, in cycles since the launch began.
      issued: bool[tracks, kinds], whether a track recorded a site of each of `ISSUING_KINDS`.
      lifetime: first and last moments, in cycles since the launch began.
    """
    tracks = capture.tracks
    begin, end = lifetime
    role = _roles(capture, issued)
    warp = tracks["warp"].astype(np.int32)
    names = [
        f"WG{warpgroup} {track_role}" if one < 0 else f"WG{warpgroup} warp {one} {track_role}"
        for warpgroup, one, track_role in zip(tracks["warpgroup"].tolist(), warp.tolist(), role, strict=True)
    ]
    cluster = dict(zip(capture.ctas["cta"].tolist(), capture.ctas["cluster"].tolist(), strict=True))
    return pl.DataFrame(
        {
            "track": np.arange(len(tracks)),
            "sm": tracks["sm"].astype(np.int32),
            "cta": tracks["cta"].astype(np.int64),
            "cluster": [cluster.get(cta, -1) for cta in tracks["cta"].tolist()],
            "warpgroup": tracks["warpgroup"].astype(np.int32),
            "warp": warp,
            "role": role,
            "name": names,
            "begin": begin,
            "end": end,
            "kept": capture.stored_counts,
            "dropped": capture.dropped_counts,
            "last": last,
        },
        schema=dict(TRACKS),
    )


def _roles(capture: Capture, issued: np.ndarray) -> list[str]:
    """Names what each track does. Tracks of the same warpgroup (and warp) number have one role in the whole launch.

    The recorded sites decide; a warpgroup that recorded no load and no MMA is judged by the work that it issued.
    """
    writer = _writer_numbers(capture.tracks["warpgroup"], capture.tracks["warp"])
    num_writers = 1 + int(writer.max(initial=-1))
    did = np.zeros((num_writers, 2), bool)
    for column in range(len(ISSUING_KINDS)):
        did[writer[issued[:, column]], column] = True

    warpgroup_of = np.zeros(num_writers, np.int64)
    warpgroup_of[writer] = capture.tracks["warpgroup"]
    silent = ~np.isin(warpgroup_of, np.unique(warpgroup_of[did.any(axis=1)]))
    for column, unit in enumerate((UNITS.index("tma_load"), UNITS.index("tensor_core"))):
        issuers = np.unique(capture.unit_spans["warpgroup"][capture.unit_spans["unit"] == unit])
        did[silent & np.isin(warpgroup_of, issuers), column] = True
    names = {(False, False): "other", (True, False): "memory", (False, True): "compute", (True, True): "memory+compute"}
    return [names[bool(loads), bool(multiplies)] for loads, multiplies in did[writer]]


def _writer_numbers(warpgroup: np.ndarray, warp: np.ndarray) -> np.ndarray:
    """Returns a dense number per (warpgroup, warp) for each track."""
    return np.unique(combined_key([warpgroup, warp]), return_inverse=True)[1].reshape(-1)


def ctas_table(capture: Capture, begin: np.ndarray, end: np.ndarray) -> pl.DataFrame:
    """Returns the `ctas` table; `begin` and `end` are in cycles since the launch began."""
    columns = {name: capture.ctas[name].astype(np.int64) for name in ("cta", "cluster", "sm")}
    return pl.DataFrame(columns | {"begin": begin, "end": end}, schema=dict(CTAS))
