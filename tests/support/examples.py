"""Loads the example scripts, whose names begin with a number, as modules, and runs them for their output.

python -m support.examples        writes every `.out` file anew (make golden)
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
import tempfile
from pathlib import Path
from types import ModuleType

EXAMPLES = Path(__file__).parents[2] / "examples"

# Arguments of the runs whose output is kept, where the defaults would take longer than a test should.
ARGUMENTS = {"04_warp_specialized_matmul": ["--size", "512"]}


def list_examples() -> list[str]:
    """Returns the names of the course's scripts, in order."""
    return sorted(path.stem for path in EXAMPLES.glob("[0-9]*.py"))


def load_example(name: str) -> ModuleType:
    """Returns the example `name` (its file name without `.py`) as a module; loaded once."""
    qualified = f"example_{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(qualified, EXAMPLES / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        spec.loader.exec_module(module)
    return sys.modules[qualified]


def run_example(name: str) -> str:
    """Returns what an example prints, run in an empty directory, where it may leave its profile."""
    main = load_example(name).main
    printed = io.StringIO()
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory), contextlib.redirect_stdout(printed):
        main(ARGUMENTS.get(name, []))
    return printed.getvalue()


def write_outputs() -> None:
    """Runs every example and writes its `.out` file."""
    for name in list_examples():
        (EXAMPLES / f"{name}.out").write_text(run_example(name))


if __name__ == "__main__":
    write_outputs()
