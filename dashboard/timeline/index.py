"""Boxes of the timeline, arranged so that any window of any rows is found by binary search.

A *lane* is a run of boxes of one row that do not overlap: spans of one nesting depth, transfers of one lane of a unit.
Boxes are stored lane after lane and by time within one, so that begins and ends both ascend and a window is a slice.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import polars as pl

from dashboard.timeline.losses import losses_table, tensor_core_intervals
from dashboard.timeline.merging import Boxes, merge_narrow
from dashboard.timeline.rows import Row, build_rows
from dashboard.timeline.styles import Styles
from profiler import Report

_LONGEST = 1 << 38
TICKS = 255  # the depth of instants, which are drawn as ticks
_COLUMNS = ("row", "depth", "begin", "end", "id", "style", "slot", "phase")
_COARSE_FROM = 1 << 18  # boxes of a lane from which on a coarse copy pays
_COARSE_BOXES = 1 << 16


@dataclasses.dataclass(frozen=True)
class TimelineIndex:
    """All boxes of a launch.

    Attributes:
      rows: the rows, in drawing order.
      styles: what box styles mean.
      boxes: all boxes, by lane, then time.
      lane_row, lane_depth: row and depth of each lane, ascending.
      lane_offsets: where each lane's boxes begin, and the total.
      end: last moment of the launch, in cycles.
    """

    rows: list[Row]
    styles: Styles
    boxes: Boxes
    lane_row: np.ndarray
    lane_depth: np.ndarray
    lane_offsets: np.ndarray
    end: int

    @classmethod
    def of(cls, report: Report) -> TimelineIndex:
        """Arranges a launch."""
        rows, styles = build_rows(report), Styles.of(report)
        number = {row.key: index for index, row in enumerate(rows)}
        table = pl.concat(
            [
                _tensor_core_boxes(report, number, styles),
                _span_boxes(report, number, styles),
                _instant_boxes(report, number, styles),
                _unit_boxes(report, number, styles),
                _cta_boxes(report, number, styles),
                _counter_boxes(report, number, styles),
            ]
        )
        # One integer sorts several times faster than four columns; a launch is shorter than 2**38 cycles (two minutes).
        lane_and_time = (pl.col("row").cast(pl.Int64) * 256 + pl.col("depth")) * _LONGEST + pl.col("begin")
        table = table.with_columns(order=lane_and_time).sort("order", "end")
        columns = {name: table[name].to_numpy() for name in _COLUMNS}
        boxes = Boxes.single(**{name: columns[name] for name in _COLUMNS[2:]})
        lane = columns["row"].astype(np.int64) * 256 + columns["depth"]
        starts = np.flatnonzero(np.diff(lane, prepend=-1))
        offsets = np.append(starts, len(lane))
        return cls(rows, styles, boxes, lane[starts] // 256, lane[starts] % 256, offsets, report.trace.end)

    @functools.cached_property
    def coarse(self) -> dict[int, Boxes]:
        """Merged copies of very long lanes, for windows that hold too much of one."""
        counts = np.diff(self.lane_offsets)
        return {
            int(lane): merge_narrow(self.lane(int(lane)), 0, max(self.end / _COARSE_BOXES, 1.0))
            for lane in np.flatnonzero(counts > _COARSE_FROM)
        }

    def lane(self, lane: int) -> Boxes:
        """Returns all boxes of a lane."""
        return self.boxes.slice(int(self.lane_offsets[lane]), int(self.lane_offsets[lane + 1]))

    def lanes_of_row(self, row: int) -> range:
        """Returns the numbers of a row's lanes."""
        return range(*np.searchsorted(self.lane_row, [row, row + 1]).tolist())


def _frame(table: pl.DataFrame, row: pl.Expr, style: pl.Expr, **columns: pl.Expr) -> pl.DataFrame:
    """Selects a table's columns as boxes; what is not given is -1, or depth 0."""
    given = {"row": row, "depth": pl.lit(0), "slot": pl.lit(-1), "phase": pl.lit(-1), "style": style} | columns
    types = {"row": pl.Int32, "depth": pl.Int32, "begin": pl.Int64, "end": pl.Int64, "id": pl.Int64}
    types |= {"style": pl.Int32, "slot": pl.Int32, "phase": pl.Int64}
    return table.select(given[name].cast(types[name]).alias(name) for name in _COLUMNS).filter(pl.col("row") >= 0)


