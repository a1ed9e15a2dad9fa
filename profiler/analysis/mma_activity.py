"""When each SM's tensor core had work in flight."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import SiteKind
from profiler.analysis.window import Window
from profiler.event_tables import SiteColumns
from profiler.grouping import combined_key, stable_order
from profiler.intervals import IntervalSets, merge_intervals
from profiler.trace import Trace


@dataclasses.dataclass(frozen=True)
class MmaActivity:
    """MMA groups in flight, sorted by (sm, begin).

    Attributes:
      sm, cta, track, site, begin, end, flops: int64 arrays; `track` is the one that issued the group, -1 if unknown.
      provenance: "simulated", or "inferred" from issues and waits (`profiler.measured_mma`).
    """

    sm: np.ndarray
    cta: np.ndarray
    track: np.ndarray
    site: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    flops: np.ndarray
    provenance: str

    def in_flight(self) -> IntervalSets:
        """Returns the union of the groups, per SM."""
        return merge_intervals(self.sm, self.begin, self.end)


def find_mma_activity(trace: Trace, window: Window) -> MmaActivity:
    """Returns what the tensor cores did inside the window; a group that crosses its end is cut there."""
    spans = trace.async_spans.filter(pl.col("unit") == "tensor_core")
    columns = _columns(trace, spans)
    provenance = "simulated" if trace.header.provenance == "simulated" else "inferred"
    columns["end"] = np.minimum(columns["end"], window.end)
    keep = columns["end"] > columns["begin"]
    order = stable_order(combined_key([columns[name][keep] for name in ("sm", "begin", "end")]))
    return MmaActivity(**{name: values[keep][order] for name, values in columns.items()}, provenance=provenance)


def issuing_tracks(trace: Trace, cta: np.ndarray, warpgroup: np.ndarray, kind: SiteKind) -> np.ndarray:
    """Returns the track that issues work of `kind` for each (CTA, warpgroup), -1 if it has none: int64.

    With one track per warp, that is the first warp of the warpgroup that has a site of this kind, else its first.
    """
    tracks = trace.tracks
    own_warpgroup = tracks["warpgroup"].to_numpy().astype(np.int64)
    width = int(max(own_warpgroup.max(initial=0), warpgroup.max(initial=0))) + 1
    key = tracks["cta"].to_numpy().astype(np.int64) * width + own_warpgroup
    issues = trace.derive(_recorded_sites)[:, SiteColumns.of(trace.header).is_kind(kind)].any(axis=1)
    order = np.lexsort((np.arange(len(key)), ~issues, key))
    wanted = cta * width + warpgroup
    row = np.minimum(np.searchsorted(key[order], wanted), max(len(key) - 1, 0))
    if not len(key):
        return np.full(len(wanted), -1, np.int64)
    return np.where(key[order][row] == wanted, order[row], -1)


def _recorded_sites(trace: Trace) -> np.ndarray:
    """Returns which sites each track recorded a span of: bool[tracks, sites]."""
    recorded = np.zeros((trace.tracks.height, len(SiteColumns.of(trace.header).name)), bool)
    recorded[trace.spans["track"].to_numpy(), trace.spans["site"].to_numpy()] = True
    return recorded


def _columns(trace: Trace, spans: pl.DataFrame) -> dict[str, np.ndarray]:
    columns = {name: spans[name].to_numpy().astype(np.int64) for name in ("sm", "cta", "site", "begin", "flops")}
    warpgroup = spans["warpgroup"].to_numpy().astype(np.int64)
    track = issuing_tracks(trace, columns["cta"], warpgroup, SiteKind.MMA_ISSUE)
    return columns | {"end": columns["begin"] + spans["dur"].to_numpy(), "track": track}
