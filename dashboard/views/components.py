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
from dashboard.theme import LegendEntry
from dashboard.views.base import PageContext

Content = Component | str | Sequence[Component | str]
NOTHING = "\u2013"  # a dash where there is no value
_MAX_OPTIONS = 500
GRAPH_CONFIG: dict[str, Any] = {"displaylogo": False, "responsive": True, "displayModeBar": "hover"}
GRAPH_CONFIG |= {"toImageButtonOptions": {"format": "png", "scale": 2}}
GRAPH_CONFIG |= {"modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"]}


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
      title: heading.
      cell: makes a cell's content from a row.
      value: what the column is sorted by; None: the cell's text.
      bar: length of the bar behind the number, 0 to 1 of the longest; None draws none.
      is_number: True aligns to the right.
      meaning: definition of the number, shown when pointing at the heading.
      tone: colour of the bar: "", "good" or "bad".
    """

    title: str
    cell: Callable[[Mapping[str, Any]], Content]
    value: Callable[[Mapping[str, Any]], float | str] | None = None
    bar: Callable[[Mapping[str, Any]], float] | None = None
    is_number: bool = False
    meaning: str = ""
    tone: Callable[[Mapping[str, Any]], str] | None = None


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
        attributes["className"] += f" bar {column.tone(row) if column.tone else ''}".rstrip()
        attributes["style"] = {"--bar-share": f"{min(max(column.bar(row), 0.0), 1.0):.3f}"}
    return html.Td(column.cell(row), **attributes)


def chart(name: str, figure: go.Figure, legend: Sequence[LegendEntry] | None = None) -> Component:
    """Returns a chart; its toolbar saves it as a picture.

    Args:
      name: names the chart, and the picture when it is saved.
      figure: what is drawn.
      legend: what stands above the chart instead of Plotly's own legend.
    """
    if legend is not None:
        entries = html.Div([swatch(one.color, one.text, one.hatched) for one in legend], className="chart-legend")
        return html.Div([entries, chart(name, go.Figure(figure).update_layout(showlegend=False))])
    config: Any = GRAPH_CONFIG | {"toImageButtonOptions": {"format": "png", "scale": 2, "filename": name}}
    # The place is held while Plotly is fetched and draws.
    drawn = dcc.Graph(id=ids.graph(name), figure=figure, config=config, className="chart")
    return html.Div(drawn, className="chart-place", style={"minHeight": f"{figure.layout.height}px"})


def time_chart(
    context: PageContext, name: str, figure: go.Figure, legend: Sequence[LegendEntry] | None = None
) -> Component:
    """Returns a chart over the launch's time: it shows the window of the view's state, and zooming it changes that."""
    state, units = context.state, context.units
    if 0 <= state.t0 < state.t1:
        figure.update_xaxes(range=[units.convert(state.t0), units.convert(state.t1)])
    return html.Div(chart(name, figure, legend), **extra({"data-cycles": str(1 / units.convert(1))}))


def badge(text: str, tone: str = "", meaning: str = "") -> Component:
    """Returns a small label; `tone` is "", "good", "warn" or "bad"."""
    return html.Span(text, className=f"badge {tone}".strip(), title=meaning)


def swatch(color: str, label: str, hatched: bool = False) -> Component:
    """Returns a label with a coloured square before it."""
    square = html.I(className="swatch hatched" if hatched else "swatch", style={"background-color": color})
    return html.Span([square, label], className="swatch-label")


def link(text: str, href: str, title: str = "", class_name: str = "") -> Component:
    """Returns a link inside the application."""
    return html.A(text, href=href, title=title, className=f"nav-link {class_name}".strip())


def download(text: str, href: str) -> Component:
    """Returns a link that saves a file."""
    return html.A(text, href=href, className="button small", download="")


def table_downloads(context: PageContext, name: str) -> list[Component]:
    """Returns links that save a table of the report, with all its rows."""
    link_to, launch = context.links.download, context.loaded.name
    return [download("CSV", link_to(launch, f"{name}.csv")), download("Parquet", link_to(launch, f"{name}.parquet"))]


def choice(options: Sequence[tuple[str, str, str]], selected: str, href: Callable[[str], str], label: str) -> Component:
    """Returns a row of links of which one is selected: `options` are (value, text, meaning)."""
    links = [
        html.A(
            text,
            href=href(value),
            className="nav-link segment" + (" selected" if value == selected else ""),
            title=meaning,
            **extra({"aria-current": "true" if value == selected else "false"}),
        )
        for value, text, meaning in options
    ]
    return html.Div(links, className="segments", role="group", **extra({"aria-label": label}))


def select(field: str, options: Sequence[tuple[str, str]], value: str, label: str) -> Component:
    """Returns a drop-down list that changes one field of the view's state."""
    items = [html.Option(text, value=key, selected=key == value) for key, text in options]
    chooser = html.Select(items, key=value, **extra({"data-field": field, "aria-label": label}))
    return html.Label([html.Span(label), chooser], className="select-label")


def cta_chooser(ctas: Sequence[int], cta: int, label: str) -> Component:
    """Returns a choice of CTA: a list, or a field for its number if there are very many."""
    if len(ctas) <= _MAX_OPTIONS:
        return select("cta", [(str(one), f"CTA {one}") for one in ctas], str(cta), label)
    field = dcc.Input(value=str(cta), type="number", min=0, max=max(ctas), className="number-field")
    return html.Label([html.Span(f"{label} CTA"), field], className="select-label", **extra({"data-field": "cta"}))


def empty(title: str, text: Content) -> Component:
    """Returns what a page shows when there is nothing to show, and how to get it."""
    return html.Div([html.H2(title), html.Div(text)], className="empty")


def notes(texts: Sequence[str]) -> list[Component]:
    """Returns a box of caveats, or nothing."""
    return [html.Div([html.P(text) for text in texts], className="notes", role="note")] if texts else []
