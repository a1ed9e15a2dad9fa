"""Opens profile directories, and keeps Traces beside their captures as Parquet tables.

    profile_dir/matmul-0001/
      capture.npz             what the target wrote
      tables/                 what was built from it: trace.json (header) and one Parquet file per table

The tables are a cache that other programs may read: each file carries the meaning of the format version in its Parquet
metadata. They are rebuilt when the capture is newer, or when they are of another version of the format.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from mgpu import environment
from mgpu.capture import DAMAGED_FILE, Capture, CaptureHeader
from mgpu.errors import CaptureError
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from profiler.build import build_trace
from profiler.trace import SCHEMAS, Trace

TABLES_FORMAT = 2
TABLES_FOLDER = "tables"
HEADER_FILE = "trace.json"
_UNITS = {"mgpu.format": str(TABLES_FORMAT), "mgpu.time_unit": "SM cycles since the launch's first moment"}


@dataclasses.dataclass(frozen=True)
class Launch:
    """A recorded launch on disk.

    Attributes:
      capture_path: its capture file.
    """

    capture_path: Path

    @property
    def folder(self) -> Path:
        """Where the capture lies and where derived files go."""
        return self.capture_path.parent

    @property
    def name(self) -> str:
        """Name for people: of the launch folder (`matmul-0001`), or of a capture file with another name."""
        return self.folder.name if self.capture_path.name == CAPTURE_FILE else self.capture_path.stem

    @property
    def tables(self) -> Path:
        """The folder of its Parquet tables, whether they were written or not."""
        return self.folder / TABLES_FOLDER

    def load_capture(self) -> Capture:
        """Reads the raw capture."""
        return Capture.load(self.capture_path)

    def load_trace(self) -> Trace:
        """Reads the launch's timeline; see `load_trace`."""
        return load_trace(self.capture_path)


def open_profile(path: str | Path) -> list[Launch]:
    """Returns the launches at `path`: a profile directory, one launch folder, or a capture file.

    A script that `mgpu run` made record elsewhere (`mgpu.environment`) finds its launches all the same, and not those
    that an earlier run left at `path`.

    Raises:
      CaptureError: there is nothing of the kind.
    """
    path = Path(path)
    if path.is_file():
        return [Launch(path)]
    if (path / CAPTURE_FILE).is_file():
        return [Launch(path / CAPTURE_FILE)]
    elsewhere = environment.profile_dir("")
    if elsewhere and (environment.is_redirected(path) or not (path.is_dir() and list_launches(path))):
        path = Path(elsewhere)
    launches = [Launch(folder / CAPTURE_FILE) for folder in list_launches(path)]
    if not launches:
        raise CaptureError(
            f"{path}: holds no launches. Run a kernel with CompilerParams(profile_space=1024, "
            f"profile_dir={str(path)!r})."
        )
    return launches


def newest_launch(launches: Sequence[Launch]) -> Launch:
    """Returns the launch that was recorded last; of several recorded in one moment, the last by name."""
    return max(enumerate(launches), key=lambda row: (row[1].capture_path.stat().st_mtime_ns, row[0]))[1]


def read_header(path: str | Path) -> CaptureHeader:
    """Reads only the header of a capture, which is fast however many events it holds.

    Raises:
      CaptureError: the file is missing or damaged.
    """
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
            return CaptureHeader.from_json(json.loads(arrays["header"].tobytes()))
    except CaptureError:
        raise
    except DAMAGED_FILE as error:
        # NumPy's own words for a file that is no archive advise to unpickle it, which would run what is in it.
        reason = "its contents are something else" if isinstance(error, ValueError) else error
        raise CaptureError(f"{path}: not a capture, or truncated ({reason}). Record it again.") from error


def load_trace(path: str | Path) -> Trace:
    """Returns the timeline of a launch folder or capture file, from its tables if they are up to date.

    Raises:
      CaptureError: the capture cannot be read.
    """
    path = Path(path)
    capture_path = path / CAPTURE_FILE if path.is_dir() else path
    tables = capture_path.parent / TABLES_FOLDER
    if capture_path.name == CAPTURE_FILE and _is_current(tables, capture_path):
        return read_tables(tables)
    return build_trace(Capture.load(capture_path))


def has_tables(launch: Launch) -> bool:
    """True if the launch's tables are on disk, of this format, and no older than its capture."""
    return launch.capture_path.name == CAPTURE_FILE and _is_current(launch.tables, launch.capture_path)


def is_perfetto_file(path: str | Path) -> bool:
    """True for the name of an existing Perfetto trace file."""
    return Path(path).is_file() and Path(path).name.endswith((".pftrace", ".pftrace.gz", ".perfetto-trace"))


def _is_current(tables: Path, capture_path: Path) -> bool:
    try:
        header = tables / HEADER_FILE
        is_newer = header.stat().st_mtime_ns >= capture_path.stat().st_mtime_ns
        return is_newer and json.loads(header.read_text("utf-8")).get("tables_format") == TABLES_FORMAT
    except (OSError, ValueError):
        return False


def save_tables(trace: Trace, folder: str | Path) -> Path:
    """Writes a trace's tables into `folder`/tables, whole or not at all, and returns that folder.

    Raises:
      CaptureError: they cannot be written.
    """
    root = Path(folder)
    target = root / TABLES_FOLDER
    staging = None
    try:
        staging = Path(tempfile.mkdtemp(prefix=".writing-", dir=root))
        for name in SCHEMAS:
            trace.table(name).write_parquet(staging / f"{name}.parquet", metadata={**_UNITS, "mgpu.table": name})
        header = {name: getattr(trace, name) for name in _header_fields()}
        header |= {"tables_format": TABLES_FORMAT, "capture_header": trace.header.to_json()}
        (staging / HEADER_FILE).write_text(json.dumps(header, indent=1, sort_keys=True), "utf-8")
        staging.chmod(0o755)
        if target.exists():
            os.rename(target, staging / "replaced")
        os.rename(staging, target)
        shutil.rmtree(target / "replaced", ignore_errors=True)
    except OSError as error:
        raise CaptureError(f"{target}: cannot write the tables: {error.strerror or error}.") from error
    finally:
        if staging is not None:
            shutil.rmtree(staging, ignore_errors=True)
    return target


def read_tables(folder: str | Path) -> Trace:
    """Reads what `save_tables` wrote.

    Raises:
      CaptureError: a file is missing or damaged, or of another format version.
    """
    root = Path(folder)
    try:
        header: dict[str, Any] = json.loads((root / HEADER_FILE).read_text("utf-8"))
        if header.get("tables_format") != TABLES_FORMAT:
            raise CaptureError(
                f"{root}: tables of format {header.get('tables_format')}, this program reads {TABLES_FORMAT}. "
                "Delete the folder; it is built again from the capture."
            )
        tables = {name: pl.read_parquet(root / f"{name}.parquet") for name in SCHEMAS}
        fields: dict[str, Any] = {name: header[name] for name in _header_fields()} | tables
        return Trace(header=CaptureHeader.from_json(header["capture_header"]), **fields)
    except CaptureError:
        raise
    except (OSError, ValueError, KeyError, pl.exceptions.PolarsError) as error:
        raise CaptureError(f"{root}: damaged tables ({error}). Delete the folder; it is built again.") from error


def _header_fields() -> list[str]:
    """Names of the Trace's fields that are plain numbers."""
    return [field.name for field in dataclasses.fields(Trace) if field.init and field.name not in {"header", *SCHEMAS}]
