"""Charts by name, for notebooks: `report.figure("timeline")`."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import plotly.graph_objects as go

from dashboard.figures.barriers import barrier_matrix
from dashboard.figures.categories import role_categories
from dashboard.figures.critical_path import critical_path_strip
from dashboard.figures.pipeline import pipeline_gantt
from dashboard.figures.roofline import roofline
from dashboard.figures.sms import sm_heatmap, sm_losses
from dashboard.figures.tensor_core import tensor_core_budget
from dashboard.figures.timeline import sm_timeline
from dashboard.quantities import Units
from dashboard.timeline.index import TimelineIndex
from dashboard.timeline.slots import full_barriers, slot_uses
from profiler import ParamsError, Report


def _timeline(report: Report, units: Units) -> go.Figure:
    return sm_timeline(TimelineIndex.of(report), int(report.trace.ctas["sm"][0]), units)


def _pipeline(report: Report, units: Units) -> go.Figure:
    uses = slot_uses(report.trace, int(report.trace.ctas["cta"][0]))
    return pipeline_gantt(uses, units, full_barriers(report.trace))


def _roofline(report: Report, _: Units) -> go.Figure:
    figure = roofline(report)
    if figure is None:
        raise ParamsError("there is no roofline: the launch recorded no MMA or no TMA copy, or no peak rates.")
    return figure


CHARTS: Mapping[str, Callable[[Report, Units], go.Figure]] = {
    "tensor_core": lambda report, _: tensor_core_budget(report),
    "roles": lambda report, _: role_categories(report),
    "timeline": _timeline,
    "pipeline": _pipeline,
    "barriers": barrier_matrix,
    "sms": sm_heatmap,
    "losses": sm_losses,
    "critical_path": critical_path_strip,
    "roofline": _roofline,
}


def draw(report: Report, name: str, units: str = "cycles") -> go.Figure:
    """Returns a chart of a launch.

    Args:
      report: the launch's report.
      name: which chart: a key of `CHARTS`. The timeline is the first SM's, the pipeline the first CTA's.
      units: "cycles" or "ns".

    Raises:
      ParamsError: there is no chart of that name, or not of this launch.
    """
    chart = CHARTS.get(name)
    if chart is None:
        raise ParamsError(f"there is no chart {name!r}. Charts: {', '.join(CHARTS)}")
    return chart(report, Units(units, report.trace.header.clock_hz))
