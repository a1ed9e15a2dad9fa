"""The `mgpu` command: reports, tables and traces of recorded launches.

Most commands take a profile directory, one launch folder in it, or a capture file, and speak of the newest launch.
What goes wrong on purpose (`MgpuError`) is printed as one message. Exit status: 0 done, 1 a `--fail-if` condition
holds, 2 the command could not do its work. The commands themselves are in `profiler.commands`.
"""

from __future__ import annotations

import sys

import typer

from mgpu.errors import MgpuError
from profiler.commands import analyse, change, files, views
from profiler.commands.arguments import EXIT_ERROR

app = typer.Typer(
    help="Where the warpgroups of a GPU kernel wait, for what, and why.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# Order and grouping are those of `mgpu --help`.
_GROUPS = {
    "Ask": (analyse.report, analyse.advise, analyse.bubbles, analyse.waits, analyse.path, analyse.launches),
    "Change": (change.whatif, change.compare),
    "Files": (files.export,),
    "Look": (views.perfetto, views.dashboard, views.devices),
}
# What follows the script belongs to the script.
_SCRIPT = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}

app.command(name="run", context_settings=_SCRIPT, rich_help_panel="Record")(files.run)
for _group, _commands in _GROUPS.items():
    for _command in _commands:
        app.command(rich_help_panel=_group)(_command)
app.command(name="import", rich_help_panel="Files")(files.import_)


def main() -> None:
    """Runs the command line; entry point `mgpu`."""
    try:
        app()
    except MgpuError as error:
        print(f"mgpu: {error}", file=sys.stderr)
        raise SystemExit(EXIT_ERROR) from None
    except BrokenPipeError:  # `mgpu report DIR | head`: the reader has seen enough
        sys.stderr.close()
        raise SystemExit(0) from None
