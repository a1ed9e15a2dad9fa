"""The stages that a capture goes through, each timed by itself."""

from __future__ import annotations

import dataclasses
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.decode.captures import repeat_capture
from dashboard.timeline.index import TimelineIndex
from dashboard.timeline.search import find_hit
from mgpu.capture import Capture
from profiler.analysis.critical_path import find_critical_path
from profiler.analysis.graph_edges import LaunchGraph, build_graph
from profiler.build import build_trace
from profiler.decode import decode_events
from profiler.export.perfetto import export_perfetto
from profiler.report import build_report
from profiler.store import read_tables, save_tables
from profiler.trace import Trace

SEARCHED = "full"  # a barrier: waits and loads of all CTAs


def _decode(capture: Capture, _: Path) -> Mapping[str, int]:
    return {"events": len(decode_events(capture))}


def _build(capture: Capture, _: Path) -> Mapping[str, int]:
    trace = build_trace(capture)
    return {"events": trace.events_kept, "spans": trace.spans.height}


def _saved(capture: Capture, folder: Path) -> Path:
    return save_tables(build_trace(capture), folder)


def _open(tables: Path, _: Path) -> Mapping[str, int]:
    return {"events": read_tables(tables).events_kept}


def _trace(capture: Capture, _: Path) -> Trace:
    return build_trace(capture)


def _graph(capture: Capture, _: Path) -> LaunchGraph:
    return build_graph(build_trace(capture))


def _event_graph(trace: Trace, _: Path) -> Mapping[str, int]:
    fresh = dataclasses.replace(trace)  # without what was derived from it in the run before
    return {"events": trace.events_kept, "edges": len(build_graph(fresh).graph.edges)}


def _critical_path(launch: LaunchGraph, _: Path) -> Mapping[str, int]:
    find_critical_path(launch.trace, launch)
    return {"events": launch.trace.events_kept}


def _report(trace: Trace, _: Path) -> Mapping[str, int]:
    report = build_report(dataclasses.replace(trace))  # without what was derived from it in the run before
    assert report.to_json()["verdict"], "a report has a verdict"
    return {"events": trace.events_kept}


def _searched(capture: Capture, _: Path) -> TimelineIndex:
    index = _index(build_trace(capture))
    find_hit(index.report, index, SEARCHED)
    return index


def _index(trace: Trace) -> TimelineIndex:
    return TimelineIndex.of(build_report(dataclasses.replace(trace)), waits_for_bubbles=False)


def _search(index: TimelineIndex, _: Path) -> Mapping[str, int]:
    # The last hit in view order: nothing is found early.
    found = find_hit(index.report, index, SEARCHED, row=len(index.rows) - 1, t0=index.end)
    return {"events": index.report.trace.events_kept, "boxes": index.num_boxes, "hits": found.total}


def _perfetto(name: str) -> Callable[[Trace, Path], Mapping[str, int]]:
    def export(trace: Trace, folder: Path) -> Mapping[str, int]:
        counts = export_perfetto(trace, folder / name, max_slices=trace.spans.height * 4)
        return {
            "slices": counts.slices,
            "instants": counts.instants,
            "flows": counts.flows,
            "counters": counts.counters,
        }

    return export


STAGES: dict[str, tuple[Callable[[Capture, Path], Any], Callable[[Any, Path], Mapping[str, int]]]] = {
    "decode the words": (lambda capture, _: capture, _decode),
    "build the Trace: all tables": (lambda capture, _: capture, _build),
    "open the Trace from its tables": (_saved, _open),
    "event graph": (_trace, _event_graph),
    "critical path and slack": (_graph, _critical_path),
    "whole report: all analyses": (_trace, _report),
    "dashboard: first search": (_trace, lambda trace, folder: _search(_index(trace), folder)),
    "dashboard: next search": (_searched, _search),
    "Perfetto file": (_trace, _perfetto("trace.pftrace")),
    "Perfetto file, compressed": (_trace, _perfetto("trace.pftrace.gz")),
}
"""What is prepared beforehand and not timed, and what is timed; it returns how much of what it worked on."""


def measure(stage: str, num_events: int, repeats: int) -> dict[str, Any]:
    """Runs one stage several times on a capture of `num_events` events.

    Returns:
      `work` (how much of what), `seconds` and `cpu_seconds` (the least of all runs), `peak_mib` of the whole process.
    """
    prepare, run = STAGES[stage]
    seconds, cpu_seconds, work = [], [], {}
    with tempfile.TemporaryDirectory() as folder:
        prepared = prepare(repeat_capture(num_events), Path(folder))
        for _ in range(repeats):
            began, cpu_began = time.perf_counter(), time.process_time()
            work = run(prepared, Path(folder))
            cpu_seconds.append(time.process_time() - cpu_began)
            seconds.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"work": dict(work), "seconds": min(seconds), "cpu_seconds": min(cpu_seconds), "peak_mib": peak}
