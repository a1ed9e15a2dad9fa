"""Who waited for whom, and the chain of blame behind it."""

from __future__ import annotations

import polars as pl
import pytest

from mgpu.sites import SiteKind
from profiler.analysis.barrier_waits import find_barrier_waits
from profiler.analysis.blame import blame_chain
from profiler.build import build_trace
from profiler.trace import Trace
from support.captures import ring_capture
from support.traces import TraceBuilder

WAIT = SiteKind.BARRIER_WAIT


@pytest.fixture
def ring() -> Trace:
    """One CTA: loads land 500 after their issue, at 500, 520, then 732 + 500; both consumers wait for each."""
    return build_trace(ring_capture(num_ctas=1, iterations=3))


def test_waits_of_a_ring(ring: Trace) -> None:
    report = find_barrier_waits(ring)
    full = report.barriers.filter(pl.col("barrier") == "full").row(0, named=True)
    # WG0 waits 0..504 and 928..1236, WG1 0..504 and 928..1236 but for their own MMA waits: see the trace's spans.
    spans = ring.waits.filter((pl.col("barrier") == "full") & pl.col("blocked"))
    assert full["blocked_cycles"] == spans["dur"].sum()
    assert (full["waits"], full["blocked"], full["released_by"]) == (6, 4, "tma_load")
    empty = report.barriers.filter(pl.col("barrier") == "empty").row(0, named=True)
    assert (empty["waits"], empty["blocked_cycles"], empty["released_by"]) == (1, 692, "compute")
    assert report.slots.filter(pl.col("barrier") == "full")["slot"].sort().to_list() == [0, 1]


def test_uncovered_is_what_no_mma_ran_under(ring: Trace) -> None:
    waits = find_barrier_waits(ring).waits
    empty = waits.filter(pl.col("barrier") == "empty").row(0, named=True)
    # The memory warpgroup waits 40..732; three MMAs run from 524 to 824 without a pause.
    assert (empty["begin"], empty["blocked_cycles"], empty["uncovered_cycles"]) == (40, 692, 524 - 40)


def test_matrix_has_waiter_and_releaser(ring: Trace) -> None:
    matrix = find_barrier_waits(ring).matrix
    assert matrix.select("role", "releaser").rows() == [("compute", "tma_load"), ("memory", "compute")]
    assert matrix["blocked_cycles"].sum() == find_barrier_waits(ring).waits["blocked_cycles"].sum()


def test_blame_names_what_the_releaser_did() -> None:
    trace = TraceBuilder()
    waiter, slow = trace.track("memory", 0, 500), trace.track("compute", 0, 500)
    trace.span(waiter, WAIT, 100, 304, "empty", 0, line=11)
    trace.span(slow, SiteKind.SCOPE, 90, 295, line=30)
    trace.arrive(300, "empty", 0, slow)
    row = find_barrier_waits(trace.build()).waits.row(0, named=True)
    assert (row["had_been"], row["had_been_source"]) == ("busy in scope", "hand.py:30")


@pytest.mark.parametrize(("begin", "end", "had_been"), [(0, 300, "load in flight"), (0, 480, "load queued")])
def test_blame_of_a_load(begin: int, end: int, had_been: str) -> None:
    trace = TraceBuilder()
    memory, compute = trace.track("memory", 0, 900), trace.track("compute", 0, 900)
    trace.load(memory, begin, end, "full", 0, line=12)
    trace.load(memory, 500, 800, "full", 1)  # the fastest: 300 cycles
    trace.span(compute, WAIT, 50, end + 4, "full", 0)
    row = find_barrier_waits(trace.build()).waits.row(0, named=True)
    assert (row["had_been"], row["had_been_source"], row["load_issued"]) == (had_been, "hand.py:12", begin)


def test_blame_chain_ends_at_its_root(ring: Trace) -> None:
    late = ring.waits.with_row_index("row").filter(
        (pl.col("barrier") == "full") & (pl.col("phase") == 1) & (pl.col("warpgroup") == 0)
    )
    steps = [(step.name, step.what, step.begin, step.end) for step in blame_chain(ring, late["row"][0])]
    assert steps == [
        ("WG0 compute", "waited on full[0] phase 1", 828, 1236),
        ("TMA", "TMA load", 732, 1232),
        ("WG2 memory", "waited on empty[0] phase 0", 40, 732),
        ("WG1 compute", "waited on full[0] phase 0", 0, 504),
        ("TMA", "TMA load", 0, 500),
    ]


def test_blame_chain_shows_a_busy_issuer() -> None:
    trace = TraceBuilder()
    memory, compute = trace.track("memory", 0, 900), trace.track("compute", 0, 900)
    trace.span(memory, SiteKind.SCOPE, 0, 400, line=7)
    trace.load(memory, 400, 600, "full", 0)
    trace.span(compute, WAIT, 100, 604, "full", 0)
    steps = blame_chain(trace.build(), 0)
    assert [step.what for step in steps] == ["waited on full[0] phase 0", "TMA load", "was busy in scope"]
    assert steps[-1].source == "hand.py:7"


def test_waits_after_the_window_are_left_out() -> None:
    trace = TraceBuilder()
    memory, compute = trace.track("memory", 0, 900, known_until=300), trace.track("compute", 0, 900)
    for begin in (100, 400):
        trace.load(memory, begin, begin + 100, "full")
        trace.span(compute, WAIT, begin, begin + 104, "full", 0)
    assert find_barrier_waits(trace.build()).waits["begin"].to_list() == [100]


def test_wait_without_known_arrival_has_an_unknown_releaser() -> None:
    trace = TraceBuilder()
    compute = trace.track("compute", 0, 900)
    trace.span(compute, WAIT, 0, 100, "order", 0)
    row = find_barrier_waits(trace.build()).waits.row(0, named=True)
    assert (row["releaser"], row["had_been"], row["blocked_cycles"]) == ("unknown", "unknown", 100)
