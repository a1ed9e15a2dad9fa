"""A pipeline run twice by the same warpgroups: its barriers are allocated anew, so their phases start again at 0."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from profiler.build import build_trace
from profiler.check import check_trace
from support.captures import ring_capture


def run_twice(**ring):
    """Returns a capture of one CTA that does what two CTAs, one after the other, did on an SM."""
    two = ring_capture(num_ctas=2, num_sms=1, **ring)
    tracks = two.tracks[:3].copy()
    offsets = two.offsets
    words = []
    for track, later in enumerate((3, 4, 5)):
        tracks[track]["count"] += two.tracks[later]["count"]
        tracks[track]["clock_end"] = two.tracks[later]["clock_end"]
        words += [two.words[offsets[t] : offsets[t + 1]] for t in (track, later)]
    ctas = two.ctas[:1].copy()
    ctas["end"] = two.ctas["end"][1]
    unit_spans, arrivals = two.unit_spans.copy(), two.arrivals.copy()
    unit_spans["cta"] = arrivals["cta"] = arrivals["source_cta"] = 0
    header = dataclasses.replace(two.header, grid=(1,))
    return dataclasses.replace(
        two,
        header=header,
        tracks=tracks,
        words=np.concatenate(words),
        ctas=ctas,
        unit_spans=unit_spans,
        arrivals=arrivals,
    )


@pytest.mark.parametrize("ring", [{}, {"stages": 3, "iterations": 7}, {"stages": 4, "iterations": 2}])
def test_waits_meet_their_arrivals_in_every_allocation(ring) -> None:
    trace = build_trace(run_twice(**ring))
    apart = build_trace(ring_capture(num_ctas=2, num_sms=1, **ring))
    columns = ["barrier", "slot", "begin", "dur", "blocked", "released_at", "released_by"]
    assert trace.waits.select(columns).sort(columns).equals(apart.waits.select(columns).sort(columns))
    assert check_trace(trace) == []


def test_phases_go_on_over_allocations() -> None:
    trace = build_trace(run_twice())
    completing = trace.arrivals.filter("completes", pl.col("barrier") == "full", pl.col("slot") == 0)
    assert completing["phase"].to_list() == [0, 1, 2, 3, 4, 5]
    # The memory warpgroup does not wait for the last release of a slot, so its waits skip a phase.
    memory = trace.waits.filter(pl.col("barrier") == "empty", pl.col("slot") == 0)
    assert memory["phase"].to_list() == [0, 1, 3, 4]
