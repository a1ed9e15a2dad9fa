"""When each SM's tensor core had work in flight: observed by the simulator, or inferred from issues and waits."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import SiteKind
from profiler.analysis.intervals import IntervalSets, merge_intervals
from profiler.analysis.window import Window
from profiler.trace import Trace


@dataclasses.dataclass(frozen=True)
class MmaActivity:
    """MMA groups in flight, sorted by (sm, begin).

    Attributes:
      sm, cta, track, site, begin, end, flops: int64 arrays; `track` is the one that issued the group, -1 if unknown.
      provenance: "simulated", or "inferred": a group is taken to last from its issue to the end of the next `mma_wait`
        of its track. A wait that leaves groups in flight ends the last of them early, by at most one group.
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
    observed = trace.async_spans.filter(pl.col("unit") == "tensor_core")
    columns = _observed(trace, observed) if observed.height else _inferred(trace)
    provenance = str(observed["provenance"][0]) if observed.height else "inferred"
    columns["end"] = np.minimum(columns["end"], window.end)
    keep = columns["end"] > columns["begin"]
    order = np.lexsort((columns["end"][keep], columns["begin"][keep], columns["sm"][keep]))
    return MmaActivity(**{name: values[keep][order] for name, values in columns.items()}, provenance=provenance)


def issuing_tracks(trace: Trace, cta: np.ndarray, warpgroup: np.ndarray, kind: SiteKind) -> np.ndarray:
    """Returns the track that issues work of `kind` for each (CTA, warpgroup), -1 if it has none: int64.

    With one track per warp, that is the first warp of the warpgroup that has a site of this kind, else its first.
    """
    tracks = trace.tracks
    own_warpgroup = tracks["warpgroup"].to_numpy().astype(np.int64)
    width = int(max(own_warpgroup.max(initial=0), warpgroup.max(initial=0))) + 1
    key = tracks["cta"].to_numpy().astype(np.int64) * width + own_warpgroup
    issues = np.zeros(len(key), bool)
    issues[trace.spans.filter(trace.spans["kind"] == str(kind))["track"].to_numpy()] = True
    order = np.lexsort((np.arange(len(key)), ~issues, key))
    wanted = cta * width + warpgroup
    row = np.minimum(np.searchsorted(key[order], wanted), max(len(key) - 1, 0))
    if not len(key):
        return np.full(len(wanted), -1, np.int64)
    return np.where(key[order][row] == wanted, order[row], -1)


def _observed(trace: Trace, spans: pl.DataFrame) -> dict[str, np.ndarray]:
    columns = {name: spans[name].to_numpy().astype(np.int64) for name in ("sm", "cta", "site", "begin", "flops")}
    warpgroup = spans["warpgroup"].to_numpy().astype(np.int64)
    track = issuing_tracks(trace, columns["cta"], warpgroup, SiteKind.MMA_ISSUE)
    return columns | {"end": columns["begin"] + spans["dur"].to_numpy(), "track": track}


def _inferred(trace: Trace) -> dict[str, np.ndarray]:
    issues = trace.spans.filter(pl.col("kind") == str(SiteKind.MMA_ISSUE))
    waits = trace.spans.filter(pl.col("kind") == str(SiteKind.MMA_WAIT)).sort("track", "begin")
    track, begin, site = (issues[name].to_numpy().astype(np.int64) for name in ("track", "begin", "site"))
    end = begin + issues["dur"].to_numpy()
    if waits.height:
        stride = trace.end + 2
        wait_track, wait_begin = (waits[name].to_numpy().astype(np.int64) for name in ("track", "begin"))
        row = np.searchsorted(wait_track * stride + wait_begin, track * stride + begin)
        row = np.minimum(row, waits.height - 1)
        covers = (wait_track[row] == track) & (wait_begin[row] >= begin)
        end = np.where(covers, (wait_begin + waits["dur"].to_numpy())[row], end)
    flops_of_site = {place.id: place.flops for place in trace.header.sites}
    flops = np.array([flops_of_site.get(number, 0) for number in site.tolist()], np.int64)
    sm, cta = (trace.tracks[name].to_numpy().astype(np.int64)[track] for name in ("sm", "cta"))
    # With one track per warp every warp of the warpgroup records the same issue: its work is counted once.
    first = issuing_tracks(trace, cta, trace.tracks["warpgroup"].to_numpy().astype(np.int64)[track], SiteKind.MMA_ISSUE)
    flops = np.where(first == track, flops, 0)
    return {"sm": sm, "cta": cta, "track": first, "site": site, "begin": begin, "end": end, "flops": flops}
