"""Filters that people type: `role=compute dur>500 barrier~full`, all of which must hold."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

import polars as pl

from profiler import ParamsError

_CONDITION = re.compile(r"(?P<column>\w+)\s*(?P<operator>>=|<=|!=|=|>|<|~)\s*(?P<value>\"[^\"]*\"|\S+)")
_OPERATORS: dict[str, Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    "=": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


def filter_table(table: pl.DataFrame, query: str) -> pl.DataFrame:
    """Returns the rows that satisfy every condition of `query`.

    Args:
      table: what to filter.
      query: conditions `column OP value` with OP one of = != > < >= <= and ~ (contains); values with blanks in quotes.

    Raises:
      ParamsError: a condition cannot be read, names no column, or compares a number with something else.
    """
    rest = _CONDITION.sub("", query).strip()
    if rest:
        raise ParamsError(
            f"{rest!r} is no condition. Write column, then one of = != > < >= <= ~, then a value: role=compute dur>500"
        )
    for match in _CONDITION.finditer(query):
        table = table.filter(_condition(table, match["column"], match["operator"], match["value"].strip('"')))
    return table


def _condition(table: pl.DataFrame, name: str, sign: str, value: str) -> pl.Expr:
    if name not in table.columns:
        raise ParamsError(f"there is no column {name!r}. Columns: {', '.join(table.columns)}")
    column = pl.col(name)
    if sign == "~":
        return column.cast(pl.String).str.contains(value, literal=True)
    kind = table.schema[name]
    if kind == pl.Boolean:
        if value.lower() not in ("true", "false"):
            raise ParamsError(f"{name} is true or false, not {value!r}.")
        return _OPERATORS[sign](column, pl.lit(value.lower() == "true"))
    if not kind.is_numeric():
        return _OPERATORS[sign](column, pl.lit(value))
    try:
        return _OPERATORS[sign](column, pl.lit(float(value)))
    except ValueError:
        raise ParamsError(f"{name} is a number, {value!r} is none.") from None
