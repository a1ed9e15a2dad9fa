"""What a report says, as titled tables and lines of text; `profiler.report_render` gives them a form."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import polars as pl

from mgpu.sites import Category
from mgpu.units import format_bytes
from profiler.source_names import shorten_source

if TYPE_CHECKING:
    from profiler.analysis.causes import Reading
    from profiler.report import Report

MAX_ROWS = 12
_PATH_ROWS = 8


@dataclasses.dataclass(frozen=True)
class Section:
    """One part of a report.

    Attributes:
      title: heading, "" if none.
      lines: text above the table.
      columns: of the table; a name that begins with "*" is right-aligned. Empty: no table.
      rows: cells, as text.
      notes: text below the table.
      items: a numbered list below that.
    """

    title: str
    lines: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


def report_sections(report: Report) -> list[Section]:
    """Returns all parts of a report that have something to say, in reading order."""
    parts = [
        _summary(report),
        _advice(report),
        _bubbles(report),
        _outside_use(report),
        _barrier_waits(report),
        _categories(report),
        _steady_state(report),
        _critical_path(report),
        _what_if(report),
        _balance(report),
    ]
    return [part for part in parts if part is not None]


def _summary(report: Report) -> Section:
    header = report.trace.header
    grid = "x".join(str(size) for size in header.grid) or "1"
    title = f"{header.kernel}  launch {header.launch}  {header.device} ({header.provenance})  grid {grid}"
    clock = f" at {header.clock_hz / 1e9:.3f} GHz" if header.clock_hz else ""
    clock += f" ({header.clock_rule})" if header.clock_rule else ""
    lines = [
        f"{report.kernel_cycles:,} cycles = {report.kernel_us:,.2f} µs{clock}; {_throughput(report)}",
        f"events: {report.trace.events_kept:,} kept, {report.trace.events_dropped:,} dropped; "
        f"recording took {report.recording_share:.1%} of warpgroup time and "
        f"{format_bytes(header.profile_smem_bytes)} of SMEM per CTA{_unprofiled(report)}",
        *(f"! {note}" for note in report.notes),
        "",
        f"Verdict: {report.verdict}.",
    ]
    return Section(title, tuple(lines))


def _throughput(report: Report) -> str:
    """Says what the launch achieved: of its tensor cores, or, if it used none, of its copies."""
    use, roof = report.utilisation, report.roofline
    if not use.sms_used:
        moved = roof.load_bytes + roof.store_bytes
        rate = moved / max(report.window.end * report.balance.sms.height, 1)
        return f"no MMA; TMA moved {format_bytes(moved)}, {rate:,.1f} bytes/cycle on each of the SMs in use"
    peak = f", {use.peak_share:.1%} of peak" if use.peak_flops_per_cycle else ""
    return (
        f"tensor core {use.busy_share_of_used_sms:.1%} busy on {use.sms_used} of {use.sms} SMs, "
        f"{use.flops_per_cycle:,.0f} FLOP/cycle/SM{peak}"
    )


def _unprofiled(report: Report) -> str:
    """Says what the launch would have taken without recording, by replay."""
    cycles = report.what_if.cycles - round(report.what_if.gain("no recording") * report.what_if.cycles)
    return f"; without it about {cycles:,} cycles (replay)" if cycles < report.what_if.cycles else ""


def _advice(report: Report) -> Section | None:
    items = [f"{item.remedy}: {item.gain_text}. {item.evidence}." for item in report.advice.items]
    if not items:
        return None
    note = (
        "replay: predicted on the event graph of this launch (an estimate); "
        "at most: a bound, not a prediction, ranked with half of it"
    )
    return Section("What to try, by gain", items=tuple(items), notes=(note,))


def _bubbles(report: Report) -> Section | None:
    largest = report.largest_bubbles()
    if not largest:
        return None
    share = report.bubbles.bubble_share
    title = f"Largest tensor-core bubbles ({share:.1%} of the kernel between first and last MMA of its SM)"
    columns = ("#", "cause", "barrier", "source", "*count", "*cycles", "*kernel", "*p50", "*p95", "*gain <=")
    rows = [(str(number), *_bubble_cells(row)) for number, (row, _) in enumerate(largest, 1)]
    note = "gain <=: cycles by which the kernel could get faster at most if these bubbles were gone"
    return Section(title, (), columns, tuple(rows), (note, *_readings(largest)))


def _readings(bubbles: list[tuple[dict[str, Any], Reading]]) -> list[str]:
    """Returns what the causes mean, once each, and the sources once each below."""
    sources = list(dict.fromkeys(reading.source for _, reading in bubbles))
    by_reading: dict[Reading, list[str]] = {}
    for row, reading in bubbles:
        by_reading.setdefault(reading, []).append(_cause(row))
    lines = []
    for reading, causes in by_reading.items():
        name = "; ".join(dict.fromkeys(causes))
        lines.append(f"{name}: {reading.meaning}. Try: {reading.remedy}. [{sources.index(reading.source) + 1}]")
    return [*lines, *(f"[{number}] {source}" for number, source in enumerate(sources, 1))]


def _bubble_cells(row: dict[str, Any]) -> list[str]:
    numbers = [f"{row[name]:,.0f}" for name in ("p50_cycles", "p95_cycles", "gain_bound_cycles")]
    source = shorten_source(row["source"])
    return [_cause(row), _place(row), source, f"{row['count']:,}", f"{row['total_cycles']:,}", _percent(row), *numbers]


def _place(row: dict[str, Any]) -> str:
    """Names the barrier of a group of bubbles: `full`, or `full <- empty` if another wait is behind it."""
    root = row["root_barrier"]
    return f"{row['barrier']} <- {root}" if root and root != row["barrier"] else str(row["barrier"])


def _cause(row: dict[str, Any]) -> str:
    return f"{row['cause']}, {row['detail']}" if row["detail"] else row["cause"]


def _percent(row: dict[str, Any]) -> str:
    return f"{row['kernel_share']:.1%}"


def _outside_use(report: Report) -> Section | None:
    rows = report.bubbles.edge_groups.group_by("cause", maintain_order=True).agg(
        pl.col("total_cycles").sum(), pl.col("kernel_share").sum(), pl.col("gain_bound_cycles").max()
    )
    if rows.is_empty():
        return None
    ordered = rows.sort("total_cycles", "cause", descending=[True, False]).iter_rows(named=True)
    cells = tuple((row["cause"], f"{row['total_cycles']:,}", _percent(row)) for row in ordered)
    return Section("Outside first and last MMA of each SM", (), ("cause", "*cycles", "*kernel"), cells)


def _barrier_waits(report: Report) -> Section | None:
    rows = report.barrier_waits.barriers
    if rows.is_empty():
        return None
    numbers = ("*waits", "*blocked", "*cycles", "*bare", "*p50", "*p95")
    columns = ("barrier", "waiter", *numbers, "released by", "which had been")
    cells = []
    for row in rows.head(MAX_ROWS).iter_rows(named=True):
        names = ("waits", "blocked", "blocked_cycles", "uncovered_cycles", "p50_cycles", "p95_cycles")
        figures = [f"{row[name]:,.0f}" for name in names]
        cells.append((row["barrier"], row["role"], *figures, row["released_by"], _main_blame(report, row)))
    note = "bare: blocked while the SM's tensor core had nothing in flight; p50, p95: of blocked waits"
    title = "Barrier waits (cycles over all warpgroups)"
    return Section(title, (), columns, tuple(cells), (note, *_and_more(rows)))


def _main_blame(report: Report, row: dict[str, Any]) -> str:
    blame = report.barrier_waits.releasers.filter(
        (pl.col("barrier") == row["barrier"])
        & (pl.col("role") == row["role"])
        & (pl.col("releaser") == row["released_by"])
    )
    if blame.is_empty():
        return ""
    first = blame.row(0, named=True)
    return f"{first['had_been']} {shorten_source(first['had_been_source'])}".rstrip()


def _categories(report: Report) -> Section:
    columns = ("role", "*tracks", *(f"*{name}" for name in Category), "waiting for")
    roles = report.categories.roles
    waits = report.categories.waits
    cells = []
    for role in roles["role"].unique(maintain_order=True).to_list():
        rows = roles.filter(pl.col("role") == role)
        tracks = int(rows["tracks"][0])
        total = max(report.window.end * tracks, 1)
        cycles = dict(rows.select("category", "cycles").iter_rows())
        shares = [f"{cycles.get(str(category), 0) / total:.1%}" for category in Category]
        parts = waits.filter(pl.col("role") == role).head(3).iter_rows(named=True)
        split = ", ".join(f"{part['barrier'] or part['kind']} {part['cycles'] / total:.0%}" for part in parts)
        cells.append((role, f"{tracks:,}", *shares, split))
    return Section("Where the time of each role went (% of the launch)", (), columns, tuple(cells))


def _steady_state(report: Report) -> Section | None:
    rows = report.steady_state.by_warpgroup()
    if rows.is_empty():
        return None
    parts = ("*data wait", "*MMA wait", "*other", "*prologue", "*epilogue")
    columns = ("warpgroup", "*iterations", "*interval", "*p95", *parts, "bound by")
    names = ("iterations", "interval_cycles", "p95_interval_cycles", "data_wait_cycles", "mma_wait_cycles")
    names += ("other_cycles", "prologue_cycles", "epilogue_cycles")
    cells = tuple(
        (row["name"], *(_number(row[name]) for name in names), row["bound_by"])
        for row in rows.head(MAX_ROWS).iter_rows(named=True)
    )
    return Section("Steady state (median cycles per iteration)", (), columns, cells, tuple(_and_more(rows)))


def _critical_path(report: Report) -> Section:
    rows = report.critical_path.parts
    cells = tuple(
        (row["kind"], row["barrier"], row["role"], shorten_source(row["source"]), f"{row['count']:,}",
         f"{row['cycles']:,}", f"{row['share']:.1%}")
        for row in rows.head(_PATH_ROWS).iter_rows(named=True)
    )  # fmt: skip
    columns = ("step", "barrier", "role", "source", "*count", "*cycles", "*kernel")
    rest = rows.slice(_PATH_ROWS)
    notes = (f"... and {int(rest['cycles'].sum()):,} cycles in {rest.height} smaller parts",) if rest.height else ()
    return Section("Critical path (its steps follow each other and sum to the launch)", (), columns, cells, notes)


def _what_if(report: Report) -> Section | None:
    rows = report.what_if.scenarios.filter(pl.col("gain_cycles") > 0)
    if rows.is_empty():
        return None
    cells = tuple(
        (row["scenario"], f"{row['predicted_cycles']:,}", f"{row['gain_cycles']:,}", f"{row['speedup']:.3f}x",
         "bound" if row["is_bound"] else row["provenance"])
        for row in rows.head(_PATH_ROWS).iter_rows(named=True)
    )  # fmt: skip
    columns = ("what if", "*cycles", "*gain", "*speedup", "basis")
    return Section("What if (replayed on the event graph)", (), columns, cells, tuple(_and_more(rows, _PATH_ROWS)))


def _balance(report: Report) -> Section:
    balance, roof = report.balance, report.roofline
    lines = [
        f"{balance.ctas.height:,} CTAs = {balance.waves:.2f} waves on {balance.device_sms} SMs x "
        f"{balance.ctas_per_sm}; SMs hold a CTA {balance.occupied_share:.0%} of the time; tail "
        f"{balance.tail_cycles:,} cycles; busiest SM {balance.imbalance:.2f} times the mean"
    ]
    cells = tuple(
        (row["ceiling"], f"{row['work']:,} {row['unit']}", f"{row['least_cycles']:,}", f"{row['share']:.1%}")
        for row in roof.ceilings.iter_rows(named=True)
    )
    if cells:
        lines.append(f"{roof.intensity:,.0f} FLOP per byte that TMA moved; cycles needed at least, at peak rates:")
    columns = ("ceiling", "*work", "*cycles", "*kernel") if cells else ()
    return Section("Balance and roofline", tuple(lines), columns, cells)


def _and_more(rows: pl.DataFrame, shown: int = MAX_ROWS) -> list[str]:
    return [f"... and {rows.height - shown} more rows (see the JSON)"] if rows.height > shown else []


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
