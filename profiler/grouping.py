"""Groups, orders and matches of rows, for tables that are too long for a Python loop.

All of them are sorts of one integer per row, with the row's number packed into its low bits: NumPy sorts plain integers
ten times faster than it finds a stable order of them.
"""

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


def stable_order(key: np.ndarray) -> np.ndarray:
    """Returns the rows of an integer array in ascending order; equal ones stay in the order of their rows: int64."""
    if not len(key):
        return np.zeros(0, np.int64)
    row_bits = len(key).bit_length()
    low, high = int(key.min()), int(key.max())
    if high - low >= 1 << (63 - row_bits):
        # Too wide to be packed: the numbers of the distinct values are not.
        order = np.argsort(key)
        changes = np.not_equal(key[order[1:]], key[order[:-1]])
        number = np.concatenate([[0], np.cumsum(changes)])
        return _sort_packed(number, order, row_bits)
    return _sort_packed(key - low, np.arange(len(key)), row_bits)


def _sort_packed(key: np.ndarray, row: np.ndarray, row_bits: int) -> np.ndarray:
    """Returns `row` ordered by (key, row), for keys that leave `row_bits` bits of an int64."""
    packed = key.astype(np.int64) << row_bits
    packed |= row
    packed.sort()
    packed &= (1 << row_bits) - 1
    return packed


def first_match(wanted: np.ndarray, key: np.ndarray) -> np.ndarray:
    """Returns, for each wanted key, the first row of `key` that holds it, -1 if none does: int64."""
    both = np.concatenate([key, wanted])
    order = stable_order(both)
    ordered = both[order]
    starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(both) else order
    first = np.repeat(order[starts], np.diff(starts, append=len(both)))
    found = np.empty(len(both), np.int64)
    found[order] = np.where(first < len(key), first, -1)
    return found[len(key) :]


def last_not_after(wanted: np.ndarray, wanted_time: np.ndarray, key: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns, for each wanted key, the row of that key whose time is the latest not after the wanted time: int64.

    Of rows of one time, the last; -1 if there is none.

    Args:
      wanted, wanted_time: integers, one of each for a question.
      key, time: integers, one of each for a row.
    """
    both = combined_key([np.concatenate([key, wanted]), np.concatenate([time, wanted_time])])
    order = stable_order(both)
    is_row = order < len(key)
    position = np.maximum.accumulate(np.where(is_row, np.arange(len(order)), -1))
    last = np.where(position >= 0, order[np.maximum(position, 0)], -1)
    found = np.empty(len(both), np.int64)
    found[order] = last
    found = found[len(key) :]
    if not len(key):
        return found
    return np.where((found >= 0) & (key[np.maximum(found, 0)] == wanted), found, -1)


def first_rows(frame: pl.DataFrame, key: str) -> pl.DataFrame:
    """Keeps, of the rows that agree in an integer column, the first; in the same order."""
    values = frame[key].to_numpy()
    order = stable_order(values)
    ordered = values[order]
    is_first = np.ones(len(order), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return frame if is_first.all() else frame[np.sort(order[is_first])]


def count_before(key: np.ndarray) -> np.ndarray:
    """Returns, per row, how many earlier rows have the same key: int64."""
    order = stable_order(key)
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
