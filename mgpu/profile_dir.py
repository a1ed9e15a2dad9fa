"""The profile directory: one folder per launch, made whole or not at all.

    profile_dir/
      matmul-0001/            kernel name, then a number that no other process, thread or launch has
        capture.npz           raw words (mgpu.capture), written by the target
        trace.pftrace ...     what the profiler derives from it
      index.jsonl             a line for each launch: what lists need to know, so that thousands of them stay quick

A launch is written into a hidden folder and renamed, so readers never see half of it and an interrupted write leaves
the earlier launches as they were.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from mgpu import environment
from mgpu.capture import Capture, CaptureHeader
from mgpu.errors import CaptureError

CAPTURE_FILE = "capture.npz"
INDEX_FILE = "index.jsonl"
_TAIL_BYTES = 1 << 14  # of the index, to find a kernel's last number
_LARGE_INDEX_BYTES = 1 << 20  # beyond this, entries of deleted launches are worth removing
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
        raise _not_writable(path, error) from error
    return path


def _not_writable(path: Path, error: OSError) -> CaptureError:
    return CaptureError(
        f"profile_dir {str(path)!r} cannot be written: {error.strerror or error}. "
        "Give CompilerParams(profile_dir=...) a directory that you may write to."
    )


def save_launch(directory: str | Path, capture: Capture) -> Path:
    """Adds a launch to the profile directory and returns its new folder.

    With MGPU_PROFILE_KEEP, the oldest launches of the kernel beyond that number are deleted.

    Raises:
      CaptureError: the directory cannot be written (permissions, disk full). Nothing that was there is touched.
      ParamsError: MGPU_PROFILE_KEEP is not a positive number.
    """
    keep = environment.profile_keep()
    root = Path(directory)
    kernel = re.sub(r"[^\w.]+", "_", capture.header.kernel) or "kernel"
    try:
        root.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=".writing-", dir=root))
    except OSError as error:
        raise _not_writable(root, error) from error
    try:
        capture.save(staging / CAPTURE_FILE)
        staging.chmod(0o755)
        saved = _rename_to_free_number(staging, root, kernel)
    except CaptureError as error:
        raise CaptureError(f"{root}: the launch of {kernel} is not saved, earlier ones are whole. {error}") from error
    except OSError as error:
        raise CaptureError(f"{root}: cannot add a launch of {kernel}: {error.strerror or error}.") from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _add_to_index(root, saved.name, capture)
    if keep:
        number = _parse(saved.name)[1]
        delete_launches(root, (root / _name(kernel, old) for old in _descending(root, kernel, number - keep)))
    return saved


def _name(kernel: str, number: int) -> str:
    return f"{kernel}-{number:04d}"


def _descending(root: Path, kernel: str, number: int) -> Iterator[int]:
    """Yields the numbers of existing launches from `number` down to the first one that is missing."""
    while number > 0 and (root / _name(kernel, number)).is_dir():
        yield number
        number -= 1


def _rename_to_free_number(staging: Path, root: Path, kernel: str) -> Path:
    number = 1 + _last_number(root, kernel)
    while True:
        target = root / _name(kernel, number)
        try:
            # Renaming onto an existing non-empty folder fails, so two writers cannot take the same number.
            os.rename(staging, target)
        except OSError:
            if not target.exists():
                raise
            number += 1
        else:
            return target


def _last_number(root: Path, kernel: str) -> int:
    """Returns the number of the kernel's newest launch, or one below it: from the index's end, else by listing."""
    for entry in _newest_entries(root, _TAIL_BYTES):
        name, number = _parse(entry["launch"])
        if name == kernel:
            return number
    return max((n for k, n in map(_parse, os.listdir(root)) if k == kernel), default=0)


def _parse(name: str) -> tuple[str, int]:
    match = _LAUNCH_NAME.fullmatch(name)
    return (match["kernel"], int(match["number"])) if match else ("", 0)


def _add_to_index(root: Path, launch: str, capture: Capture) -> None:
    """Appends a launch to the index. It only saves readers time, so that failing to write it loses nothing."""
    line = json.dumps({"launch": launch} | summary_of(capture.header)) + "\n"
    with contextlib.suppress(OSError), (root / INDEX_FILE).open("ab") as file:
        file.write(line.encode())


def summary_of(header: CaptureHeader) -> dict[str, object]:
    """Returns what a list of launches tells about one: kernel, device, provenance and grid."""
    names = ("kernel", "device", "provenance", "grid")
    return {name: list(value) if isinstance(value := getattr(header, name), tuple) else value for name in names}


def read_index(directory: str | Path) -> dict[str, dict[str, Any]]:
    """Returns `summary_of` the launches of a directory by folder name, as far as they are in its index.

    Launches may be missing there, and deleted ones may still be in it.
    """
    return {entry.pop("launch"): entry for entry in _oldest_entries(Path(directory))}


def _oldest_entries(root: Path) -> list[dict[str, Any]]:
    return [*_newest_entries(root, None)][::-1]


def _newest_entries(root: Path, tail_bytes: int | None) -> Iterator[dict[str, Any]]:
    """Yields the entries in the last so many bytes of the index, or in all of it, from the newest one on."""
    try:
        with (root / INDEX_FILE).open("rb") as file:
            if tail_bytes is not None:
                file.seek(max(file.seek(0, os.SEEK_END) - tail_bytes, 0))
            lines = file.read().splitlines()
    except OSError:
        return
    for line in reversed(lines):
        # A line that was cut off, at the begin of the tail or by a full disk, is no entry.
        with contextlib.suppress(ValueError):
            entry = json.loads(line)
            if isinstance(entry, dict) and "launch" in entry:
                yield entry


def delete_launches(directory: str | Path, folders: Iterable[Path]) -> int:
    """Deletes launch folders of a profile directory, each at once for readers, and returns how many there were.

    Raises:
      CaptureError: a folder cannot be deleted.
    """
    root = Path(directory)
    count = 0
    for folder in folders:
        try:
            hidden = Path(tempfile.mkdtemp(prefix=".deleting-", dir=root))
            os.rename(folder, hidden / folder.name)
            shutil.rmtree(hidden)
        except FileNotFoundError:
            continue  # another writer has deleted it
        except OSError as error:
            raise CaptureError(f"{folder}: cannot be deleted: {error.strerror or error}.") from error
        count += 1
    with contextlib.suppress(OSError):
        if (root / INDEX_FILE).stat().st_size > _LARGE_INDEX_BYTES:
            _shrink_index(root)
    return count


def _shrink_index(root: Path) -> None:
    entries = [entry for entry in _oldest_entries(root) if (root / entry["launch"]).is_dir()]
    staging = root / f".{INDEX_FILE}-{os.getpid()}"
    staging.write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    staging.replace(root / INDEX_FILE)


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
