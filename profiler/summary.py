"""What a user sees right after a run: the report, the files that were written, and what to type next."""

from __future__ import annotations

import shlex
from pathlib import Path

from mgpu.errors import CaptureError
from profiler.export.perfetto import export_perfetto
from profiler.report import build_report
from profiler.store import open_profile, save_tables

PERFETTO_FILE = "trace.pftrace"
REPORT_FILE = "report.txt"


def summarise(directory: str | Path, width: int = 100) -> str:
    """Analyses the newest launch of a profile directory and writes its Perfetto trace, tables and report beside it.

    Args:
      directory: a profile directory, or the folder of one launch.
      width: columns of the text.

    Returns:
      The report, where the files are, and the next commands.

    Raises:
      CaptureError: there is no launch, or it cannot be read or written.
    """
    launches = open_profile(directory)
    if not launches:
        raise CaptureError(
            f"{directory}: no launch was recorded here. Run a kernel with profile_dir={str(directory)!r}."
        )
    launch = max(launches, key=lambda launch: launch.capture_path.stat().st_mtime_ns)
    trace = launch.load_trace()
    report = build_report(trace).to_text(width)
    tables = save_tables(trace, launch.folder)
    trace_path = launch.folder / PERFETTO_FILE
    counts = export_perfetto(trace, trace_path)
    (launch.folder / REPORT_FILE).write_text(report + "\n")
    quoted = shlex.quote(str(directory))
    lines = [
        report.rstrip(),
        "",
        "Written",
        f"  {trace_path}\n    Perfetto trace: {counts.to_text()}",
        f"  {tables}/\n    event tables (Parquet)",
        "",
        "Next",
        f"  mgpu dashboard {quoted}        timeline, bubbles and barrier waits in the browser",
        f"  https://ui.perfetto.dev        open {trace_path.name} there; nothing is uploaded",
        f"  mgpu waits {quoted}            every barrier and slot",
    ]
    return "\n".join(lines)
