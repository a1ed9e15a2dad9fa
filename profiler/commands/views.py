"""Commands that show something in a browser, and the device tables."""

from __future__ import annotations

import importlib
import json
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from mgpu.errors import ParamsError
from profiler.commands import arguments
from profiler.commands.arguments import AsJson, LaunchName, Profile
from profiler.perfetto_server import HOST, find_perfetto_ui, serve_perfetto
from profiler.store import is_perfetto_file

Port = Annotated[int, typer.Option(help="TCP port on this machine.")]
PERFETTO_PORT, DASHBOARD_PORT = 9001, 8050


def perfetto(
    profile: Annotated[
        Path, typer.Argument(help="Profile directory, launch folder, capture, or .pftrace file.", show_default=False)
    ],
    launch: LaunchName = "",
    port: Port = PERFETTO_PORT,
    ui: Annotated[
        Path | None, typer.Option("--ui", help="Folder of another Perfetto UI (a built or saved one).")
    ] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in the default browser.")] = True,
) -> None:
    """Show a launch in the Perfetto UI, served from this machine: nothing is fetched or uploaded."""
    from profiler.export.perfetto import export_perfetto

    page = ui or find_perfetto_ui()
    if is_perfetto_file(profile):
        serve_perfetto(profile, page, port, open_browser=browser, announce=typer.echo)
        return
    chosen = arguments.choose_launch(profile, launch)
    with tempfile.TemporaryDirectory(prefix="mgpu-perfetto-") as folder:
        path = Path(folder) / f"{chosen.name}.pftrace"
        typer.echo(export_perfetto(chosen.load_trace(), path).to_text())
        serve_perfetto(path, page, port, open_browser=browser, announce=typer.echo)


def dashboard(
    profile: Profile,
    port: Port = DASHBOARD_PORT,
    host: Annotated[str, typer.Option(help="Address to listen on; another than a loopback one needs --token.")] = HOST,
    token: Annotated[str, typer.Option(help="Secret that browsers must show, in the URL that is printed.")] = "",
    base_path: Annotated[str, typer.Option(help="Path under which a proxy shows the dashboard.")] = "/",
    ui: Annotated[Path | None, typer.Option("--ui", help="Folder of another Perfetto UI.")] = None,
    static: Annotated[Path | None, typer.Option(help="Write one self-contained HTML file instead.")] = None,
    launch: LaunchName = "",
) -> None:
    """Serve the dashboard for a profile directory, or write a launch as one HTML file."""
    try:
        # Not an import statement: the dashboard sits above the profiler, and Dash is optional.
        module: Any = importlib.import_module("dashboard.app" if static is None else "dashboard.static")
    except ModuleNotFoundError as error:
        raise ParamsError(
            f"the dashboard needs the Python package {error.name!r}, which is not installed. "
            "Install it with: pip install 'mgpu[dashboard]'"
        ) from error
    if static is not None:
        typer.echo(f"{module.write_static(profile, static, launch)}: open it in a browser")
        return
    module.serve(profile, host=host, port=port, token=token, base_path=base_path, perfetto_ui=ui)


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
        arguments.print_json({key: number._asdict() for key, number in numbers.items()})
        return
    table = Table("number", "value", "unit", "confidence", "source", title=name)
    for key, number in numbers.items():
        table.add_row(key, f"{number.value:,}", number.unit, number.confidence, number.source)
    console = Console()
    (console if console.is_terminal else Console(width=100)).print(table)
