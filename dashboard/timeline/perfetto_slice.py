"""Where the Perfetto UI should look: the slice of its database that a selected box of the timeline is."""

from __future__ import annotations

import dataclasses
from typing import Any

import polars as pl

from dashboard.quantities import Units
from dashboard.state import ViewState
from dashboard.timeline.selection import describe_selection
from profiler import Report
from profiler.export.layout import UNIT_TITLES

_MARGIN = 6  # a slice is shown with this many times its length on both sides
_MIN_MARGIN_CYCLES = 200


@dataclasses.dataclass(frozen=True)
class PerfettoTarget:
    """What to show.

    Attributes:
      text: what it is, for the reader.
      begin, end: the window in cycles, which are the trace file's ns.
      query: SQL that finds the slice's id in Perfetto's tables; "" if no slice of the file is meant.
    """

    text: str
    begin: int
    end: int
    query: str = ""


def perfetto_target(report: Report, state: ViewState) -> PerfettoTarget | None:
    """Returns what a view's selection, or else its window, is in the exported trace; None if it has neither.

    A bubble is no slice of the trace, for nothing happened in it: its slice is the innermost one of the warpgroup that
    explains it.
    """
    units = Units("cycles", report.trace.header.clock_hz)
    chosen = describe_selection(report, state.sel, units) if state.sel else None
    if chosen is None:
        return PerfettoTarget("the window", state.t0, state.t1) if 0 <= state.t0 < state.t1 else None
    margin = max(_MARGIN * (chosen.end - chosen.begin), _MIN_MARGIN_CYCLES)
    begin, end = max(chosen.begin - margin, 0), min(chosen.end + margin, report.trace.end)
    related = [key for _, key in chosen.related if key.startswith("span:")]
    slice_key = related[-1] if chosen.key.startswith("loss:") and related else chosen.key
    return PerfettoTarget(chosen.title, begin, end, _query(report, slice_key))


def _query(report: Report, key: str) -> str:
    """Returns the SQL that finds a span, an instant or asynchronous work by time, name and tracks."""
    kind, _, number = key.partition(":")
    trace = report.trace
    if kind in ("span", "instant"):
        row = (trace.spans if kind == "span" else trace.instants).row(int(number), named=True)
        track = trace.tracks.filter(pl.col("track") == row["track"]).row(0, named=True)
        begin, dur = (row["begin"], row["dur"]) if kind == "span" else (row["time"], 0)
        cta = f"(above.name = 'CTA {track['cta']}' or above.name glob 'CTA {track['cta']} *')"
        return _select(row, begin, dur, track["name"], f"{cta} and top.name = 'SM {track['sm']:03d}'")
    if kind == "async":
        row = trace.async_spans.row(int(number), named=True)
        return _select(row, row["begin"], row["dur"], UNIT_TITLES[row["unit"]], f"above.name = 'SM {row['sm']:03d}'")
    return ""


def _select(row: dict[str, Any], begin: int, dur: int, track: str, place: str) -> str:
    return (
        "select slice.id as id from slice join track as own on own.id = slice.track_id "
        "join track as above on above.id = own.parent_id left join track as top on top.id = above.parent_id "
        f"where slice.ts = {begin} and slice.dur = {dur} and slice.name = {_quoted(row['name'])} "
        f"and own.name = {_quoted(track)} and {place} limit 1"
    )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
