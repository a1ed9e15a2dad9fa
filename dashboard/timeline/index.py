"""The boxes of a launch, arranged SM by SM when an SM is first looked at: opening a long launch costs no more."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Iterator

import numpy as np
import polars as pl

from dashboard.timeline.lanes import COLUMNS, TICKS, Lanes
from dashboard.timeline.losses import losses_table, tensor_core_intervals
from dashboard.timeline.rows import Row, build_rows
from dashboard.timeline.styles import Styles
from profiler import Report


@dataclasses.dataclass(frozen=True)
class TimelineIndex:
    """All boxes of a launch.

    Attributes:
      report: the launch's report.
      rows: the rows, in drawing order.
      styles: what box styles mean.
      waits_for_bubbles: False leaves bubbles out as long as nobody has found them.
    """

    report: Report
    rows: list[Row]
    styles: Styles
    waits_for_bubbles: bool
    _details: dict[int, Lanes] = dataclasses.field(default_factory=dict, repr=False)
    _lock: threading.Lock = dataclasses.field(default_factory=threading.Lock, repr=False)

    @classmethod
    def of(cls, report: Report, *, waits_for_bubbles: bool = True) -> TimelineIndex:
        """Arranges a launch."""
        return cls(report, build_rows(report), Styles.of(report), waits_for_bubbles)

    @property
    def end(self) -> int:
        """Last moment of the launch, in cycles."""
        return self.report.trace.end

    @property
    def num_boxes(self) -> int:
        """Boxes of the launch without those of its tensor cores' rows."""
        trace = self.report.trace
        return sum(table.height for table in (trace.spans, trace.instants, trace.async_spans, trace.ctas))

    @property
    def has_bubbles(self) -> bool:
        """True if the rows of SMs show bubbles."""
        return self.waits_for_bubbles or self.report.is_known("bubbles")

    def lanes_with(self, row: int) -> Lanes:
        """Returns the lanes among which those of a row are."""
        return self.tensor_cores if self.rows[row].kind == "sm" else self.details(self.rows[row].sm)

    def in_drawing_order(self) -> Iterator[tuple[Lanes, range]]:
        """Yields all lanes of the launch, in the order in which rows are drawn, as parts of `Lanes`."""
        for number in self._sm_rows:
            yield self.tensor_cores, self.tensor_cores.of_row(number)
            details = self.details(self.rows[number].sm)
            yield details, range(len(details.row))

    @property
    def tensor_cores(self) -> Lanes:
        """The rows of SMs: use of their tensor cores and, if they have been found, bubbles by cause."""
        return self._use_and_bubbles if self.has_bubbles else self._use

    def details(self, sm: int) -> Lanes:
        """Returns the rows below an SM: units, CTAs, warpgroups, counters."""
        with self._lock:
            if sm not in self._details:
                numbers = self._numbers_of_sm.get(sm, {})
                tables = (make(self, sm, numbers) for make in (_spans, _instants, _units, _ctas, _counters))
                self._details[sm] = Lanes.of(list(tables), self.end)
            return self._details[sm]

    @functools.cached_property
    def _sm_rows(self) -> list[int]:
        return [number for number, row in enumerate(self.rows) if row.kind == "sm"]

    @functools.cached_property
    def _numbers_of_sm(self) -> dict[int, dict[str, int]]:
        """Numbers of the rows below each SM, by key."""
        numbers: dict[int, dict[str, int]] = {}
        for number, row in enumerate(self.rows):
            numbers.setdefault(row.sm, {})[row.key] = number
        return numbers

    @functools.cached_property
    def _use(self) -> Lanes:
        return Lanes.of([_use_of_tensor_cores(self)], self.end)

    @functools.cached_property
    def _use_and_bubbles(self) -> Lanes:
        return Lanes.of([_use_of_tensor_cores(self), _losses(self)], self.end)

    @functools.cached_property
    def span_offsets(self) -> np.ndarray:
        """Where each track's rows of `spans` begin, and the total."""
        return _offsets(self.report.trace.spans, self.report.trace.tracks.height)

    @functools.cached_property
    def instant_offsets(self) -> np.ndarray:
        """Where each track's rows of `instants` begin, and the total."""
        return _offsets(self.report.trace.instants, self.report.trace.tracks.height)


def _offsets(table: pl.DataFrame, num_tracks: int) -> np.ndarray:
    return np.searchsorted(table["track"].to_numpy(), np.arange(num_tracks + 1))


def _of_tracks(table: pl.DataFrame, offsets: np.ndarray, tracks: list[int]) -> pl.DataFrame:
    """Returns the rows of some tracks from a table that is sorted by track."""
    parts = [table.slice(int(offsets[track]), int(offsets[track + 1] - offsets[track])) for track in tracks]
    return pl.concat(parts) if parts else table.clear()


def _frame(table: pl.DataFrame, row: pl.Expr, style: pl.Expr, **columns: pl.Expr) -> pl.DataFrame:
    """Selects a table's columns as boxes; what is not given is -1, or depth 0."""
    given = {"row": row, "depth": pl.lit(0), "slot": pl.lit(-1), "phase": pl.lit(-1), "style": style} | columns
    types = {"row": pl.Int32, "depth": pl.Int32, "begin": pl.Int64, "end": pl.Int64, "id": pl.Int64}
    types |= {"style": pl.Int32, "slot": pl.Int32, "phase": pl.Int64}
    return table.select(given[name].cast(types[name]).alias(name) for name in COLUMNS).filter(pl.col("row") >= 0)


