"""The kernel's source with what each line cost."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import polars as pl

from dashboard.timeline.losses import losses_table
from profiler import Report

MAX_SOURCE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class LineCost:
    """What one line of the source cost, over all tracks.

    Attributes:
      line: its number, from 1.
      sites: names of the recorded places on it.
      count: how often they ran.
      self_cycles: time inside them, without what is nested in them.
      wait_cycles: the part of it spent waiting.
      bubble_cycles: time of tensor cores without work that this line explains.
    """

    line: int
    sites: str
    count: int
    self_cycles: int
    wait_cycles: int
    bubble_cycles: int


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """One file of the kernel.

    Attributes:
      path: where it was when the kernel ran.
      text: its lines, empty if it cannot be shown.
      problem: why there is no text, or why it may not be the one that ran; "" if all is well.
      costs: by line number.
    """

    path: str
    text: tuple[str, ...]
    problem: str
    costs: dict[int, LineCost]

    @property
    def name(self) -> str:
        """The file's own name."""
        return self.path.rsplit("/", 1)[-1]


def source_files(report: Report, captured_at: float) -> list[SourceFile]:
    """Returns the files that the launch's sites name, those with most time first.

    Args:
      report: the launch.
      captured_at: when the capture was written, in seconds since the epoch; a file that is newer may differ.
    """
    costs = _costs(report)
    files = []
    for path in costs["file"].unique(maintain_order=True).to_list():
        rows = costs.filter(pl.col("file") == path).drop("file")
        text, problem = read_source(path, captured_at)
        files.append(
            SourceFile(path, text, problem, {row["line"]: LineCost(**row) for row in rows.iter_rows(named=True)})
        )
    return files


def read_source(path: str, captured_at: float) -> tuple[tuple[str, ...], str]:
    """Returns a source file's lines, and what is wrong with them.

    The path comes from the capture, which somebody else may have made: only Python files are shown.
    """
    file = Path(path)
    if file.suffix != ".py":
        return (), f"{path} is not a Python file and is not shown."
    try:
        if file.stat().st_size > MAX_SOURCE_BYTES:
            return (), f"{path} is larger than 1 MiB and is not shown."
        text = file.read_text("utf-8", errors="replace")
        is_newer = file.stat().st_mtime > captured_at
    except (OSError, ValueError):
        return (), f"{path} is not on this machine."
    warning = "This file has changed since the launch: lines may not match." if is_newer else ""
    return tuple(text.splitlines()), warning


def _costs(report: Report) -> pl.DataFrame:
    sites = pl.DataFrame(
        [(site.id, site.file, site.line, site.name) for site in report.trace.header.sites if site.line],
        schema={"site": pl.Int32, "file": pl.String, "line": pl.Int64, "name": pl.String},
        orient="row",
    )
    spans = report.trace.spans.group_by("site").agg(
        count=pl.len().cast(pl.Int64),
        self_cycles=pl.col("self_dur").sum(),
        wait_cycles=pl.col("self_dur").filter(pl.col("category") == "wait").sum(),
    )
    instants = report.trace.instants.group_by("site").agg(instants=pl.len().cast(pl.Int64))
    losses = losses_table(report.bubbles).group_by(pl.col("site").cast(pl.Int32)).agg(bubble_cycles=pl.col("dur").sum())
    joined = sites.join(spans, on="site", how="left").join(instants, on="site", how="left")
    joined = joined.join(losses, on="site", how="left").fill_null(0)
    per_line = joined.group_by("file", "line").agg(
        sites=pl.col("name").unique(maintain_order=True).str.join(", "),
        count=pl.col("count").sum() + pl.col("instants").sum(),
        self_cycles=pl.col("self_cycles").sum(),
        wait_cycles=pl.col("wait_cycles").sum(),
        bubble_cycles=pl.col("bubble_cycles").sum(),
    )
    total = pl.col("self_cycles").sum().over("file")
    return (
        per_line.with_columns(total=total).sort("total", "file", "line", descending=[True, False, False]).drop("total")
    )
