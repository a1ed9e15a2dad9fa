import dataclasses

import polars as pl
import pytest

from profiler.build import build_trace
from profiler.check import check_trace
from support.captures import ring_capture


@pytest.fixture(scope="module")
def trace():
    return build_trace(ring_capture())


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("tma_cycles", [10, 700])
@pytest.mark.parametrize("activity", [True, False])
def test_built_traces_are_sound(stages, tma_cycles, activity) -> None:
    capture = ring_capture(num_ctas=5, num_sms=2, stages=stages, tma_cycles=tma_cycles, activity=activity)
    assert check_trace(build_trace(capture)) == []


def at(column: str, row: int, value: object) -> pl.Expr:
    return pl.when(pl.int_range(pl.len()) == row).then(pl.lit(value)).otherwise(column).cast(pl.Int64).alias(column)


@pytest.mark.parametrize(
    ("table", "change", "rule"),
    [
        ("spans", at("begin", 1, 10_000), "inside their parents"),
        ("spans", at("dur", 0, 5000), "sibling spans do not overlap"),
        ("spans", at("self_dur", 1, 1), "sum to the lifetime"),
        ("spans", at("span", 1, 7), "ids are row numbers"),
        ("tracks", at("end", 0, 5), "inside their track's lifetime"),
        ("async_spans", at("dur", 0, 5000), "one lane do not overlap"),
        ("arrivals", at("source_track", 0, 99).cast(pl.Int32), "existing tracks"),
        ("arrivals", at("time", 0, 99_999), "time order"),
        ("waits", at("released_at", 0, 99_999), "ends at or after the arrival"),
        ("waits", at("arrival", 0, 99_999), "existing arrivals"),
        ("waits", pl.col("dur").cast(pl.Int32), "has columns"),
    ],
)
def test_a_broken_rule_is_named(trace, table, change, rule) -> None:
    broken = dataclasses.replace(trace, **{table: trace.table(table).with_columns(change)})
    violations = check_trace(broken)
    assert any(rule in violation for violation in violations), violations
