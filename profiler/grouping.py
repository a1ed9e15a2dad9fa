"""Row numbers within groups, for tables that are too long for a Python loop."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def combined_key(columns: Sequence[np.ndarray]) -> np.ndarray:
    """Returns one int64 per row, equal for rows that agree in all columns. Columns hold small integers, -1 included."""
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low = int(column.min(initial=0))
        key = key * (int(column.max(initial=0)) - low + 1) + (column.astype(np.int64) - low)
    return key


def count_before(key: np.ndarray) -> np.ndarray:
    """Returns, per row, how many earlier rows have the same key: int64."""
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    starts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    counts = np.arange(len(key)) - np.repeat(starts, np.diff(starts, append=len(key)))
    result = np.empty(len(key), np.int64)
    result[order] = counts
    return result
