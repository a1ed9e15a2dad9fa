"""Commands that read and write files: run a script, export a launch, import other tools' traces."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mgpu import environment
from mgpu.errors import ParamsError
from mgpu.profile_dir import save_launch
from mgpu.profile_window import make_window
from profiler.commands import arguments
from profiler.commands.arguments import AllLaunches, AsJson, LaunchName, Profile
from profiler.report import build_report
from profiler.report_sections import report_sections
from profiler.resimulate import run_script
from profiler.store import newest_launch, open_profile


def run(
    context: typer.Context,
    script: Annotated[Path, typer.Argument(help="Python script that calls the kernel.", show_default=False)],
    device: Annotated[str, typer.Option("--device", help="Device to simulate, if the script does not choose.")] = "",
    numbers: Annotated[
        list[str] | None,
        typer.Option("--set", help="Device number to replace: NAME=VALUE (repeatable); clock_hz=power_capped too."),
    ] = None,
    compute_scale: Annotated[
        list[str] | None,
        typer.Option("--compute-scale", help="Factor on a warpgroup's own work: WARPGROUP=FACTOR (repeatable)."),
    ] = None,
    profile_dir: Annotated[
        Path | None, typer.Option("--profile-dir", help="Record every kernel of the script into this directory.")
    ] = None,
    profile_space: Annotated[
        int, typer.Option("--profile-space", min=0, help="Events per track for kernels that ask for no recording.")
    ] = 0,
    keep: Annotated[
        int, typer.Option("--keep", min=0, help="Launches of each kernel to keep, the newest; 0 keeps all.")
    ] = 0,
    record_ctas: Annotated[
        str | None, typer.Option("--record-ctas", help="CTAs to record, such as 0-3,8.", show_default=False)
    ] = None,
    record_warpgroups: Annotated[
        str | None, typer.Option("--record-warpgroups", help="Warpgroups to record, such as 0,2.", show_default=False)
    ] = None,
    record_iterations: Annotated[
        str | None,
        typer.Option(
            "--record-iterations",
            help="Loop iterations to record, such as 10:20; for nested loops outermost first: 2:3,10:20.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Run a script, optionally on another device, with device numbers replaced, or recorded. Script options go last.

    A `--` between the script and its options is allowed. With --profile-dir, the report of the newest launch follows.
    """
    changed = environment.parse_numbers(",".join(numbers or ()))
    factors = ",".join(compute_scale or ())
    environment.parse_compute_scale(factors)  # an error before the script runs
    window = make_window(record_ctas, record_warpgroups, record_iterations)
    script_args = context.args[1:] if context.args[:1] == ["--"] else context.args
    try:
        run_script(
            script,
            script_args,
            device=device,
            numbers=changed,
            compute_scale=factors,
            profile_dir=profile_dir,
            profile_space=profile_space,
            profile_window=window.to_text() if window else "",
            profile_keep=keep,
        )
    except ParamsError as error:
        ours = [word for word in script_args if word.partition("=")[0] in _options(context)]
        if not ours:
            raise
        hint = f"{', '.join(ours)} went to the script: options of `mgpu run` go before it."
        raise ParamsError(f"{error} {hint}") from None
    if profile_dir is not None:
        report = build_report(newest_launch(open_profile(profile_dir)).load_trace())
        arguments.print_sections(report_sections(report))


def _options(context: typer.Context) -> set[str]:
    return {name for parameter in context.command.params for name in parameter.opts if name.startswith("--")}


def export(
    profile: Profile,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Perfetto file; one launch only.")] = None,
    sms: Annotated[str, typer.Option("--sms", help="SMs to export, such as 0,1,8-15. Default: as many as fit.")] = "",
    launch: LaunchName = "",
    every: AllLaunches = False,
    as_json: AsJson = False,
) -> None:
    """Write a Perfetto trace (`trace.pftrace`) and Parquet tables beside the capture."""
    from profiler.export.perfetto import export_perfetto
    from profiler.store import save_tables

    if output is not None and every:
        raise ParamsError("--output names one file, and --all means all launches: choose one with --launch.")
    written = []
    for one in arguments.with_progress(arguments.choose_launches(profile, launch, every), "Exporting"):
        trace = one.load_trace()
        path = output or one.folder / "trace.pftrace"
        counts = export_perfetto(trace, path, sms=parse_sms(sms) or None)
        tables = save_tables(trace, one.folder)
        written.append({"launch": one.name, "perfetto": str(path), "tables": str(tables), "counts": counts.to_text()})
    if as_json:
        arguments.print_json(written)
        return
    for row in written:
        typer.echo(f"{row['perfetto']}: {row['counts']}\n{row['tables']}: Parquet tables")
    typer.echo(f"Open it with `mgpu perfetto {profile}`, or at https://ui.perfetto.dev")


def parse_sms(text: str) -> list[int]:
    """Reads `0,1,8-15`.

    Raises:
      ParamsError: it has another form.
    """
    sms: list[int] = []
    try:
        for part in filter(None, text.split(",")):
            first, _, last = part.partition("-")
            sms += range(int(first), int(last or first) + 1)
    except ValueError:
        raise ParamsError(f"--sms got {text!r}, expected numbers and ranges such as 0,1,8-15.") from None
    return sms


def import_(
    file: Annotated[Path, typer.Argument(help="JAX's *-trace.json, or the JSON of NVIDIA IKET.", show_default=False)],
    output: Annotated[Path, typer.Option("-o", "--output", help="Profile directory to add the launch to.")] = Path(
        "imported"
    ),
    clock_ghz: Annotated[
        float, typer.Option("--clock-ghz", min=0.0, help="SM clock of the run in GHz; JAX's files need it.")
    ] = 0.0,
    device: Annotated[str, typer.Option("--device", help="Device that it ran on, such as h100.")] = "",
    tracks_per_cta: Annotated[
        int, typer.Option("--tracks-per-cta", min=0, help="Recorded warps or warpgroups of a CTA, for JAX's files.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Turn a trace of another tool into a launch of this one; lists what the file does not tell."""
    from profiler.importers import import_file

    capture = import_file(file, clock_hz=clock_ghz * 1e9, device=device, tracks_per_cta=tracks_per_cta)
    folder = save_launch(output, capture)
    events = int(capture.stored_counts.sum())
    if as_json:
        lost = list(capture.header.notes)
        arguments.print_json({"folder": str(folder), "tracks": len(capture.tracks), "events": events, "lost": lost})
        return
    typer.echo(f"{folder}: {events:,} events on {len(capture.tracks):,} tracks")
    for note in capture.header.notes:
        typer.echo(f"! {note}")
    typer.echo(f"Next: mgpu report {folder}")
