from __future__ import annotations

import polars as pl
import pytest

from dashboard.filtering import filter_table
from profiler import ParamsError

TABLE = pl.DataFrame(
    {"role": ["compute", "memory", "compute"], "dur": [10, 500, 900], "name": ["wait full", "wait empty", "x"],
     "blocked": [True, False, True]}
)  # fmt: skip


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("", [0, 1, 2]),
        ("role=compute", [0, 2]),
        ("role=compute dur>10", [2]),
        ("dur >= 10 dur<900", [0, 1]),
        ("role!=compute", [1]),
        ("name~wait blocked=true", [0]),
        ('name="wait empty"', [1]),
    ],
)
def test_conditions_hold_together(query: str, rows: list[int]) -> None:
    assert filter_table(TABLE, query).equals(TABLE[rows])


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("role", "'role' is no condition"),
        ("roel=compute", "there is no column 'roel'. Columns: role, dur"),
        ("dur>long", "dur is a number, 'long' is none"),
        ("blocked=perhaps", "blocked is true or false"),
        ("dur>1; drop table", "is no condition"),
    ],
)
def test_a_wrong_condition_is_explained(query: str, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        filter_table(TABLE, query)
