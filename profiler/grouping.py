"""Row numbers within groups, for tables that are too long for a Python loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

_LARGEST_KEY = (1 << 63) - 1
_LARGEST_TABLE = 1 << 22  # entries of a table that replaces sorting


def combined_key(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Returns one int64 per row, equal for rows that agree in all columns. Columns hold integers, -1 included."""
    key = np.zeros(len(columns[0]), np.int64)
    largest = 0
    for column in columns:
        low, high = int(column.min(initial=0)), int(column.max(initial=0))
        if (largest + 1) * (high - low + 1) > _LARGEST_KEY:  # such as times of many CTAs: number what occurs
            key, column = (np.unique(values, return_inverse=True)[1].reshape(-1) for values in (key, column))
            largest, low, high = int(key.max(initial=0)), 0, int(column.max(initial=0))
        extent = high - low + 1
        largest = (largest + 1) * extent - 1
        key = key * extent + (column.astype(np.int64) - low)
    return key


def with_shared_key(frames: Sequence[pl.DataFrame], columns: Sequence[str], name: str = "key") -> list[pl.DataFrame]:
    """Adds to tables an int64 column that is equal for rows, of any of them, that agree in all `columns`.

    A join or group by that one column takes a fraction of the time of one by several, some of them strings.
    """
    key = combined_key([_codes([frame[column] for frame in frames]) for column in columns])
    ends = np.cumsum([frame.height for frame in frames])[:-1]
    return [frame.with_columns(pl.Series(name, part)) for frame, part in zip(frames, np.split(key, ends), strict=True)]


def _codes(parts: Sequence[pl.Series]) -> np.ndarray:
    """Returns integers as they are, and strings as numbers in the order of the strings; parts one after another."""
    if parts[0].dtype != pl.String:
        return np.concatenate([part.to_numpy() for part in parts])
    names = pl.concat([part.unique() for part in parts]).unique().sort()
    return np.concatenate([part.cast(pl.Enum(names)).to_physical().to_numpy() for part in parts])


def first_rows(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """Keeps, of the rows that agree in an integer column, the first; in the same order."""
    values = frame[key].to_numpy()
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    is_first = np.ones(len(order), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return frame if is_first.all() else frame[np.sort(order[is_first])]


def count_before(key: np.ndarray) -> np.ndarray:
    """Returns, per row, how many earlier rows have the same key: int64."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    counts = np.arange(len(key)) - np.repeat(starts, np.diff(starts, append=len(key)))
    result = np.empty(len(key), np.int64)
    result[order] = counts
    return result


def distinct_rows(columns: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Returns where each combination of values first stands, and for each row the number of its combination."""
    key = combined_key(columns)
    extent = 1 + int(key.max(initial=-1))
    if extent > _LARGEST_TABLE:
        _, first, number = np.unique(key, return_index=True, return_inverse=True)
        return first, number.reshape(-1)
    first = np.full(extent, -1, np.int64)
    first[key[::-1]] = np.arange(len(key))[::-1]  # the last write wins: the first of equal rows
    used = first >= 0
    return first[used], (np.cumsum(used) - 1)[key]
