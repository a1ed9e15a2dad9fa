"""Builds a Trace from a Capture: the one path from raw words to tables."""

from __future__ import annotations

import os
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np
import polars as pl

from mgpu.capture import Capture
from profiler.activity import async_spans_table
from profiler.barriers import waits_table
from profiler.blocks import BLOCK_EVENTS, cut_into_blocks, join_blocks, read_block
from profiler.clock import Alignment, align_sms
from profiler.counters import counters_table, hbm_counters, loads_with_cta, unit_counters
from profiler.decode import capture_defects
from profiler.defects import defects_table
from profiler.event_tables import SiteColumns, ctas_table, tracks_table
from profiler.measured import measured_tables
from profiler.simulated_arrivals import ListedArrivals, list_arrivals, simulated_arrivals
from profiler.trace import Trace

# Blocks, and the units' activity, are worked on side by side: NumPy and Polars let other threads run.
_MAX_THREADS = 4


def build_trace(capture: Capture) -> Trace:
    """Returns the timeline of a launch. What the capture does not tell is in the `defects` table, never guessed."""
    with ThreadPoolExecutor(min(_MAX_THREADS, os.cpu_count() or 1)) as pool:
        return _build(capture, pool)


def _build(capture: Capture, pool: Executor) -> Trace:
    alignment = align_sms(capture)
    sites = SiteColumns.of(capture.header)

    tracks = capture.tracks
    begin, end = (alignment.apply(tracks[name], tracks["sm"]) for name in ("clock_begin", "clock_end"))
    cta_begin, cta_end = (alignment.apply(capture.ctas[name], capture.ctas["sm"]) for name in ("begin", "end"))
    origin = int(min((*begin, *cta_begin), default=0))

    is_simulated = capture.header.provenance == "simulated"
    activity = pool.submit(_activity, capture, alignment, origin, sites) if is_simulated else None
    pieces = cut_into_blocks(capture.offsets, BLOCK_EVENTS)
    read = [pool.submit(read_block, capture, *piece, alignment, origin, sites) for piece in pieces]
    events = join_blocks([future.result() for future in read], sites, pool)
    spans, instants = events.spans, events.instants
    tracks = tracks_table(capture, events.last, events.issued, (begin - origin, np.maximum(end, begin) - origin))
    if activity is not None:
        async_spans, listed = activity.result()
        reallocations = listed.reallocations
        of_units = pool.submit(unit_counters, async_spans)
        arrivals = simulated_arrivals(capture.header, listed, tracks, async_spans, instants, spans)
    else:
        reallocations = None
        arrivals, async_spans = measured_tables(capture.header, tracks, spans, instants, sites)
        of_units = pool.submit(unit_counters, async_spans)
    waits = waits_table(spans, arrivals, tracks, sites, reallocations, capture.header)
    loads = loads_with_cta(spans, tracks, sites)
    hbm = hbm_counters(capture.hbm, origin, capture.header.clock_hz) if len(capture.hbm) else None
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
        counters=counters_table(capture.header, arrivals, waits, loads, of_units.result(), hbm),
        ctas=ctas_table(capture, cta_begin - origin, cta_end - origin),
        defects=defects_table([*events.defects, *capture_defects(capture)]),
        alignment_residual_cycles=alignment.residual_cycles,
    )


def _activity(
    capture: Capture, alignment: Alignment, origin: int, sites: SiteColumns
) -> tuple[pl.DataFrame, ListedArrivals]:
    """Returns the `async_spans` table of a capture with unit activity, and its arrivals."""
    rows = capture.unit_spans
    begin, end = (alignment.apply(rows[name], rows["sm"]) - origin for name in ("begin", "end"))
    async_spans = async_spans_table(capture, begin, end, sites)
    arrived = alignment.apply(capture.arrivals["time"], capture.arrivals["sm"]) - origin
    return async_spans, list_arrivals(capture, arrived, async_spans)
