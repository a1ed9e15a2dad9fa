"""The memory's part of the event graph: all SMs' loads together land no faster than HBM delivers.

A load that queues for HBM waits for those of other SMs. So the edges here go from one landing to a later one, whichever
SMs they are on: between the two, what HBM moved in that time takes at least its cycles at HBM's bandwidth. Where HBM
was not observed (measured launches), the loads' own bytes stand for its traffic, unless they land faster than HBM could
deliver them: then L2 delivered most, and nothing is known of HBM.
"""

from __future__ import annotations

import numpy as np
import polars as pl

from profiler.analysis.event_graph import Edges, Step
from profiler.counters import HBM_READ, HBM_WRITE
from profiler.trace import Trace

WITHIN_HBM = 1.05
"""Of its bandwidth: a launch that loads faster over its whole length does not load from HBM alone."""


def memory_edges(trace: Trace, loads: np.ndarray, end: np.ndarray, end_node: np.ndarray) -> Edges:
    """Returns the edges between landings that HBM's bandwidth keeps apart.

    Args:
      trace: the launch.
      loads: rows of its async spans that are loads.
      end: cycles, of all async spans: int64.
      end_node: int64[async spans], node of each one's end.
    """
    order = loads[np.argsort(end[loads], kind="stable")]
    stride = max(trace.tracks["sm"].n_unique(), 1)  # so that an edge spans about one load of each SM
    bytes_per_cycle = float(trace.header.peaks.get("hbm_bytes", 0.0)) * trace.header.num_sms
    time, moved = _observed_traffic(trace)
    if not len(time) and bytes_per_cycle and len(order):
        time, moved = _traffic_of_loads(trace, order, end, bytes_per_cycle)
    if not len(time) or not bytes_per_cycle:
        order = order[:0]
        time, moved, bytes_per_cycle = np.zeros(1), np.zeros(1), 1.0
    before, after = order[: max(len(order) - stride, 0)], order[stride:]
    at_hbm_rate = (np.interp(end[after], time, moved) - np.interp(end[before], time, moved)) / bytes_per_cycle
    weight = np.minimum(at_hbm_rate.astype(np.int64), end[after] - end[before])
    return Edges.of(Step.MEMORY, end_node[before], end_node[after], weight, after, np.full(len(after), -1))


def _observed_traffic(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Returns moments (cycles) and the bytes that HBM had moved by then, float64 both; empty if it was not observed."""
    rates = trace.counters.filter(pl.col("counter").is_in([HBM_READ, HBM_WRITE])).sort("counter", "time")
    change = (pl.col("value") - pl.col("value").shift(1, fill_value=0)).over("counter")
    changes = rates.select("time", change=change).sort("time")
    time, gigabytes_per_second = changes["time"].to_numpy().astype(np.float64), changes["change"].to_numpy().cumsum()
    bytes_per_cycle = gigabytes_per_second * (1e9 / trace.header.clock_hz)
    return time, np.concatenate([np.zeros(min(len(time), 1)), np.cumsum(bytes_per_cycle[:-1] * np.diff(time))])


def _traffic_of_loads(
    trace: Trace, order: np.ndarray, end: np.ndarray, bytes_per_cycle: float
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the same of the loads' own bytes; empty if they are more than HBM could have delivered.

    Args:
      trace: the launch.
      order: its loads, as they landed.
      end: cycles, of all async spans.
      bytes_per_cycle: of HBM.
    """
    time = end[order].astype(np.float64)
    moved = np.cumsum(trace.async_spans["bytes"].to_numpy()[order].astype(np.float64))
    if moved[-1] - moved[0] > WITHIN_HBM * bytes_per_cycle * (time[-1] - time[0]):
        return np.zeros(0), np.zeros(0)
    return time, moved
