"""Source: the kernel's lines with the time, the waits and the bubbles of each."""

from __future__ import annotations

from dash import html
from dash.development.base_component import Component

from dashboard.markup import extra
from dashboard.source_lines import LineCost, SourceFile, source_files
from dashboard.views.base import PageContext
from dashboard.views.components import card, empty, link, notes

_COLUMNS = ("self_cycles", "wait_cycles", "bubble_cycles")
_CONTEXT_LINES = 14
_NOTHING = LineCost(0, "", 0, 0, 0, 0)


def build(context: PageContext) -> Component:
    """Lays the page out: a card for each file."""
    report = context.loaded.report
    captured_at = context.loaded.launch.capture_path.stat().st_mtime
    files = source_files(report, captured_at)
    if not files:
        return html.Div(
            [empty("No source lines", "The sites of this capture carry no source lines.")], className="page"
        )
    return html.Div([*notes(report.notes), *(_file(context, file) for file in files)], className="page")


def _file(context: PageContext, file: SourceFile) -> Component:
    most = {name: max((getattr(cost, name) for cost in file.costs.values()), default=1) or 1 for name in _COLUMNS}
    numbers = _shown_lines(file)
    head = html.Tr(
        [
            _heading("Time", "Over all tracks, without places nested in it."),
            _heading("Wait", "The part of it spent blocked or waiting."),
            _heading("Bubbles", "Tensor cores without work, explained by this line."),
            _heading("Count", "How often the recorded places of the line ran."),
            html.Th("", scope="col"),
            html.Th("Source", scope="col", className="source-text"),
        ]
    )
    rows = [_line(context, file, number, most) for number in numbers]
    grid = html.Table(
        [html.Thead(head), html.Tbody(rows)], className="table source", **extra({"aria-label": file.name})
    )
    part = f"lines {numbers[0]} to {numbers[-1]} of {len(file.text)}" if 0 < len(numbers) < len(file.text) else ""
    return card(
        file.name,
        *notes([file.problem] if file.problem else []),
        html.Div(grid, className="table-scroll"),
        note=f"{context.units.name} over all warpgroups; {part or 'whole file'}",
    )


def _line_number(context: PageContext, file: SourceFile, cost: LineCost, number: int) -> Component | str:
    """Returns the number, of a recorded line as a link to what it did on the timeline."""
    if not cost.line:
        return str(number)
    href = context.links.page("timeline", find=f"{file.name}:{number}", sel="")
    return link(str(number), href, "Show what this line did on the timeline")


def _heading(title: str, meaning: str) -> Component:
    return html.Th(title, className="number", scope="col", title=meaning)


def _shown_lines(file: SourceFile) -> list[int]:
    """Returns the lines from a little before the first with a cost to a little after the last; all that are known."""
    if not file.text:
        return sorted(file.costs)
    first, last = min(file.costs), max(file.costs)
    return list(range(max(first - _CONTEXT_LINES, 1), min(last + _CONTEXT_LINES, len(file.text)) + 1))


def _line(context: PageContext, file: SourceFile, number: int, most: dict[str, int]) -> Component:
    cost = file.costs.get(number, _NOTHING)
    text = file.text[number - 1] if number <= len(file.text) else cost.sites
    cells = []
    for name in _COLUMNS:
        value = getattr(cost, name)
        shown = context.units.number(value) if value else ""
        style = {"--bar-share": f"{value / most[name]:.3f}"}
        cells.append(html.Td(shown, className=f"number bar {name.removesuffix('_cycles')}", style=style))
    cells += [
        html.Td(f"{cost.count:,}" if cost.count else "", className="number"),
        html.Td(_line_number(context, file, cost, number), className="number line-number"),
        html.Td(text or " ", className="code source-text", title=cost.sites),
    ]
    return html.Tr(cells, id=f"{file.name}:{number}", className="" if cost.line else "cold")
