"""The table code gives the same rows on every backend."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler.analysis.summaries import summarise, to_polars, total_by
from profiler.build import build_trace
from support.captures import ring_capture

KEYS = ["barrier", "slot", "role"]


def test_summarise_by_hand() -> None:
    frame = pl.DataFrame({"key": ["a", "b", "a", "a"], "dur": [1, 10, 2, 4]})
    assert to_polars(summarise(frame, ["key"], "dur")).rows() == [
        ("b", 1, 10, 10.0, 10.0, 10),
        ("a", 3, 7, 2.0, pytest.approx(3.8), 4),
    ]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000)), min_size=1))
def test_groups_sum_to_the_whole(rows: list[tuple[int, int]]) -> None:
    frame = pl.DataFrame(rows, schema={"key": pl.Int64, "dur": pl.Int64}, orient="row")
    summary = to_polars(summarise(frame, ["key"], "dur"))
    assert summary["total_cycles"].sum() == frame["dur"].sum()
    assert summary["count"].sum() == frame.height
    assert to_polars(total_by(frame, ["key"], ["dur"]))["dur"].sum() == frame["dur"].sum()


def test_duckdb_agrees_with_polars() -> None:
    duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed; it is an optional backend")
    waits = build_trace(ring_capture(num_ctas=4)).waits
    with duckdb.connect() as connection:
        connection.execute("create table waits (barrier varchar, slot integer, role varchar, dur bigint)")
        connection.executemany("insert into waits values (?, ?, ?, ?)", waits.select(*KEYS, "dur").rows())
        relation = connection.table("waits")
        assert summarise(relation, KEYS, "dur").fetchall() == to_polars(summarise(waits, KEYS, "dur")).rows()
        assert total_by(relation, KEYS, ["dur"]).fetchall() == to_polars(total_by(waits, KEYS, ["dur"])).rows()
