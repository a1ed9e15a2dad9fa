"""The files of the project, as the architecture tests read them."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("mgpu", "profiler", "dashboard")


@functools.cache
def project_files() -> tuple[Path, ...]:
    """Returns every file that git tracks, or would after `git add .`, sorted."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    paths = (ROOT / name for name in listing.split("\0") if name)
    return tuple(sorted(path for path in paths if path.is_file()))


def python_files(*folders: str) -> list[Path]:
    """Returns the Python files of the project, of the given top-level folders only if there are any."""
    return [
        path
        for path in project_files()
        if path.suffix == ".py" and (not folders or path.relative_to(ROOT).parts[0] in folders)
    ]


def module_name(path: Path) -> str:
    """Returns the dotted name under which a file of a package is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def relative(path: Path) -> str:
    """Returns a path as it is shown in test ids and messages."""
    return path.relative_to(ROOT).as_posix()
