"""The rows of the timeline as a tree: SM > its units and CTAs > warpgroups and counters."""

from __future__ import annotations

import dataclasses
from typing import Any

import polars as pl

from profiler import Report, Trace

UNIT_NAMES = {"tensor_core": "tensor core", "tma_load": "TMA loads", "tma_store": "TMA stores"}


@dataclasses.dataclass(frozen=True)
class Row:
    """One row.

    Attributes:
      key: what identifies it in a launch, such as "track:7".
      label: its name.
      level: depth in the tree: 0 for an SM.
      kind: "sm" (use of the tensor core), "unit", "cta", "track", "counter".
      sm, cta: where it belongs; -1 if to no CTA.
      lanes: how many boxes can lie above each other.
      note: what the label leaves out.
      peak: largest value of a counter.
    """

    key: str
    label: str
    level: int
    kind: str
    sm: int
    cta: int = -1
    lanes: int = 1
    note: str = ""
    peak: int = 0

    def to_json(self) -> dict[str, object]:
        """Returns the row as a JSON object."""
        return dataclasses.asdict(self)


def build_rows(report: Report) -> list[Row]:
    """Returns all rows of a launch in the order in which they are drawn."""
    trace = report.trace
    units = {
        (int(sm), str(unit)): lanes for (sm, unit), lanes in _lanes(trace.async_spans, ["sm", "unit"], "lane").items()
    }
    depths = {track: lanes for (track,), lanes in _lanes(trace.spans, ["track"], "depth").items()}
    sms = sorted({*trace.ctas["sm"].to_list(), *trace.tracks["sm"].to_list(), *(sm for sm, _ in units)})
    tracks_of_cta = trace.tracks.sort("warpgroup", "warp").partition_by("cta", as_dict=True)
    ctas_of_sm = trace.ctas.sort("begin", "cta").partition_by("sm", as_dict=True)
    counters = _counters(trace)
    rows: list[Row] = []
    for sm in sms:
        rows.append(Row(f"sm:{sm}", f"SM {sm:03d}", 0, "sm", sm, note="use of the tensor core"))
        for unit, label in UNIT_NAMES.items():
            if (sm, unit) in units:
                rows.append(Row(f"unit:{unit}:{sm}", label, 1, "unit", sm, lanes=units[sm, unit]))
        rows += counters.get((sm, -1), [])
        for cta in ctas_of_sm[(sm,)].iter_rows(named=True) if (sm,) in ctas_of_sm else ():
            number = cta["cta"]
            rows.append(Row(f"cta:{number}", f"CTA {number}", 1, "cta", sm, number, note=f"cluster {cta['cluster']}"))
            tracks = tracks_of_cta.get((number,))
            for track in tracks.iter_rows(named=True) if tracks is not None else ():
                key = f"track:{track['track']}"
                rows.append(Row(key, track["name"], 2, "track", sm, number, depths.get(track["track"], 1)))
            rows += counters.get((sm, number), [])
    return rows


def _lanes(table: pl.DataFrame, keys: list[str], lane: str) -> dict[tuple[Any, ...], int]:
    """Returns how many lanes each group of a table needs."""
    counted = table.group_by(keys).agg(pl.col(lane).max() + 1)
    return {tuple(row[:-1]): int(row[-1]) for row in counted.iter_rows()}


def _counters(trace: Trace) -> dict[tuple[int, int], list[Row]]:
    """Returns the counter rows of each (SM, CTA)."""
    peaks = trace.counters.group_by("counter", "unit", "sm", "cta").agg(pl.col("value").max())
    rows: dict[tuple[int, int], list[Row]] = {}
    for counter, unit, sm, cta, peak in peaks.sort("counter", "sm", "cta").iter_rows():
        key = f"counter:{counter}:{sm}:{cta}"
        level = 1 if cta < 0 else 2
        rows.setdefault((sm, cta), []).append(Row(key, counter, level, "counter", sm, cta, note=unit, peak=int(peak)))
    return rows
