"""A report as text: tables of at most 100 columns for the terminal and for logs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import polars as pl
from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from mgpu.sites import Category
from mgpu.units import format_bytes

if TYPE_CHECKING:
    from profiler.analysis.causes import Reading
    from profiler.report import Report

_MAX_ROWS = 12


def render_report(report: Report, width: int = 100, color: bool = False) -> str:
    """Returns the report as text of at most `width` columns, without trailing blanks.

    Args:
      report: what to show.
      width: columns of the terminal.
      color: True adds ANSI colours.
    """
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=width,
        force_terminal=color,
        color_system="standard" if color else None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    sections = [
        _summary(report),
        _bubbles(report),
        _outside_use(report),
        _barrier_waits(report),
        _categories(report),
        _steady_state(report),
    ]
    for section in sections:
        if section is not None:
            console.print(section)
            console.print()
    return "\n".join(line.rstrip() for line in buffer.getvalue().rstrip().splitlines()) + "\n"


def _summary(report: Report) -> RenderableType:
    header, use = report.trace.header, report.utilisation
    grid = "x".join(str(size) for size in header.grid) or "1"
    peak = f", {use.peak_share:.1%} of peak" if use.peak_flops_per_cycle else ""
    lines = [
        Text(
            f"{header.kernel}  launch {header.launch}  {header.device} ({header.provenance})  grid {grid}", style="bold"
        ),
        Text(
            f"{report.kernel_cycles:,} cycles = {report.kernel_us:,.2f} µs at {header.clock_hz / 1e9:.3f} GHz; "
            f"tensor core {use.busy_share_of_used_sms:.1%} busy on {use.sms_used} of {use.sms} SMs, "
            f"{use.flops_per_cycle:,.0f} FLOP/cycle/SM{peak}"
        ),
        Text(
            f"events: {report.trace.events_kept:,} kept, {report.trace.events_dropped:,} dropped; "
            f"recording took {report.recording_share:.1%} of warpgroup time and "
            f"{format_bytes(header.profile_smem_bytes)} of SMEM per CTA"
        ),
    ]
    lines += [Text(f"! {note}", style="yellow") for note in report.notes]
    return Group(*lines, Text(""), Text(f"Verdict: {report.verdict}.", style="bold"))


def _bubbles(report: Report) -> RenderableType | None:
    largest = report.largest_bubbles()
    if not largest:
        return None
    share = report.bubbles.bubble_share
    heading = f"Largest tensor-core bubbles ({share:.1%} of the kernel in all; between first and last MMA of each SM)"
    title, table = _table(
        heading, "#", "cause", "barrier", "source", "*count", "*cycles", "*kernel", "*p50", "*p95", "*gain <="
    )
    for number, (row, _) in enumerate(largest, 1):
        table.add_row(str(number), *_bubble_cells(row))
    note = Text("gain <=: cycles by which the kernel could get faster at most if these bubbles were gone", style="dim")
    return Group(title, table, note, Text(""), *_readings(largest))


def _readings(bubbles: list[tuple[dict[str, Any], Reading]]) -> list[RenderableType]:
    """Returns what the causes mean, once each, and the sources once each below."""
    sources = list(dict.fromkeys(reading.source for _, reading in bubbles))
    by_reading: dict[Reading, list[str]] = {}
    for row, reading in bubbles:
        by_reading.setdefault(reading, []).append(_cause(row))
    paragraphs = []
    for reading, causes in by_reading.items():
        name = "; ".join(dict.fromkeys(causes))
        text = f"{name}: {reading.meaning}. Try: {reading.remedy}. [{sources.index(reading.source) + 1}]"
        paragraphs.append(Padding(Text(text), (0, 0, 0, 2)))
    return [*paragraphs, *(Padding(Text(f"[{i}] {source}"), (0, 0, 0, 2)) for i, source in enumerate(sources, 1))]


def _bubble_cells(row: dict[str, Any]) -> list[str]:
    numbers = [f"{row[name]:,.0f}" for name in ("p50_cycles", "p95_cycles", "gain_bound_cycles")]
    place = _place(row)
    return [_cause(row), place, row["source"], f"{row['count']:,}", f"{row['total_cycles']:,}", _percent(row), *numbers]


def _place(row: dict[str, Any]) -> str:
    """Names the barrier of a group of bubbles: `full`, or `full <- empty` if another wait is behind it."""
    root = row["root_barrier"]
    return f"{row['barrier']} <- {root}" if root and root != row["barrier"] else str(row["barrier"])


def _cause(row: dict[str, Any]) -> str:
    return f"{row['cause']}, {row['detail']}" if row["detail"] else row["cause"]


def _percent(row: dict[str, Any]) -> str:
    return f"{row['kernel_share']:.1%}"


def _outside_use(report: Report) -> RenderableType | None:
    rows = report.bubbles.edge_groups.group_by("cause", maintain_order=True).agg(
        pl.col("total_cycles").sum(), pl.col("kernel_share").sum(), pl.col("gain_bound_cycles").max()
    )
    if rows.is_empty():
        return None
    title, table = _table("Outside first and last MMA of each SM", "cause", "*cycles", "*kernel")
    for row in rows.sort("total_cycles", "cause", descending=[True, False]).iter_rows(named=True):
        table.add_row(row["cause"], f"{row['total_cycles']:,}", _percent(row))
    return Group(title, table)


def _barrier_waits(report: Report) -> RenderableType | None:
    rows = report.barrier_waits.barriers
    if rows.is_empty():
        return None
    columns = [
        "barrier",
        "waiter",
        "*waits",
        "*blocked",
        "*cycles",
        "*bare",
        "*p50",
        "*p95",
        "released by",
        "which had been",
    ]
    title, table = _table("Barrier waits (cycles over all warpgroups)", *columns)
    for row in rows.head(_MAX_ROWS).iter_rows(named=True):
        names = ("waits", "blocked", "blocked_cycles", "uncovered_cycles", "p50_cycles", "p95_cycles")
        numbers = [f"{row[name]:,.0f}" for name in names]
        table.add_row(row["barrier"], row["role"], *numbers, row["released_by"], _main_blame(report, row))
    note = Text(
        "bare: blocked while the SM's tensor core had nothing in flight; p50, p95: of blocked waits", style="dim"
    )
    return Group(title, table, note, *_and_more(rows))


def _main_blame(report: Report, row: dict[str, Any]) -> str:
    blame = report.barrier_waits.releasers.filter(
        (pl.col("barrier") == row["barrier"])
        & (pl.col("role") == row["role"])
        & (pl.col("releaser") == row["released_by"])
    )
    if blame.is_empty():
        return ""
    first = blame.row(0, named=True)
    return f"{first['had_been']} {first['had_been_source']}".rstrip()


def _categories(report: Report) -> RenderableType:
    title, table = _table(
        "Where the time of each role went (% of the launch)",
        "role",
        "*tracks",
        *(f"*{name}" for name in Category),
        "waiting for",
    )
    roles = report.categories.roles
    waits = report.categories.waits
    for role in roles["role"].unique(maintain_order=True).to_list():
        rows = roles.filter(pl.col("role") == role)
        tracks = int(rows["tracks"][0])
        total = max(report.window.end * tracks, 1)
        cycles = dict(rows.select("category", "cycles").iter_rows())
        shares = [f"{cycles.get(str(category), 0) / total:.1%}" for category in Category]
        parts = waits.filter(pl.col("role") == role).head(3).iter_rows(named=True)
        split = ", ".join(f"{part['barrier'] or part['kind']} {part['cycles'] / total:.0%}" for part in parts)
        table.add_row(role, f"{tracks:,}", *shares, split)
    return Group(title, table)


def _steady_state(report: Report) -> RenderableType | None:
    rows = report.steady_state.by_warpgroup()
    if rows.is_empty():
        return None
    columns = [
        "warpgroup",
        "*iterations",
        "*interval",
        "*p95",
        "*data wait",
        "*MMA wait",
        "*other",
        "*prologue",
        "*epilogue",
    ]
    title, table = _table("Steady state (median cycles per iteration)", *columns, "bound by")
    names = (
        "iterations",
        "interval_cycles",
        "p95_interval_cycles",
        "data_wait_cycles",
        "mma_wait_cycles",
        "other_cycles",
    )
    for row in rows.head(_MAX_ROWS).iter_rows(named=True):
        numbers = [_number(row[name]) for name in (*names, "prologue_cycles", "epilogue_cycles")]
        table.add_row(row["name"], *numbers, row["bound_by"])
    return Group(title, table, *_and_more(rows))


def _and_more(rows: pl.DataFrame) -> list[Text]:
    return [Text(f"... and {rows.height - _MAX_ROWS} more rows (see the JSON)")] if rows.height > _MAX_ROWS else []


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _table(title: str, *columns: str) -> tuple[Text, Table]:
    """Returns a title and an empty table; a column whose name starts with "*" is right-aligned."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        right = column.startswith("*")
        table.add_column(column.lstrip("*"), justify="right" if right else "left", overflow="fold", no_wrap=right)
    return Text(title, style="bold"), table
