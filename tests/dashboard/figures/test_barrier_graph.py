from __future__ import annotations

import json

from dashboard import figures
from dashboard.figures.barrier_graph import BACKWARD, DIRECTION_COLORS, FORWARD, signals
from dashboard.quantities import Units
from dashboard.store import LoadedLaunch

CYCLES = Units("cycles", 1.755e9)


def test_ring_has_a_forward_and_a_backward_edge(ring: LoadedLaunch) -> None:
    edges = {row["barrier"]: row for row in signals(ring.report).to_dicts()}
    assert set(edges) == {"full", "empty"}
    full, empty = edges["full"], edges["empty"]
    assert (full["signaller"], full["via"], full["waiter"], full["direction"]) == (
        "memory",
        "tma_load",
        "compute",
        FORWARD,
    )
    assert (empty["signaller"], empty["via"], empty["waiter"], empty["direction"]) == (
        "compute",
        "",
        "memory",
        BACKWARD,
    )
    # Two CTAs of six tiles: both consumers wait for each; the producer waits for all but the first round of two.
    assert (full["waits"], empty["waits"]) == (2 * 2 * 6, 2 * 4)


def test_blocked_cycles_of_the_edges_are_those_of_the_report(matmul: LoadedLaunch) -> None:
    edges = signals(matmul.report)
    waits = matmul.report.barrier_waits
    for column in ("blocked_cycles", "uncovered_cycles"):
        assert edges[column].sum() == waits.barriers[column].sum()


def test_arrows_point_forward_above_and_backward_below(ring: LoadedLaunch) -> None:
    figure = figures.barrier_graph(ring.report, CYCLES)
    by_color = {trace["line"]["color"]: trace for trace in json.loads(figure.to_json() or "")["data"]}
    forward, backward = by_color[DIRECTION_COLORS[FORWARD]], by_color[DIRECTION_COLORS[BACKWARD]]
    assert forward["x"][0] < forward["x"][-1]
    assert min(forward["y"]) > 0
    assert backward["x"][0] > backward["x"][-1]
    assert max(backward["y"]) < 0
    texts = " ".join(note["text"] for note in figure.layout["annotations"])
    blocked = {row["barrier"]: row["blocked_cycles"] for row in signals(ring.report).to_dicts()}
    assert f"<b>empty</b>: {blocked['empty']:,} cycles" in texts
    assert f"<b>full</b> by TMA load: {blocked['full']:,} cycles" in texts
