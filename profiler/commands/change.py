"""Commands about change: whatif predicts or re-simulates a changed launch, compare sets two side by side."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import polars as pl
import typer

from profiler.analysis.compare import CompareReport, compare_reports
from profiler.analysis.what_if import predict_changes
from profiler.commands import arguments
from profiler.commands.arguments import AsJson, AsMarkdown, FailIf, LaunchName, Profile
from profiler.report_sections import Section
from profiler.resimulate import DEFAULT_TRIALS, Trial, parse_trial, resimulate

_SHOWN = 12


def whatif(
    profile: Annotated[
        Path | None, typer.Argument(help="Profile directory, launch folder, or capture file.", show_default=False)
    ] = None,
    launch: LaunchName = "",
    script: Annotated[
        Path | None, typer.Option("--script", help="Run this script again on the simulator instead of estimating.")
    ] = None,
    script_args: Annotated[str, typer.Option("--args", help="Arguments of the script, as one string.")] = "",
    trials: Annotated[
        list[str] | None,
        typer.Option("--try", help="Device numbers to change, NAME=VALUE[,NAME=VALUE]; or 'args: ...' for the script."),
    ] = None,
    device: Annotated[str, typer.Option("--device", help="Device to simulate.")] = "",
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
) -> None:
    """Predict what a launch would take if one thing were different, largest gain first.

    Of a recorded launch, by replay on its event graph. With --script, by simulating the changed run.
    """
    if script is not None:
        chosen = [parse_trial(text) for text in trials or ()] or list(DEFAULT_TRIALS)
        table = _rerun(script, shlex.split(script_args), chosen, device)
        title, note = f"What if {script.name} ran with ...", "simulated again, with recording"
    elif profile is not None:
        found = predict_changes(arguments.choose_launch(profile, launch).load_trace())
        table, title = found.scenarios, f"What if ({found.cycles:,} cycles as it is)"
        note = "replayed on the event graph: an estimate; a bound is what nobody can build"
    else:
        raise typer.BadParameter("give a profile directory, or a script with --script")
    if as_json:
        arguments.print_json(table.to_dicts())
        return
    columns = {name: arguments.format_cell for name in table.columns if name not in ("is_bound", "provenance")}
    section = arguments.table_section(title, table, columns)
    arguments.print_sections([Section(section.title, (), section.columns, section.rows, (note,))], markdown)


def _rerun(script: Path, script_args: list[str], trials: list[Trial], device: str) -> pl.DataFrame:
    base = resimulate(script, script_args, Trial("as it is"), device)
    rows = []
    for trial in arguments.with_progress(trials, "Simulating"):
        cycles = resimulate(script, script_args, trial, device)
        rows.append((trial.name, cycles, base - cycles, base / max(cycles, 1), "simulated"))
    columns = ["scenario", "simulated_cycles", "gain_cycles", "speedup", "provenance"]
    table = pl.DataFrame(rows, schema=columns, orient="row")
    return table.sort("gain_cycles", "scenario", descending=[True, False])


def compare(
    first: Profile,
    second: Profile,
    first_launch: Annotated[str, typer.Option("--first", help="Launch of the first profile.")] = "",
    second_launch: Annotated[str, typer.Option("--second", help="Launch of the second profile.")] = "",
    across_devices: Annotated[
        bool, typer.Option("--across-devices", help="Compare different devices, by time instead of cycles.")
    ] = False,
    fail_if: FailIf = None,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
) -> None:
    """Compare two launches, aligned by role, phase and iteration: where did the time go?"""
    conditions = arguments.parse_conditions(fail_if)
    a, b = arguments.load_report(first, first_launch), arguments.load_report(second, second_launch)
    found = compare_reports(a, b, across_devices)
    if as_json:
        arguments.print_json(_compare_json(found))
    else:
        arguments.print_sections(_compare_sections(found), markdown)
    arguments.exit_if(conditions, b, a)


def _compare_json(found: CompareReport) -> dict[str, object]:
    names = ("a_cycles", "b_cycles", "a_ns", "b_ns", "delta_cycles", "change")
    tables = ("categories", "waits", "causes", "phases", "iterations")
    return {
        **{name: getattr(found, name) for name in names},
        "notes": list(found.notes),
        **{name: getattr(found, name).to_dicts() for name in tables},
    }


def _compare_sections(found: CompareReport) -> list[Section]:
    direction = "less" if found.change < 0 else "more"
    lines = [
        f"{found.a_cycles:,.0f} -> {found.b_cycles:,.0f} cycles ({found.delta_cycles:+,.0f}); "
        f"{found.a_ns / 1e3:,.2f} -> {found.b_ns / 1e3:,.2f} µs: {abs(found.change):.1%} {direction} time",
        *(f"! {note}" for note in found.notes),
    ]
    return [
        Section("Second launch against the first", tuple(lines)),
        _waterfall("Tensor core: what changed (cycles of one SM; sums to the difference)", found.causes),
        _waterfall("Roles: what changed (cycles of one warpgroup; each role sums to the difference)", found.categories),
        _waterfall("Waits", found.waits),
        _waterfall("Phases of the main loop (median over CTAs)", found.phases),
    ]


def _waterfall(title: str, table: pl.DataFrame) -> Section:
    changed = table.filter(pl.col("delta_cycles").abs() >= 0.5)
    if changed.is_empty():
        return Section(title, ("no change",))
    section = arguments.table_section(title, changed.head(_SHOWN), dict.fromkeys(changed.columns, _cycles))
    rest = changed.slice(_SHOWN)
    notes = (
        (f"... and {float(rest['delta_cycles'].sum()):+,.0f} cycles in {rest.height} more rows",) if rest.height else ()
    )
    return Section(section.title, (), section.columns, section.rows, notes)


def _cycles(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else str(value)
