"""Charts: pure functions from a report or trace to a Plotly figure, for the dashboard, notebooks and static reports."""

from dashboard.figures.barrier_graph import barrier_graph as barrier_graph
from dashboard.figures.barrier_phases import phase_strip as phase_strip
from dashboard.figures.barriers import barrier_matrix as barrier_matrix
from dashboard.figures.categories import role_categories as role_categories
from dashboard.figures.compare import paired_gantt as paired_gantt
from dashboard.figures.compare import waterfall as waterfall
from dashboard.figures.critical_path import critical_path_strip as critical_path_strip
from dashboard.figures.notebook import draw as draw
from dashboard.figures.pipeline import pipeline_gantt as pipeline_gantt
from dashboard.figures.pipeline import pipeline_over_time as pipeline_over_time
from dashboard.figures.roofline import roofline as roofline
from dashboard.figures.sms import sm_heatmap as sm_heatmap
from dashboard.figures.sms import sm_losses as sm_losses
from dashboard.figures.tensor_core import tensor_core_budget as tensor_core_budget
from dashboard.figures.timeline import sm_timeline as sm_timeline

__all__ = [
    "barrier_graph",
    "barrier_matrix",
    "critical_path_strip",
    "draw",
    "paired_gantt",
    "phase_strip",
    "pipeline_gantt",
    "pipeline_over_time",
    "role_categories",
    "roofline",
    "sm_heatmap",
    "sm_losses",
    "sm_timeline",
    "tensor_core_budget",
    "waterfall",
]
