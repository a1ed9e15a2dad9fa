"""What would the launch have taken if one thing were different? Estimates by replay on the event graph, ranked.

A replay keeps everything but what the scenario changes: loads queue as they did, CTAs stay on their SMs, a lock goes to
whom it went. It is an estimate, and says so. On a simulated kernel `mgpu whatif --script` runs the changed kernel
instead.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import polars as pl

from profiler.analysis.event_graph import EventGraph
from profiler.analysis.graph_edges import LaunchGraph, build_graph
from profiler.analysis.scenarios import Scenario, build_scenarios
from profiler.analysis.window import Window, known_window
from profiler.trace import Trace


@dataclasses.dataclass(frozen=True)
class WhatIfReport:
    """Predicted lengths of changed launches.

    Attributes:
      window: the analysed stretch.
      scenarios: `scenario, predicted_cycles, gain_cycles, speedup` (old over new), `is_bound` (nobody can build it),
        `caveat`, `provenance` ("estimate": replayed); largest gain first.
      cycles: length of the launch as it was.
    """

    window: Window
    scenarios: pl.DataFrame
    cycles: int

    def gain(self, scenario: str) -> float:
        """Returns the predicted gain of the scenario whose name begins so, as a part of the launch; 0.0 if none."""
        rows = self.scenarios.filter(pl.col("scenario").str.starts_with(scenario))
        return float(rows["gain_cycles"][0]) / max(self.cycles, 1) if rows.height else 0.0


def predict_changes(trace: Trace, launch: LaunchGraph | None = None) -> WhatIfReport:
    """Replays a launch with one thing changed at a time.

    Args:
      trace: the launch.
      launch: its event graph, if there is one already.
    """
    launch = launch or build_graph(trace)
    scenarios = build_scenarios(launch)
    rows = [
        _prediction(launch, scenario, after)
        for scenario, after in zip(scenarios, _ends(launch.graph, scenarios), strict=True)
    ]
    schema = {
        "scenario": pl.String(), "predicted_cycles": pl.Int64(), "gain_cycles": pl.Int64(), "speedup": pl.Float64(),
        "is_bound": pl.Boolean(), "caveat": pl.String(), "provenance": pl.String(),
    }  # fmt: skip
    table = pl.DataFrame(rows, schema=schema, orient="row")
    return WhatIfReport(known_window(trace), table.sort("gain_cycles", "scenario", descending=[True, False]), trace.end)


def _ends(graph: EventGraph, scenarios: Sequence[Scenario]) -> list[int]:
    """Returns how many cycles the launch would take in each scenario."""
    reweighted = [row for row, scenario in enumerate(scenarios) if scenario.src is None]
    ends = [0] * len(scenarios)
    for row, end in zip(reweighted, graph.solve_ends([scenarios[row].weight for row in reweighted]), strict=True):
        ends[row] = end
    for row, scenario in enumerate(scenarios):
        if scenario.src is not None:
            ends[row] = int(graph.solve(scenario.weight, scenario.src)[EventGraph.SINK])
    return ends


def _prediction(launch: LaunchGraph, scenario: Scenario, after: int) -> tuple[str, int, int, float, bool, str, str]:
    before = int(launch.graph.time[EventGraph.SINK])
    return (
        scenario.name, after, before - after, before / max(after, 1), scenario.is_bound, scenario.caveat, "estimate"
    )  # fmt: skip
