"""A simulated launch as the recorder on a GPU would have seen it, to be compared with a measured one.

The simulator also knows what no recorder sees: the cycles before a CTA's first instruction, when copies land, what the
tensor core does. Comparing that with what is inferred from a measured capture would show the inference, not the GPU.
"""

from __future__ import annotations

import dataclasses

import polars as pl

from profiler.barriers import waits_table
from profiler.counters import counters_table, loads_with_cta, unit_counters
from profiler.event_tables import SiteColumns
from profiler.measured import measured_tables
from profiler.trace import Trace


def as_measured(trace: Trace) -> Trace:
    """Returns the launch with only what its warpgroups recorded, from the first recorded moment on.

    The header keeps its provenance; `async_spans` and `arrivals` say "inferred" and "recorded".
    """
    first = trace.tracks["begin"].min()
    start = first if isinstance(first, int) else 0
    header, sites = trace.header, SiteColumns.of(trace.header)
    tracks = trace.tracks.with_columns(pl.col("begin", "end", "last") - start)
    spans = trace.spans.with_columns(pl.col("begin") - start)
    instants = trace.instants.with_columns(pl.col("time") - start)
    arrivals, async_spans = measured_tables(header, tracks, spans, instants, sites)
    waits = waits_table(spans, arrivals, tracks, sites, None, header)
    of_cta = tracks.group_by("cta").agg(pl.col("begin").min(), pl.col("end").max())
    ctas = trace.ctas.drop("begin", "end").join(of_cta, on="cta", how="left", maintain_order="left")
    return dataclasses.replace(
        trace,
        origin_cycles=trace.origin_cycles + start,
        tracks=tracks,
        spans=spans,
        instants=instants,
        async_spans=async_spans,
        arrivals=arrivals,
        waits=waits,
        counters=counters_table(
            header, arrivals, waits, loads_with_cta(spans, tracks, sites), unit_counters(async_spans)
        ),
        ctas=ctas.select(trace.ctas.columns),
    )
