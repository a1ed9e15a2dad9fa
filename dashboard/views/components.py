"""Building blocks of pages: cards, tiles, tables with bars, badges, notes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
from dash import dcc, html
from dash.development.base_component import Component

from dashboard import ids
from dashboard.markup import extra

Content = Component | str | Sequence[Component | str]
NOTHING = "\u2013"  # a dash where there is no value
GRAPH_CONFIG: dict[str, Any] = {"displaylogo": False, "responsive": True, "displayModeBar": "hover"}
GRAPH_CONFIG |= {"modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"]}


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      title: heading.
      cell: makes a cell's content from a row.
      value: what the column is sorted by; None: the cell's text.
      bar: share of the cell's width that a bar fills, 0 to 1; None draws none.
      is_number: True aligns to the right.
      meaning: definition of the number, shown when pointing at the heading.
    """

    title: str
    cell: Callable[[Mapping[str, Any]], Content]
    value: Callable[[Mapping[str, Any]], float | str] | None = None
    bar: Callable[[Mapping[str, Any]], float] | None = None
    is_number: bool = False
    meaning: str = ""


def card(title: str, *children: Component | str, note: str = "", actions: Sequence[Component] = ()) -> Component:
    """Returns a titled box."""
    heading = html.Div(
        [html.H2(title), html.Span(note, className="card-note"), html.Div(list(actions), className="card-actions")],
        className="card-head",
    )
    return html.Section([heading, *children], className="card")


def tile(label: str, value: str, detail: str = "", meaning: str = "", level: float | None = None) -> Component:
    """Returns one number with its name; `level` (0 to 1) draws a meter below it."""
    meter = []
    if level is not None:
        width = f"{min(max(level, 0.0), 1.0):.1%}"
        meter = [html.Div(html.Div(style={"width": width}, className="meter-fill"), className="meter")]
    children = [html.Div(label, className="tile-label"), html.Div(value, className="tile-value"), *meter]
    return html.Div([*children, html.Div(detail, className="tile-detail")], className="tile", title=meaning)


def table(columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], label: str) -> Component:
    """Returns a table that sorts when a heading is clicked.

    Args:
      columns: what each column shows.
      rows: one mapping per row.
      label: what the table is, for screen readers.
    """
    head = html.Tr(
        [
            html.Th(column.title, title=column.meaning, scope="col", className="number" if column.is_number else "")
            for column in columns
        ]
    )
    body = [html.Tr([_cell(column, row) for column in columns]) for row in rows]
    content = html.Table(
        [html.Thead(head), html.Tbody(body)], className="table sortable", **extra({"aria-label": label})
    )
    return html.Div(content, className="table-scroll")


def _cell(column: Column, row: Mapping[str, Any]) -> Component:
    attributes: dict[str, Any] = {"className": "number" if column.is_number else ""}
    if column.value is not None:
        attributes["data-value"] = column.value(row)
    if column.bar is not None:
        attributes["className"] += " bar"
        attributes["style"] = {"--bar-width": f"{min(max(column.bar(row), 0.0), 1.0):.1%}"}
    return html.Td(column.cell(row), **attributes)


def chart(name: str, figure: go.Figure, legend: Sequence[tuple[str, str]] | None = None) -> Component:
    """Returns a chart; its toolbar saves it as a picture.

    Args:
      name: names the chart, and the picture when it is saved.
      figure: what is drawn.
      legend: (colour, text) pairs that stand above the chart instead of Plotly's own legend.
    """
    if legend is not None:
        entries = html.Div([swatch(color, text) for color, text in legend], className="chart-legend")
        return html.Div([entries, chart(name, go.Figure(figure).update_layout(showlegend=False))])
    config: Any = GRAPH_CONFIG | {"toImageButtonOptions": {"format": "svg", "filename": name}}
    return dcc.Graph(id=ids.graph(name), figure=figure, config=config, className="chart")


def badge(text: str, tone: str = "", meaning: str = "") -> Component:
    """Returns a small label; `tone` is "", "good", "warn" or "bad"."""
    return html.Span(text, className=f"badge {tone}".strip(), title=meaning)


def swatch(color: str, label: str) -> Component:
    """Returns a label with a coloured square before it."""
    return html.Span([html.I(className="swatch", style={"background": color}), label], className="swatch-label")


def link(text: str, href: str, title: str = "", class_name: str = "") -> Component:
    """Returns a link inside the application."""
    return html.A(text, href=href, title=title, className=f"nav-link {class_name}".strip())


def download(text: str, href: str) -> Component:
    """Returns a link that saves a file."""
    return html.A(text, href=href, className="button small", download="")


def choice(options: Sequence[tuple[str, str]], selected: str, href: Callable[[str], str], label: str) -> Component:
    """Returns a row of links of which one is selected: `options` are (value, text)."""
    links = [
        html.A(text, href=href(value), className="nav-link segment" + (" selected" if value == selected else ""))
        for value, text in options
    ]
    return html.Div(links, className="segments", role="group", **extra({"aria-label": label}))


def select(field: str, options: Sequence[tuple[str, str]], value: str, label: str) -> Component:
    """Returns a drop-down list that changes one field of the view's state."""
    items = [html.Option(text, value=key, selected=key == value) for key, text in options]
    chooser = html.Select(items, key=value, **extra({"data-field": field, "aria-label": label}))
    return html.Label([html.Span(label), chooser], className="select-label")


def empty(title: str, text: Content) -> Component:
    """Returns what a page shows when there is nothing to show, and how to get it."""
    return html.Div([html.H2(title), html.Div(text)], className="empty")


def notes(texts: Sequence[str]) -> list[Component]:
    """Returns a box of caveats, or nothing."""
    return [html.Div([html.P(text) for text in texts], className="notes", role="note")] if texts else []
