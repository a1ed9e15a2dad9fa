"""What commands share: their arguments, how launches are chosen, how results are printed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import polars as pl
import typer
from rich.console import Console
from rich.progress import track

from mgpu.errors import ParamsError
from profiler.analysis.conditions import Condition, parse_condition
from profiler.report import Report, build_report
from profiler.report_render import render_markdown, render_text
from profiler.report_sections import Section
from profiler.store import Launch, newest_launch, open_profile

EXIT_CONDITION = 1
"""Exit status when a `--fail-if` condition is true."""
EXIT_ERROR = 2
"""Exit status when a command could not do its work."""

Profile = Annotated[Path, typer.Argument(help="Profile directory, launch folder, or capture file.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown instead of text.")]
LaunchName = Annotated[str, typer.Option("--launch", help="This launch, such as matmul-0001. Default: the newest one.")]
AllLaunches = Annotated[bool, typer.Option("--all", help="All launches, not only the newest.")]
FailIf = Annotated[
    list[str] | None,
    typer.Option("--fail-if", help="Exit with 1 if this holds: 'time > +2%', 'bubbles > 10%', 'wait:full > 8%'."),
]

_Item = TypeVar("_Item")


def choose_launches(profile: Path, name: str = "", every: bool = False) -> list[Launch]:
    """Returns the launches that a command is about; says on standard error what it leaves out.

    Raises:
      ParamsError: no launch has that name.
    """
    launches = open_profile(profile)
    if every:
        return launches
    if name:
        chosen = [launch for launch in launches if launch.name == name]
        if not chosen:
            names = ", ".join(launch.name for launch in launches[-8:])
            raise ParamsError(f"{profile} holds no launch {name!r}. It holds {len(launches)}: {names}.")
        return chosen
    newest = newest_launch(launches)
    if len(launches) > 1:
        print(
            f"{newest.name} is the newest of {len(launches)} launches; others: --launch NAME or --all "
            f"(mgpu launches {profile})",
            file=sys.stderr,
        )
    return [newest]


def choose_launch(profile: Path, name: str = "") -> Launch:
    """Returns one launch: by name, or the newest."""
    return choose_launches(profile, name)[0]


def load_report(profile: Path, name: str = "") -> Report:
    """Returns the report of one launch: by name, or the newest."""
    return build_report(choose_launch(profile, name).load_trace())


def with_progress(items: Sequence[_Item], what: str) -> Iterable[_Item]:
    """Yields items; shows a bar on standard error if there are several and somebody is looking."""
    console = Console(stderr=True)
    if len(items) < 2 or not console.is_terminal:
        return items
    return track(items, description=what, console=console, transient=True)


def print_json(value: object) -> None:
    """Prints a JSON document."""
    typer.echo(json.dumps(value, indent=1))


def print_sections(sections: Sequence[Section], markdown: bool = False) -> None:
    """Prints sections: coloured text on a terminal, plain text into a file or pipe, or Markdown."""
    if markdown:
        typer.echo(render_markdown(sections), nl=False)
        return
    console = Console()
    width = min(console.width, 120) if console.is_terminal else 100
    typer.echo(render_text(sections, width, color=console.is_terminal and not console.no_color), nl=False)


def table_section(title: str, frame: pl.DataFrame, columns: Mapping[str, Callable[..., str]] | None = None) -> Section:
    """Returns a table as a section: numbers right-aligned, `_` in column names as blanks.

    Args:
      title: heading.
      frame: what to show.
      columns: columns to show and how to write their values; by default all, as they are.
    """
    shown = columns or {name: form_of(name) for name in frame.columns}
    shown = {name: form for name, form in shown.items() if name in frame.columns}
    # Room is scarce: the unit that several columns share is said once.
    of_cycles = [name for name in shown if name.endswith("_cycles") and name.removesuffix("_cycles") not in shown]
    short = {name: name.removesuffix("_cycles") for name in of_cycles} if len(of_cycles) > 1 else {}
    title += f" ({', '.join(short.values())} in cycles)" if short else ""
    heads = tuple(
        ("*" if frame[name].dtype.is_numeric() else "") + short.get(name, name).replace("_", " ") for name in shown
    )
    rows = tuple(
        tuple(form(value) for form, value in zip(shown.values(), row)) for row in frame.select(list(shown)).iter_rows()
    )
    return Section(title, (), heads, rows)


def form_of(column: str) -> Callable[..., str]:
    """Returns what writes the values of a column for people: parts of a whole as percent."""
    return "{:.1%}".format if column.endswith("share") else format_cell


def format_cell(value: object) -> str:
    """Writes a value for people: thousands separated, parts with three digits."""
    if isinstance(value, bool) or value is None:
        return str(value or "")
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def parse_conditions(texts: Sequence[str] | None) -> list[Condition]:
    """Reads `--fail-if` options, before any work is spent."""
    return [parse_condition(text) for text in texts or ()]


def exit_if(conditions: Sequence[Condition], report: Report, baseline: Report | None = None) -> None:
    """Ends the command with status 1 if a condition holds, and says which."""
    failed = [condition.text for condition in conditions if condition.holds(report, baseline)]
    for text in failed:
        print(f"mgpu: condition holds: {text}", file=sys.stderr)
    if failed:
        raise typer.Exit(EXIT_CONDITION)
