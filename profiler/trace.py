"""The Trace: the timeline of one launch as tables. Everything the profiler and the dashboard show is read from here.

Times are SM cycles since the launch's first moment (`begin`, `time`: int64; `dur`: int64). `profiler.decode`,
`profiler.clock` and `profiler.pairing` build a Trace from a Capture; `profiler.store` keeps it as Parquet.
Ids are unique within a table and its row number; -1 means "none". Rows are sorted by (track, begin) unless said.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import polars as pl

from mgpu.capture import CaptureHeader
from profiler.clock import cycles_to_ns

TRACKS: Mapping[str, pl.DataType] = {
    "track": pl.Int32(),
    "sm": pl.Int32(),
    "cta": pl.Int32(),
    "cluster": pl.Int32(),
    "warpgroup": pl.Int32(),
    "warp": pl.Int32(),  # -1: the track is a whole warpgroup
    "role": pl.String(),  # "memory" issues TMA loads, "compute" issues MMAs, "memory+compute" both, "other" neither
    "name": pl.String(),  # "WG2 memory", "WG0 warp 3 compute"
    "begin": pl.Int64(),
    "end": pl.Int64(),
    "kept": pl.Int64(),  # events
    "dropped": pl.Int64(),
    "last": pl.Int64(),  # time of the last stored event; after it a track with dropped events is unknown
}

SPANS: Mapping[str, pl.DataType] = {
    "span": pl.Int64(),
    "track": pl.Int32(),
    "parent": pl.Int64(),  # span that encloses this one on its track
    "depth": pl.Int32(),
    "site": pl.Int32(),
    "kind": pl.String(),  # SiteKind
    "category": pl.String(),  # Category of the span's own time
    "name": pl.String(),
    "begin": pl.Int64(),
    "dur": pl.Int64(),
    "self_dur": pl.Int64(),  # without what its children take
    "slot": pl.Int32(),  # barrier slot, -1 if none
    "phase": pl.Int64(),  # touches of this slot by this track and kind of site before this one, -1 if no barrier
    "closed": pl.Boolean(),  # False: its end was never recorded; it is drawn up to the track's last event
}

INSTANTS: Mapping[str, pl.DataType] = {
    "instant": pl.Int64(),
    "track": pl.Int32(),
    "site": pl.Int32(),
    "kind": pl.String(),
    "name": pl.String(),
    "time": pl.Int64(),
    "slot": pl.Int32(),
    "phase": pl.Int64(),
}

ASYNC_SPANS: Mapping[str, pl.DataType] = {  # sorted by (unit, sm, begin)
    "async_span": pl.Int64(),
    "unit": pl.String(),  # "tma_load", "tma_store", "tensor_core"
    "sm": pl.Int32(),
    "cta": pl.Int32(),
    "warpgroup": pl.Int32(),  # who issued it
    "lane": pl.Int32(),  # row of the unit's track on which it overlaps no other span: unique per (unit, sm)
    "site": pl.Int32(),
    "name": pl.String(),
    "slot": pl.Int32(),
    "begin": pl.Int64(),
    "dur": pl.Int64(),
    "bytes": pl.Int64(),
    "flops": pl.Int64(),
    "provenance": pl.String(),  # "simulated", "inferred"
}

ARRIVALS: Mapping[str, pl.DataType] = {  # sorted by (time, arrival)
    "arrival": pl.Int64(),
    "barrier": pl.String(),
    "slot": pl.Int32(),
    "phase": pl.Int64(),
    "sm": pl.Int32(),
    "cta": pl.Int32(),
    "time": pl.Int64(),
    "source": pl.String(),  # "WG1", "tma_load", "tensor_core"
    "source_track": pl.Int32(),  # who arrived; for a unit, the track that issued the work; -1 if unknown
    "site": pl.Int32(),
    "completes": pl.Boolean(),
    "source_event": pl.Int64(),  # row of the instant (warpgroup) or async span (unit) behind it; -1 if unknown
    "provenance": pl.String(),  # "simulated", "recorded", "inferred"
}

WAITS: Mapping[str, pl.DataType] = {  # one row per barrier-wait span
    "span": pl.Int64(),
    "track": pl.Int32(),
    "sm": pl.Int32(),
    "cta": pl.Int32(),
    "warpgroup": pl.Int32(),
    "role": pl.String(),
    "site": pl.Int32(),
    "barrier": pl.String(),
    "slot": pl.Int32(),
    "phase": pl.Int64(),
    "begin": pl.Int64(),
    "dur": pl.Int64(),
    "blocked": pl.Boolean(),  # the phase was not complete when the wait began
    "arrival": pl.Int64(),  # the arrival that completed the phase
    "released_at": pl.Int64(),  # its time, -1 if unknown
    "released_by": pl.String(),  # its source, "" if unknown
    "released_by_role": pl.String(),  # role of a warpgroup; for a unit, the unit's name
}

COUNTERS: Mapping[str, pl.DataType] = {  # sorted by (counter, sm, cta, time); the value holds until the next row
    # "full slots BARRIER" (per CTA), "tma bytes in flight" and "tensor core busy" (per SM, cta -1), "HBM read" and
    # "HBM write" (of the device, sm and cta -1)
    "counter": pl.String(),
    "unit": pl.String(),  # "slots", "bytes", "busy", "GB/s"
    "sm": pl.Int32(),
    "cta": pl.Int32(),
    "time": pl.Int64(),
    "value": pl.Int64(),
}

CTAS: Mapping[str, pl.DataType] = {
    "cta": pl.Int32(),
    "cluster": pl.Int32(),
    "sm": pl.Int32(),
    "begin": pl.Int64(),
    "end": pl.Int64(),
}

DEFECTS: Mapping[str, pl.DataType] = {  # what the capture did not tell, counted; empty for a flawless one
    "kind": pl.String(),  # "dropped", "orphan_end", "unclosed", "unknown_site", "clock_backwards", ...
    "track": pl.Int32(),  # -1: not of one track
    "count": pl.Int64(),
    "message": pl.String(),
}

SCHEMAS: Mapping[str, Mapping[str, pl.DataType]] = {
    "tracks": TRACKS,
    "spans": SPANS,
    "instants": INSTANTS,
    "async_spans": ASYNC_SPANS,
    "arrivals": ARRIVALS,
    "waits": WAITS,
    "counters": COUNTERS,
    "ctas": CTAS,
    "defects": DEFECTS,
}


_Derived = TypeVar("_Derived")


@dataclasses.dataclass(frozen=True)
class Trace:
    """The timeline of one launch.

    Attributes:
      header: the capture's header: kernel, device, clock, sites, barriers.
      origin_cycles: SM cycle count of time 0.
      sufficient_profile_space: the smallest `profile_space` that would have dropped nothing.
      tracks ... defects: the tables, with the columns that `SCHEMAS` lists.
      alignment_residual_cycles: how far off times of different SMs may be, relative to each other; 0 if simulated.
    """

    header: CaptureHeader
    origin_cycles: int
    sufficient_profile_space: int
    tracks: pl.DataFrame
    spans: pl.DataFrame
    instants: pl.DataFrame
    async_spans: pl.DataFrame
    arrivals: pl.DataFrame
    waits: pl.DataFrame
    counters: pl.DataFrame
    ctas: pl.DataFrame
    defects: pl.DataFrame
    alignment_residual_cycles: int = 0
    _derived: dict[str, Any] = dataclasses.field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def end(self) -> int:
        """Last moment of the launch, in cycles since its first."""
        ends = [self.tracks["end"].max(), self.ctas["end"].max()]
        return max((int(end) for end in ends if isinstance(end, int)), default=0)

    @property
    def events_kept(self) -> int:
        """Events stored on the device, over all tracks."""
        return int(self.tracks["kept"].sum())

    @property
    def events_dropped(self) -> int:
        """Events that did not fit the device buffer, over all tracks."""
        return int(self.tracks["dropped"].sum())

    def to_ns(self, cycles: float) -> float:
        """Converts a duration in cycles to ns at the launch's clock."""
        return cycles_to_ns(cycles, self.header.clock_hz)

    def derive(self, make: Callable[[Trace], _Derived]) -> _Derived:
        """Returns `make(self)`, computed once in the life of this Trace: several analyses share what is costly."""
        key = f"{make.__module__}.{make.__qualname__}"
        if key not in self._derived:
            self._derived[key] = make(self)
        return self._derived[key]

    def table(self, name: str) -> pl.DataFrame:
        """Returns a table by its name in `SCHEMAS`."""
        return getattr(self, name)
