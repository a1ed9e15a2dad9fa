"""Group-by summaries of durations, written with narwhals so that they run on Polars, DuckDB and Spark tables alike.

Portable code sums integers, never booleans, names the quantile's interpolation, and sorts by unique keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw
import polars as pl


def summarise(frame: Any, keys: Sequence[str], value: str) -> Any:
    """Counts and sums `value` (cycles) per group.

    Args:
      frame: any table that narwhals reads.
      keys: columns that make a group.
      value: an integer column of durations in cycles.

    Returns:
      A lazy table of the same backend: keys, `count`, `total_cycles`, `p50_cycles`, `p95_cycles`, `max_cycles`;
        largest total first,
      equal totals by key. Quantiles interpolate linearly.
    """
    lazy = nw.from_native(frame).lazy()
    column = nw.col(value)
    summary = lazy.group_by(*keys).agg(
        column.count().cast(nw.Int64).alias("count"),
        column.sum().cast(nw.Int64).alias("total_cycles"),
        # Of integers, these are multiples of 1/20; engines differ in the last bit, which rounding takes away.
        column.quantile(0.5, interpolation="linear").cast(nw.Float64).round(3).alias("p50_cycles"),
        column.quantile(0.95, interpolation="linear").cast(nw.Float64).round(3).alias("p95_cycles"),
        column.max().cast(nw.Int64).alias("max_cycles"),
    )
    return summary.sort("total_cycles", *keys, descending=[True] + [False] * len(keys)).to_native()


def total_by(frame: Any, keys: Sequence[str], values: Sequence[str]) -> Any:
    """Sums integer columns per group; returns a lazy table of the same backend, sorted by the keys."""
    lazy = nw.from_native(frame).lazy()
    sums = [nw.col(value).sum().cast(nw.Int64) for value in values]
    return lazy.group_by(*keys).agg(*sums).sort(*keys).to_native()


def to_polars(table: Any) -> pl.DataFrame:
    """Runs a lazy table of any backend and returns its rows as a Polars frame."""
    return nw.from_native(table).lazy().collect(backend="polars").to_native()
