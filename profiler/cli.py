"""The `mgpu` command: reports, tables and traces of recorded launches.

Every command takes a profile directory, one launch folder in it, or a capture file. What goes wrong on purpose
(`MgpuError`) is printed as one message, and the exit status is 2.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer
from rich import box
from rich.console import Console
from rich.table import Table

from mgpu.errors import MgpuError, ParamsError
from profiler.analysis import find_barrier_waits, find_bubbles
from profiler.report import build_report
from profiler.store import Launch, open_profile

app = typer.Typer(
    help="Where the warpgroups of a GPU kernel wait, for what, and why.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

Profile = Annotated[Path, typer.Argument(help="Profile directory, launch folder, or capture file.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
LaunchName = Annotated[str, typer.Option("--launch", help="Only this launch, such as matmul-0001.")]


def main() -> None:
    """Runs the command line; entry point `mgpu`."""
    try:
        app()
    except MgpuError as error:
        print(f"mgpu: {error}", file=sys.stderr)
        raise SystemExit(2) from None


@app.command()
def report(profile: Profile, as_json: AsJson = False, launch: LaunchName = "") -> None:
    """Say where the time of each launch went, what bounds it and what to change."""
    reports = {one.name: build_report(one.load_trace()) for one in _launches(profile, launch)}
    if as_json:
        _print_json({name: each.to_json() for name, each in reports.items()})
        return
    width = min(_console().width, 120)
    typer.echo("\n\n".join(each.to_text(width=width) for each in reports.values()))


@app.command()
def waits(profile: Profile, as_json: AsJson = False, launch: LaunchName = "") -> None:
    """List barrier waits: who waited, on which barrier, how long, and who released it."""
    found = {one.name: find_barrier_waits(one.load_trace()) for one in _launches(profile, launch)}
    tables = {name: {"waits by barrier": each.barriers, "released by": each.releasers} for name, each in found.items()}
    _print_tables(tables, as_json)


@app.command()
def bubbles(profile: Profile, as_json: AsJson = False, launch: LaunchName = "") -> None:
    """List the stretches in which tensor cores had nothing to do, by cause."""
    found = {one.name: find_bubbles(one.load_trace()) for one in _launches(profile, launch)}
    tables = {
        name: {"between first and last MMA": each.groups, "outside": each.edge_groups} for name, each in found.items()
    }
    _print_tables(tables, as_json)


@app.command()
def export(
    profile: Profile,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Perfetto file; one launch only.")] = None,
    sms: Annotated[str, typer.Option("--sms", help="SMs to export, such as 0,1,8-15. Default: as many as fit.")] = "",
    launch: LaunchName = "",
) -> None:
    """Write a Perfetto trace (`trace.pftrace`) and Parquet tables beside each capture."""
    from profiler.export.perfetto import export_perfetto
    from profiler.store import save_tables

    launches = _launches(profile, launch)
    if output is not None and len(launches) > 1:
        raise ParamsError(
            f"--output names one file, but {profile} holds {len(launches)} launches: choose with --launch."
        )
    for one in launches:
        trace = one.load_trace()
        path = output or one.folder / "trace.pftrace"
        counts = export_perfetto(trace, path, sms=_parse_sms(sms) or None)
        typer.echo(f"{path}: {counts.to_text()}")
        typer.echo(f"{save_tables(trace, one.folder)}: Parquet tables")
    typer.echo("Open the .pftrace file at https://ui.perfetto.dev")


@app.command()
def dashboard(
    profile: Profile,
    port: Annotated[int, typer.Option(help="TCP port on this machine.")] = 8050,
) -> None:
    """Serve the dashboard for a profile directory."""
    try:
        # Not an import statement: the dashboard sits above the profiler, and Dash is optional.
        dashboard_app: Any = importlib.import_module("dashboard.app")
    except ModuleNotFoundError as error:
        raise ParamsError(
            f"the dashboard needs the Python package {error.name!r}, which is not installed. "
            "Install it with: pip install 'mgpu[dashboard]'"
        ) from error
    dashboard_app.serve(profile, port=port)


@app.command()
def devices(
    name: Annotated[str, typer.Argument(help="Device, such as h100.", show_default=False)] = "", as_json: AsJson = False
) -> None:
    """List the devices that can be simulated, or every number of one, with its source."""
    from mgpu.devices import list_devices, load_device

    if not name:
        typer.echo(json.dumps(list(list_devices())) if as_json else "\n".join(list_devices()))
        return
    numbers = load_device(name).numbers
    if as_json:
        typer.echo(json.dumps({key: number._asdict() for key, number in numbers.items()}, indent=1))
        return
    table = Table("number", "value", "unit", "confidence", "source", title=name)
    for key, number in numbers.items():
        table.add_row(key, f"{number.value:,}", number.unit, number.confidence, number.source)
    _console().print(table)


def _print_json(value: object) -> None:
    typer.echo(json.dumps(value, indent=1))


def _print_tables(launches: Mapping[str, Mapping[str, pl.DataFrame]], as_json: bool) -> None:
    """Prints named tables of each launch."""
    if as_json:
        rows = {name: {title: frame.to_dicts() for title, frame in tables.items()} for name, tables in launches.items()}
        _print_json(rows)
        return
    console = _console()
    for name, tables in launches.items():
        for title, frame in tables.items():
            shown = [column for column in _COLUMNS if column in frame.columns]
            table = Table(title=f"{name}: {title}", box=box.SIMPLE)
            for column in shown:
                justify = "right" if frame[column].dtype.is_numeric() else "left"
                table.add_column(column.replace("_", " "), justify=justify, overflow="fold")
            for row in frame.select(shown).iter_rows():
                table.add_row(*map(_cell, row))
            console.print(table)


# What fits a terminal of 100 columns; --json prints all columns.
_COLUMNS = ("barrier", "role", "waits", "blocked", "blocked_cycles", "released_by", "releaser", "had_been")
_COLUMNS += ("cause", "detail", "source", "count", "total_cycles", "kernel_share", "p50_cycles", "p95_cycles")


def _console() -> Console:
    """Returns a console as wide as the terminal; 100 columns if the output goes elsewhere."""
    return Console(width=None if sys.stdout.isatty() else 100)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 1 else f"{value:,.0f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _launches(profile: Path, name: str) -> list[Launch]:
    launches = open_profile(profile)
    chosen = [launch for launch in launches if name in ("", launch.name)]
    if not chosen:
        raise ParamsError(f"{profile} holds no launch {name!r}, only {', '.join(launch.name for launch in launches)}.")
    return chosen


def _parse_sms(text: str) -> list[int]:
    """Reads `0,1,8-15`."""
    sms: list[int] = []
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            sms += range(int(first), int(last or first) + 1)
    except ValueError:
        raise ParamsError(f"--sms got {text!r}, expected numbers and ranges such as 0,1,8-15.") from None
    return sms
