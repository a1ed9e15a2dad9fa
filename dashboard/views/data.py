"""Data: every table behind the pages, to filter, and to take along."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import polars as pl
from dash import dcc, html
from dash.development.base_component import Component

from dashboard.downloads import PARTS_OF_TABLES, table_names, table_of
from dashboard.filtering import filter_table
from dashboard.markup import extra
from dashboard.state import ViewState
from dashboard.views.base import PageContext
from dashboard.views.components import Column, card, download, empty, notes, select, table
from profiler import ParamsError

MAX_ROWS = 300


def needs(state: ViewState) -> tuple[str, ...]:
    """Returns the part of the report that the chosen table is of."""
    return PARTS_OF_TABLES.get(state.table, ())


def build(context: PageContext) -> Component:
    """Lays the page out."""
    names, state = table_names(), context.state
    name = state.table if state.table in names else "spans"
    whole = table_of(context.loaded, name)
    if whole is None:
        return html.Div([empty("Not here", f"There is no table {name!r}.")], className="page")
    search = dcc.Input(
        value=state.query,
        type="search",
        placeholder="role=compute dur>500 barrier~full",
        className="search",
        debounce=True,
    )
    controls = html.Div(
        [
            select("table", [(one, one.replace("_", " ")) for one in names], name, "Table"),
            html.Label([html.Span("Filter"), search], className="select-label grow", **extra({"data-field": "query"})),
        ],
        className="toolbar",
    )
    link = context.links.download
    files = [
        download(text, link(context.loaded.name, file, state.query if file.startswith(f"{name}.") else ""))
        for text, file in (
            ("CSV", f"{name}.csv"),
            ("Parquet", f"{name}.parquet"),
            ("Report (JSON)", "report.json"),
            ("Report (text)", "report.txt"),
            ("Perfetto trace", "trace.pftrace"),
            ("Capture", "capture.npz"),
        )
    ]
    try:
        found = filter_table(whole, state.query)
    except ParamsError as error:
        return html.Div([controls, *notes([str(error)])], className="page")
    shown = f"{min(found.height, MAX_ROWS):,} of {found.height:,} rows shown"
    note = shown if found.height == whole.height else f"{shown}; {whole.height:,} in all"
    return html.Div([controls, card(name.replace("_", " "), _table(found), note=note, actions=files)], className="page")


def _table(frame: pl.DataFrame) -> Component:
    if frame.is_empty():
        return empty("No rows", "Nothing in this table, or nothing that the filter lets pass.")
    columns = [Column(name, _cell(name), is_number=dtype.is_numeric()) for name, dtype in frame.schema.items()]
    return table(columns, frame.head(MAX_ROWS).to_dicts(), "Rows")


def _cell(name: str) -> Callable[[Mapping[str, Any]], str]:
    def cell(row: Mapping[str, Any]) -> str:
        value = row[name]
        if isinstance(value, float):
            return f"{value:,.4g}" if abs(value) < 1 else f"{value:,.1f}"
        return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)

    return cell
