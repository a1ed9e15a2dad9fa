"""Commands that answer questions about a launch: report, advise, bubbles, waits, path, launches."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import polars as pl
import typer

from mgpu.errors import ParamsError
from mgpu.profile_dir import delete_launches, read_index, summary_of
from profiler.analysis import find_barrier_waits, find_bubbles
from profiler.analysis.critical_path import find_critical_path
from profiler.commands import arguments
from profiler.commands.arguments import AllLaunches, AsJson, AsMarkdown, FailIf, LaunchName, Profile
from profiler.engines import Engine
from profiler.fleet import prepare_tables, summarise_fleet
from profiler.report import build_report
from profiler.report_sections import Section, report_sections
from profiler.source_names import shorten_source
from profiler.store import newest_launch, open_profile, read_header


def report(
    profile: Profile,
    launch: LaunchName = "",
    every: AllLaunches = False,
    as_json: AsJson = False,
    markdown: AsMarkdown = False,
    fail_if: FailIf = None,
    engine: Annotated[
        Engine | None,
        typer.Option("--engine", help="Sum up all launches with this engine, in pieces: more than fits in memory."),
    ] = None,
) -> None:
    """Say where the time of a launch went, what bounds it and what to change."""
    if engine is not None:
        if launch or fail_if:
            raise ParamsError("--engine sums up all launches: it takes neither --launch nor --fail-if.")
        _report_fleet(profile, engine, as_json, markdown)
        return
    conditions = arguments.parse_conditions(fail_if)
    chosen = arguments.choose_launches(profile, launch, every)
    reports = {}
    for one in arguments.with_progress(chosen, "Analysing"):
        reports[one.name] = build_report(one.load_trace())
    if as_json:
        arguments.print_json({name: each.to_json() for name, each in reports.items()})
    else:
        for each in reports.values():
            arguments.print_sections(report_sections(each), markdown)
    for each in reports.values():
        arguments.exit_if(conditions, each)


def _report_fleet(profile: Path, engine: Engine, as_json: bool, markdown: bool) -> None:
    """Prints the summary of all launches of a profile directory."""
    launches = open_profile(profile)
    found = summarise_fleet(prepare_tables(arguments.with_progress(launches, "Reading captures")), engine)
    if as_json:
        arguments.print_json({name.replace(" ", "_"): frame.to_dicts() for name, frame in found.tables.items()})
        return
    sections = [
        arguments.table_section(
            title if len(frame) <= _FLEET_ROWS else f"{title}, first {_FLEET_ROWS}", frame[:_FLEET_ROWS]
        )
        for title, frame in found.tables.items()
    ]
    heading = f"{len(launches)} launches in {profile}; times are cycles"
    arguments.print_sections([Section(heading), *sections], markdown)


def advise(profile: Profile, launch: LaunchName = "", as_json: AsJson = False, markdown: AsMarkdown = False) -> None:
    """List what to change first, with the numbers that speak for it and the gain to expect."""
    found = arguments.load_report(profile, launch)
    if as_json:
        arguments.print_json({key: found.to_json()[key] for key in ("verdict", "limit", "advice", "notes")})
        return
    lines = (f"Verdict: {found.verdict}.", f"{found.advice.limit}.", *(f"! {note}" for note in found.notes))
    items = [f"{item.remedy}\n   gain: {item.gain_text}\n   why: {item.evidence}" for item in found.advice.items]
    nothing = () if items else ("Nothing that is known here would gain 1% or more.",)
    arguments.print_sections([Section("Advice", (*lines, "", *nothing), items=tuple(items))], markdown)


def bubbles(profile: Profile, launch: LaunchName = "", every: AllLaunches = False, as_json: AsJson = False) -> None:
    """List the stretches in which tensor cores had nothing to do, by cause."""
    tables = {}
    for one in arguments.choose_launches(profile, launch, every):
        found = find_bubbles(one.load_trace())
        tables[one.name] = {"between first and last MMA": found.groups, "outside": found.edge_groups}
    _print_tables(tables, as_json)


def waits(profile: Profile, launch: LaunchName = "", every: AllLaunches = False, as_json: AsJson = False) -> None:
    """List barrier waits: who waited, on which barrier and slot, how long, and who released it."""
    tables = {}
    for one in arguments.choose_launches(profile, launch, every):
        found = find_barrier_waits(one.load_trace())
        tables[one.name] = {
            "waits by barrier": found.barriers,
            "waits by slot": found.slots,
            "released by": found.releasers,
        }
    _print_tables(tables, as_json)


def path(profile: Profile, launch: LaunchName = "", as_json: AsJson = False) -> None:
    """Show the critical path: the chain of steps that took as long as the launch, and the slack of the rest."""
    one = arguments.choose_launch(profile, launch)
    found = find_critical_path(one.load_trace())
    _print_tables({one.name: {"critical path": found.parts, "slack of the rest": found.slack}}, as_json)


def launches(
    profile: Profile,
    as_json: AsJson = False,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Delete all but the newest N launches of each kernel.")
    ] = None,
) -> None:
    """List the launches of a profile directory, or delete old ones."""
    found = open_profile(profile)
    if keep is not None:
        kernels: dict[str, list[int]] = {}
        for row, one in enumerate(found):
            kernels.setdefault(one.name.rpartition("-")[0], []).append(row)
        old = [row for rows in kernels.values() for row in rows[:-keep]]
        deleted = delete_launches(found[0].folder.parent, (found[row].folder for row in old))
        if as_json:
            arguments.print_json({"deleted": deleted, "launches": len(found) - deleted})
        else:
            typer.echo(f"deleted {deleted} of {len(found)} launches")
        return
    newest = newest_launch(found).name
    index = read_index(found[0].folder.parent)
    rows = [
        {
            "launch": one.name,
            **_describe(index.get(one.name) or summary_of(read_header(one.capture_path))),
            "newest": one.name == newest,
        }
        for one in found
    ]
    if as_json:
        arguments.print_json(rows)
        return
    title = f"{len(rows)} launches in {profile}"
    arguments.print_sections([arguments.table_section(title, pl.DataFrame(rows))])


def _describe(summary: Mapping[str, Any]) -> dict[str, object]:
    return {**summary, "grid": "x".join(map(str, summary["grid"]))}


def _print_tables(launches: dict[str, dict[str, pl.DataFrame]], as_json: bool) -> None:
    """Prints named tables of each launch."""
    if as_json:
        arguments.print_json(
            {name: {title: frame.to_dicts() for title, frame in tables.items()} for name, tables in launches.items()}
        )
        return
    for name, tables in launches.items():
        sections = []
        for title, frame in tables.items():
            columns = {
                column: shorten_source if column in _SOURCES else arguments.form_of(column)
                for column in _COLUMNS
                if column in frame.columns
            }
            if "slot" in frame.columns:
                columns = {column: form for column, form in columns.items() if column != "released_by"}
            sections.append(arguments.table_section(f"{name}: {title}", frame, columns))
        arguments.print_sections(sections)


_FLEET_ROWS = 20  # per table; --json prints all
_SOURCES = ("source", "had_been_source")
# What fits a terminal of 100 columns; --json prints all columns.
_COLUMNS = ("kind", "barrier", "slot", "role", "waits", "blocked", "blocked_cycles", "released_by", "releaser")
_COLUMNS += ("had_been", "had_been_source", "cause", "detail", "source", "count", "cycles", "share", "total_cycles")
_COLUMNS += ("kernel_share", "p50_cycles", "p95_cycles", "min_slack_cycles", "p50_slack_cycles")
