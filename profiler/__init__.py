"""The profiler: recorded events of a launch become a timeline, a Perfetto trace, and answers.

    launches = profiler.open("profile_dir")
    trace = launches[0].load_trace()         # tables: spans, waits, arrivals, counters (profiler.trace)
    profiler.export_perfetto(trace, "trace.pftrace")
    print(profiler.build_report(trace).to_text())

Nothing here needs JAX or a GPU.
"""

from mgpu.errors import CaptureError as CaptureError
from mgpu.errors import MgpuError as MgpuError
from mgpu.errors import ParamsError as ParamsError
from profiler.analysis.compare import CompareReport as CompareReport
from profiler.analysis.compare import compare_reports as compare_reports
from profiler.build import build_trace as build_trace
from profiler.check import check_trace as check_trace
from profiler.export.perfetto import ExportCounts as ExportCounts
from profiler.export.perfetto import export_perfetto as export_perfetto
from profiler.report import Report as Report
from profiler.report import build_report as build_report
from profiler.store import Launch as Launch
from profiler.store import load_trace as load_trace
from profiler.store import open_profile as open_profile
from profiler.store import save_tables as save_tables
from profiler.summary import summarise as summarise
from profiler.trace import Trace as Trace

open = open_profile  # `profiler.open(path)` reads as it should

__all__ = [
    "CaptureError",
    "CompareReport",
    "ExportCounts",
    "Launch",
    "MgpuError",
    "ParamsError",
    "Report",
    "Trace",
    "build_report",
    "build_trace",
    "check_trace",
    "compare_reports",
    "export_perfetto",
    "load_trace",
    "open",
    "open_profile",
    "save_tables",
    "summarise",
]
