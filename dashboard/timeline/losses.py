"""Use of the tensor cores as intervals: busy, and the losses between and around it."""

from __future__ import annotations

import polars as pl

from profiler import Trace
from profiler.analysis import BubbleReport, known_window
from profiler.analysis.mma_activity import find_mma_activity


def losses_table(report: BubbleReport) -> pl.DataFrame:
    """Returns bubbles and edges in one table: the columns of `BubbleReport.bubbles`; a loss is known by its row."""
    return pl.concat([report.bubbles, report.edges])


def tensor_core_intervals(trace: Trace) -> pl.DataFrame:
    """Returns `sm, begin, end` of the stretches in which an MMA was in flight."""
    sets = find_mma_activity(trace, known_window(trace)).in_flight()
    return pl.DataFrame({"sm": sets.group, "begin": sets.begin, "end": sets.end})
