"""The profile directory: one folder per launch, made whole or not at all.

    profile_dir/
      matmul-0001/            kernel name, then a number that no other process, thread or launch has
        capture.npz           raw words (mgpu.capture), written by the target
        trace.pftrace ...     what the profiler derives from it

A launch is written into a hidden folder and renamed, so readers never see half of it and an interrupted write leaves
the earlier launches as they were.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from mgpu.capture import Capture
from mgpu.errors import CaptureError

CAPTURE_FILE = "capture.npz"
_LAUNCH_NAME = re.compile(r"(?P<kernel>.+)-(?P<number>\d{4,})")


def check_writable(directory: str | Path) -> Path:
    """Creates `directory` if needed and proves that a file can be written there, before any work is spent.

    Raises:
      CaptureError: it cannot be created or written; says why.
    """
    path = Path(directory)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise CaptureError(
            f"profile_dir {str(path)!r} cannot be written: {error.strerror or error}. "
            "Give CompilerParams(profile_dir=...) a directory that you may write to."
        ) from error
    return path


def save_launch(directory: str | Path, capture: Capture) -> Path:
    """Adds a launch to the profile directory and returns its new folder.

    Raises:
      CaptureError: the directory cannot be written (permissions, disk full). Nothing that was there is touched.
    """
    root = check_writable(directory)
    kernel = re.sub(r"[^\w.]+", "_", capture.header.kernel) or "kernel"
    staging = Path(tempfile.mkdtemp(prefix=".writing-", dir=root))
    try:
        capture.save(staging / CAPTURE_FILE)
        staging.chmod(0o755)
        return _rename_to_free_number(staging, root, kernel)
    except OSError as error:
        raise CaptureError(f"{root}: cannot add a launch of {kernel}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _rename_to_free_number(staging: Path, root: Path, kernel: str) -> Path:
    number = 1 + max((n for k, n in map(_parse, os.listdir(root)) if k == kernel), default=0)
    while True:
        target = root / f"{kernel}-{number:04d}"
        try:
            # Renaming onto an existing non-empty folder fails, so two writers cannot take the same number.
            os.rename(staging, target)
        except OSError:
            if not target.exists():
                raise
            number += 1
        else:
            return target


def _parse(name: str) -> tuple[str, int]:
    match = _LAUNCH_NAME.fullmatch(name)
    return (match["kernel"], int(match["number"])) if match else ("", 0)


def list_launches(directory: str | Path) -> list[Path]:
    """Returns the launch folders in `directory`, by kernel name, then number.

    Raises:
      CaptureError: there is no such directory.
    """
    root = Path(directory)
    if not root.is_dir():
        raise CaptureError(
            f"{root}: no such profile directory. Run a kernel with CompilerParams(profile_dir={str(root)!r})."
        )
    found = [path for path in root.iterdir() if _parse(path.name)[0] and (path / CAPTURE_FILE).is_file()]
    return sorted(found, key=lambda path: _parse(path.name))
