"""Keys that stand for several columns: equal exactly for rows that agree in all of them."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler import grouping
from profiler.grouping import (
    combined_key,
    count_before,
    first_match,
    first_rows,
    last_not_after,
    stable_order,
    with_shared_key,
)

# Any four of the wide values would overflow an int64 if their ranges were multiplied.
VALUES = st.one_of(st.integers(-1, 2), st.sampled_from([-1, 1 << 40, (1 << 62) - 1]))
ROWS = st.lists(st.tuples(VALUES, VALUES, VALUES, VALUES), min_size=1, max_size=30)


@given(ROWS)
def test_combined_key_is_equal_for_equal_rows_only(rows: list[tuple[int, ...]]) -> None:
    key = combined_key(list(np.array(rows, np.int64).T)).tolist()
    assert [[a == b for b in rows] for a in rows] == [[a == b for b in key] for a in key]


NAMED = st.lists(st.tuples(st.sampled_from(["", "full", "empty", "µ"]), st.integers(-1, 3)), max_size=12)


@given(NAMED, NAMED)
def test_shared_key_joins_like_the_columns(left: list[tuple[str, int]], right: list[tuple[str, int]]) -> None:
    schema = {"barrier": pl.String, "slot": pl.Int32}
    frames = [pl.DataFrame(rows, schema=schema, orient="row") for rows in (left, right)]
    keyed = [frame["key"].to_list() for frame in with_shared_key(frames, ["barrier", "slot"])]
    assert [[a == b for b in right] for a in left] == [[a == b for b in keyed[1]] for a in keyed[0]]


@given(st.lists(st.integers(0, 4), max_size=20))
def test_first_rows_and_counts_before(keys: list[int]) -> None:
    frame = pl.DataFrame({"key": keys, "row": range(len(keys))}, schema={"key": pl.Int64, "row": pl.Int64})
    before = [keys[:row].count(key) for row, key in enumerate(keys)]
    assert count_before(np.array(keys, np.int64)).tolist() == before
    assert first_rows(frame, "key")["row"].to_list() == [row for row, count in enumerate(before) if count == 0]


@pytest.mark.parametrize("largest_table", [1, 1 << 22])
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 40)), max_size=40))
def test_distinct_rows_are_numbered_and_found_again(largest_table: int, rows: list[tuple[int, int]]) -> None:
    columns = list(np.array(rows, np.int64).reshape(-1, 2).T)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "_LARGEST_TABLE", largest_table)
        first, number = grouping.distinct_rows(columns)
    assert [rows[row] for row in first[number].tolist()] == rows
    assert sorted(first.tolist()) == sorted({rows.index(row) for row in rows})


# Few values, so that many are equal; wide ones leave no room for a row's number in 64 bits.
KEYS = st.lists(st.sampled_from([-3, 0, 1, 2, 1 << 40, (1 << 62) - 1, -(1 << 61)]), max_size=30)


@given(KEYS)
def test_stable_order_is_the_order_of_a_stable_sort(keys: list[int]) -> None:
    expected = sorted(range(len(keys)), key=lambda row: keys[row])
    assert stable_order(np.array(keys, np.int64)).tolist() == expected


@given(KEYS, KEYS)
def test_first_match_finds_the_first_row_of_each_key(wanted: list[int], keys: list[int]) -> None:
    expected = [keys.index(key) if key in keys else -1 for key in wanted]
    assert first_match(np.array(wanted, np.int64), np.array(keys, np.int64)).tolist() == expected


MOMENTS = st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 6)), max_size=20)


@given(MOMENTS, MOMENTS)
def test_last_not_after_is_the_latest_row_of_the_key(
    wanted: list[tuple[int, int]], rows: list[tuple[int, int]]
) -> None:
    expected = []
    for key, time in wanted:
        earlier = [(when, row) for row, (group, when) in enumerate(rows) if group == key and when <= time]
        expected.append(max(earlier)[1] if earlier else -1)
    columns = [np.array(part, np.int64).reshape(-1, 2).T for part in (wanted, rows)]
    assert last_not_after(*columns[0], *columns[1]).tolist() == expected
