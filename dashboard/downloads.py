"""Files that can be downloaded of a launch: tables, the report, the Perfetto trace, the raw capture."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import polars as pl

import profiler
from dashboard.filtering import filter_table
from dashboard.store import LoadedLaunch
from dashboard.timeline.losses import losses_table
from profiler import Report
from profiler.trace import SCHEMAS

Download = Callable[[LoadedLaunch, str], tuple[bytes, str]]
"""Makes a file of a launch: its bytes and media type. Of a table, only the rows that a filter lets pass."""

REPORT_TABLES: Mapping[str, Callable[[Report], pl.DataFrame]] = {
    "bubbles": lambda report: pl.concat([report.bubbles.groups, report.bubbles.edge_groups]),
    "all_bubbles": lambda report: losses_table(report.bubbles),
    "barrier_waits": lambda report: report.barrier_waits.barriers,
    "barrier_slots": lambda report: report.barrier_waits.slots,
    "releasers": lambda report: report.barrier_waits.releasers,
    "categories": lambda report: report.categories.roles,
    "critical_path": lambda report: report.critical_path.parts,
    "slack": lambda report: report.critical_path.slack,
    "what_if": lambda report: report.what_if.scenarios,
    "ceilings": lambda report: report.roofline.ceilings,
    "sms": lambda report: report.balance.sms,
    "iterations": lambda report: report.steady_state.iterations,
}

PARTS_OF_TABLES: Mapping[str, tuple[str, ...]] = {
    "bubbles": ("bubbles",),
    "all_bubbles": ("bubbles",),
    "barrier_waits": ("barrier_waits",),
    "barrier_slots": ("barrier_waits",),
    "releasers": ("barrier_waits",),
    "categories": ("categories",),
    "critical_path": ("critical_path",),
    "slack": ("critical_path",),
    "what_if": ("what_if",),
    "ceilings": ("roofline",),
    "sms": ("balance",),
    "iterations": ("steady_state",),
}
"""The parts of the report that its tables are of."""


def table_of(launch: LoadedLaunch, name: str) -> pl.DataFrame | None:
    """Returns a table of the trace or the report by name, None if there is no such table."""
    if name in SCHEMAS:
        return launch.trace.table(name)
    make = REPORT_TABLES.get(name)
    return make(launch.report) if make else None


def table_names() -> list[str]:
    """Returns the names of all tables: those of the report, then those of the trace."""
    return [*REPORT_TABLES, *SCHEMAS]


def _filtered(launch: LoadedLaunch, name: str, query: str) -> pl.DataFrame:
    table = table_of(launch, name)
    return pl.DataFrame() if table is None else filter_table(table, query)


def _csv(name: str) -> Download:
    def make(launch: LoadedLaunch, query: str) -> tuple[bytes, str]:
        return _filtered(launch, name, query).write_csv().encode(), "text/csv"

    return make


def _parquet(name: str) -> Download:
    def make(launch: LoadedLaunch, query: str) -> tuple[bytes, str]:
        buffer = io.BytesIO()
        _filtered(launch, name, query).write_parquet(buffer)
        return buffer.getvalue(), "application/vnd.apache.parquet"

    return make


def _report_json(launch: LoadedLaunch, _: str) -> tuple[bytes, str]:
    return json.dumps(launch.report.to_json(), indent=1).encode(), "application/json"


def _report_text(launch: LoadedLaunch, _: str) -> tuple[bytes, str]:
    return launch.report.to_text().encode(), "text/plain"


def _perfetto(launch: LoadedLaunch, _: str) -> tuple[bytes, str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.pftrace"
        profiler.export_perfetto(launch.trace, path)
        return path.read_bytes(), "application/octet-stream"


def _capture(launch: LoadedLaunch, _: str) -> tuple[bytes, str]:
    return launch.launch.capture_path.read_bytes(), "application/octet-stream"


DOWNLOADS: Mapping[str, Download] = {
    **{f"{name}.csv": _csv(name) for name in table_names()},
    **{f"{name}.parquet": _parquet(name) for name in table_names()},
    "report.json": _report_json,
    "report.txt": _report_text,
    "trace.pftrace": _perfetto,
    "capture.npz": _capture,
}