def _numbered(key: pl.Expr, numbers: dict[str, int]) -> pl.Expr:
    return key.replace_strict(numbers, default=-1, return_dtype=pl.Int32)


def _of_site(numbers: dict[int, int], fallback: int) -> pl.Expr:
    return pl.col("site").replace_strict(numbers, default=fallback, return_dtype=pl.Int32)


def _by_id(column: str, prefix: str, numbers: dict[str, int]) -> pl.Expr:
    """Returns the row number by an integer column."""
    known = {int(key.removeprefix(prefix)): number for key, number in numbers.items() if key.startswith(prefix)}
    return pl.col(column).replace_strict(known, default=-1, return_dtype=pl.Int32)


def _tracks(numbers: dict[str, int]) -> list[int]:
    return sorted(int(key.removeprefix("track:")) for key in numbers if key.startswith("track:"))


def _spans(index: TimelineIndex, _: int, numbers: dict[str, int]) -> pl.DataFrame:
    return _frame(
        _of_tracks(index.report.trace.spans, index.span_offsets, _tracks(numbers)),
        _by_id("track", "track:", numbers),
        _of_site(index.styles.span_of_site, index.styles.busy),
        depth=pl.col("depth").clip(0, TICKS - 1),
        begin=pl.col("begin"),
        end=pl.col("begin") + pl.col("dur"),
        id=pl.col("span"),
        slot=pl.col("slot"),
        phase=pl.col("phase"),
    )


def _instants(index: TimelineIndex, _: int, numbers: dict[str, int]) -> pl.DataFrame:
    return _frame(
        _of_tracks(index.report.trace.instants, index.instant_offsets, _tracks(numbers)),
        _by_id("track", "track:", numbers),
        _of_site(index.styles.span_of_site, index.styles.busy),
        depth=pl.lit(TICKS),
        begin=pl.col("time"),
        end=pl.col("time"),
        id=pl.col("instant"),
        slot=pl.col("slot"),
        phase=pl.col("phase"),
    )


def _units(index: TimelineIndex, sm: int, numbers: dict[str, int]) -> pl.DataFrame:
    return _frame(
        index.report.trace.async_spans.filter(pl.col("sm") == sm),
        _numbered(pl.format("unit:{}:{}", "unit", "sm"), numbers),
        _of_site(index.styles.async_of_site, index.styles.busy),
        depth=pl.col("lane").clip(0, TICKS - 1),
        begin=pl.col("begin"),
        end=pl.col("begin") + pl.col("dur"),
        id=pl.col("async_span"),
        slot=pl.col("slot"),
    )


def _ctas(index: TimelineIndex, sm: int, numbers: dict[str, int]) -> pl.DataFrame:
    ctas = index.report.trace.ctas.filter(pl.col("sm") == sm)
    row, style = _by_id("cta", "cta:", numbers), pl.lit(index.styles.cta)
    return _frame(ctas, row, style, begin=pl.col("begin"), end=pl.col("end"), id=pl.col("cta"))


def _counters(index: TimelineIndex, sm: int, numbers: dict[str, int]) -> pl.DataFrame:
    """A counter's boxes carry its value as their id."""
    trace, groups = index.report.trace, ["counter", "sm", "cta"]
    own = trace.counters.filter(pl.col("sm") == sm).sort(*groups, "time", maintain_order=True)
    steps = own.with_columns(end=pl.col("time").shift(-1).over(groups).fill_null(trace.end))
    # Several changes at one moment: only the last one lasts.
    steps = steps.filter(pl.col("end") > pl.col("time"))
    row, style = _numbered(pl.format("counter:{}:{}:{}", *groups), numbers), pl.lit(index.styles.counter)
    return _frame(steps, row, style, begin=pl.col("time"), end=pl.col("end"), id=pl.col("value"))


def _use_of_tensor_cores(index: TimelineIndex) -> pl.DataFrame:
    busy = tensor_core_intervals(index.report.trace)
    row, style = _by_id("sm", "sm:", _sm_numbers(index)), pl.lit(index.styles.busy)
    return _frame(busy, row, style, begin=pl.col("begin"), end=pl.col("end"), id=pl.lit(-1))


def _losses(index: TimelineIndex) -> pl.DataFrame:
    """Returns the bubbles and edges, which fill a tensor core's time together with its use."""
    losses = losses_table(index.report.bubbles).with_row_index("loss")
    style = pl.col("cause").replace_strict(index.styles.of_cause, default=index.styles.cta, return_dtype=pl.Int32)
    row, end = _by_id("sm", "sm:", _sm_numbers(index)), pl.col("begin") + pl.col("dur")
    return _frame(losses, row, style, begin=pl.col("begin"), end=end, id=pl.col("loss"))


def _sm_numbers(index: TimelineIndex) -> dict[str, int]:
    return {row.key: number for number, row in enumerate(index.rows) if row.kind == "sm"}