def _numbered(key: pl.Expr, numbers: dict[str, int]) -> pl.Expr:
    return key.replace_strict(numbers, default=-1, return_dtype=pl.Int32)


def _of_site(numbers: dict[int, int], fallback: int) -> pl.Expr:
    return pl.col("site").replace_strict(numbers, default=fallback, return_dtype=pl.Int32)


def _by_id(table: pl.DataFrame, column: str, prefix: str, numbers: dict[str, int]) -> pl.Expr:
    """Returns the row number by an integer column, looked up once per distinct value."""
    known = {value: numbers.get(f"{prefix}:{value}", -1) for value in table[column].unique().to_list()}
    return pl.col(column).replace_strict(known, default=-1, return_dtype=pl.Int32)


def _span_boxes(report: Report, number: dict[str, int], styles: Styles) -> pl.DataFrame:
    spans = report.trace.spans
    return _frame(
        spans,
        _by_id(spans, "track", "track", number),
        _of_site(styles.span_of_site, styles.busy),
        depth=pl.col("depth").clip(0, TICKS - 1),
        begin=pl.col("begin"),
        end=pl.col("begin") + pl.col("dur"),
        id=pl.col("span"),
        slot=pl.col("slot"),
        phase=pl.col("phase"),
    )


def _instant_boxes(report: Report, number: dict[str, int], styles: Styles) -> pl.DataFrame:
    instants = report.trace.instants
    return _frame(
        instants,
        _by_id(instants, "track", "track", number),
        _of_site(styles.span_of_site, styles.busy),
        depth=pl.lit(TICKS),
        begin=pl.col("time"),
        end=pl.col("time"),
        id=pl.col("instant"),
        slot=pl.col("slot"),
        phase=pl.col("phase"),
    )


def _unit_boxes(report: Report, number: dict[str, int], styles: Styles) -> pl.DataFrame:
    spans = report.trace.async_spans
    return _frame(
        spans,
        _numbered(pl.format("unit:{}:{}", "unit", "sm"), number),
        _of_site(styles.async_of_site, styles.busy),
        depth=pl.col("lane").clip(0, TICKS - 1),
        begin=pl.col("begin"),
        end=pl.col("begin") + pl.col("dur"),
        id=pl.col("async_span"),
        slot=pl.col("slot"),
    )


def _tensor_core_boxes(report: Report, number: dict[str, int], styles: Styles) -> pl.DataFrame:
    """Returns, per SM, use of the tensor core and losses by cause, which together fill the window without overlap."""
    busy = tensor_core_intervals(report.trace)
    losses = losses_table(report.bubbles).with_row_index("loss")
    return pl.concat(
        [
            _frame(
                busy,
                _by_id(busy, "sm", "sm", number),
                pl.lit(styles.busy),
                begin=pl.col("begin"),
                end=pl.col("end"),
                id=pl.lit(-1),
            ),
            _frame(
                losses,
                _by_id(losses, "sm", "sm", number),
                pl.col("cause").replace_strict(styles.of_cause, default=styles.cta, return_dtype=pl.Int32),
                begin=pl.col("begin"),
                end=pl.col("begin") + pl.col("dur"),
                id=pl.col("loss"),
            ),
        ]
    )


def _cta_boxes(report: Report, number: dict[str, int], styles: Styles) -> pl.DataFrame:
    ctas = report.trace.ctas
    row = _by_id(ctas, "cta", "cta", number)
    return _frame(ctas, row, pl.lit(styles.cta), begin=pl.col("begin"), end=pl.col("end"), id=pl.col("cta"))


def _counter_boxes(report: Report, number: dict[str, int], styles: Styles) -> pl.DataFrame:
    """A counter's boxes carry its value as their id."""
    groups = ["counter", "sm", "cta"]
    steps = report.trace.counters.sort(*groups, "time", maintain_order=True).with_columns(
        end=pl.col("time").shift(-1).over(groups).fill_null(report.trace.end)
    )
    row = _numbered(pl.format("counter:{}:{}:{}", *groups), number)
    # Several changes at one moment: only the last one lasts.
    steps = steps.filter(pl.col("end") > pl.col("time"))
    return _frame(steps, row, pl.lit(styles.counter), begin=pl.col("time"), end=pl.col("end"), id=pl.col("value"))
