"""Builds a Trace from a Capture: the one path from raw words to tables."""

from __future__ import annotations

import numpy as np
import polars as pl

from mgpu.capture import Capture
from mgpu.sites import SiteKind
from profiler.activity import async_spans_table
from profiler.barriers import simulated_arrivals, waits_table
from profiler.clock import Alignment, align_sms
from profiler.counters import counters_table
from profiler.decode import Events, decode_events
from profiler.defects import Defect, defects_table
from profiler.event_tables import SiteColumns, ctas_table, instants_table, spans_table, tracks_table
from profiler.measured import inferred_loads, recorded_arrivals
from profiler.pairing import pair_events
from profiler.trace import Trace

# Arrays of a block (16 MB) are small enough for the C library to reuse; larger ones come from the system page by page,
# which took longer than the work on them.
_BLOCK_EVENTS = 1 << 21


def build_trace(capture: Capture) -> Trace:
    """Returns the timeline of a launch. What the capture does not tell is in the `defects` table, never guessed."""
    events = decode_events(capture)
    alignment = align_sms(capture)
    sites = SiteColumns.of(capture.header)

    tracks = capture.tracks
    begin, end = (alignment.apply(tracks[name], tracks["sm"]) for name in ("clock_begin", "clock_end"))
    cta_begin, cta_end = (alignment.apply(capture.ctas[name], capture.ctas["sm"]) for name in ("begin", "end"))
    origin = int(min((*begin, *cta_begin), default=0))
    time = alignment.apply(events.clock, tracks["sm"][events.track]) - origin

    tracks = tracks_table(capture, events, time, (begin - origin, np.maximum(end, begin) - origin))
    spans, instants, unpaired = _pair_in_blocks(events, time, sites)
    if capture.header.provenance == "simulated":
        async_spans = async_spans_table(capture, *_unit_times(capture, alignment, origin), sites)
        arrived = alignment.apply(capture.arrivals["time"], capture.arrivals["sm"]) - origin
        arrivals, reallocations = simulated_arrivals(capture, arrived, tracks, async_spans, instants)
    else:
        reallocations = None
        arrivals = recorded_arrivals(capture, tracks, spans, instants, sites)
        async_spans = inferred_loads(arrivals, tracks, spans, sites, capture.header)
    waits = waits_table(spans, arrivals, tracks, sites, reallocations)
    loads = spans.filter(pl.col("kind") == str(SiteKind.TMA_LOAD)).join(tracks.select("track", "cta"), on="track")
    return Trace(
        header=capture.header,
        origin_cycles=origin,
        sufficient_profile_space=capture.sufficient_profile_space,
        tracks=tracks,
        spans=spans,
        instants=instants,
        async_spans=async_spans,
        arrivals=arrivals,
        waits=waits,
        counters=counters_table(capture.header, async_spans, arrivals, waits, loads),
        ctas=ctas_table(capture, cta_begin - origin, cta_end - origin),
        defects=defects_table([*events.defects, *unpaired]),
        alignment_residual_cycles=alignment.residual_cycles,
    )


def _pair_in_blocks(
    events: Events, time: np.ndarray, sites: SiteColumns
) -> tuple[pl.DataFrame, pl.DataFrame, list[Defect]]:
    """Returns the `spans` and `instants` tables, and what did not pair."""
    spans, instants, defects = [], [], []
    num_spans = num_instants = 0
    for rows in events.blocks(_BLOCK_EVENTS) or [slice(0, 0)]:
        block = events.take(rows)
        pairing = pair_events(block)
        spans.append(spans_table(block, time[rows], pairing, sites, num_spans))
        instants.append(instants_table(block, time[rows], pairing, sites, num_instants))
        num_spans += spans[-1].height
        num_instants += instants[-1].height
        defects += pairing.defects
    return pl.concat(spans, rechunk=True), pl.concat(instants, rechunk=True), defects


def _unit_times(capture: Capture, alignment: Alignment, origin: int) -> tuple[np.ndarray, np.ndarray]:
    rows = capture.unit_spans
    return tuple(alignment.apply(rows[name], rows["sm"]) - origin for name in ("begin", "end"))  # pyright: ignore[reportReturnType]
