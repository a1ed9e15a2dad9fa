"""One summary of many launches, from their Parquet tables: what `mgpu report DIR --engine duckdb` prints.

Launches whose tables are missing or old are analysed first, one after another; from then on a summary reads Parquet
only. The queries are in `profiler.analysis.fleet`, the engines that run them in `profiler.engines`.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from mgpu.errors import CaptureError
from profiler.analysis import fleet
from profiler.analysis.bubbles import find_bubbles
from profiler.engines import Engine, collect, connect, open_tables
from profiler.store import Launch, has_tables, save_tables
from profiler.trace import Trace

BUBBLES_FILE = "bubbles.parquet"


@dataclasses.dataclass(frozen=True)
class FleetReport:
    """What the launches of a profile directory have in common.

    Attributes:
      launches: per launch, in the order of recording: `kernel, launch, launch_cycles, events_kept, events_dropped,
        recorded` ("whole", or "part" if something was left out on purpose: a measured launch may have taken longer).
      kernels: durations of each kernel's launches, by `kernel, recorded`.
      waits: blocked waits by `kernel, barrier, role, released_by_role`.
      categories: own time of the recorded spans, `self_dur` in cycles, by `kernel, category`.
      bubbles: time in which tensor cores had nothing to do, by `kernel, place, cause, barrier, root_barrier`.
    """

    launches: pl.DataFrame
    kernels: pl.DataFrame
    waits: pl.DataFrame
    categories: pl.DataFrame
    bubbles: pl.DataFrame

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """The tables by title."""
        return {
            "durations": self.kernels,
            "blocked waits": self.waits,
            "time by category": self.categories,
            "tensor cores without work": self.bubbles,
            "launches": self.launches,
        }


# Which files each question is asked of.
_QUERIES: dict[str, tuple[tuple[str, ...], Callable[..., Any]]] = {
    "launches": (("tracks.parquet", "ctas.parquet", "defects.parquet"), fleet.durations),
    "kernels": (("tracks.parquet", "ctas.parquet", "defects.parquet"), fleet.kernel_durations),
    "waits": (("waits.parquet",), fleet.waits_by_barrier),
    "categories": (("spans.parquet",), fleet.time_by_category),
    "bubbles": ((BUBBLES_FILE,), fleet.bubbles_by_cause),
}


def prepare_tables(launches: Iterable[Launch]) -> list[Path]:
    """Writes the tables of launches that lack current ones; returns the tables' folders.

    Raises:
      CaptureError: a capture cannot be read, or its folder not be written.
    """
    folders = []
    for launch in launches:
        if not (launch.tables.joinpath(BUBBLES_FILE).is_file() and has_tables(launch)):
            trace = launch.load_trace()
            _write_bubbles(trace, save_tables(trace, launch.folder))
        folders.append(launch.tables)
    return folders


def _write_bubbles(trace: Trace, tables: Path) -> None:
    found = find_bubbles(trace)
    places = [found.bubbles.with_columns(place=pl.lit("between MMAs")), found.edges.with_columns(place=pl.lit("ends"))]
    staging = tables / f".{BUBBLES_FILE}-{os.getpid()}"
    try:
        pl.concat(places).write_parquet(staging)
        os.replace(staging, tables / BUBBLES_FILE)
    except OSError as error:
        raise CaptureError(f"{tables}: cannot write {BUBBLES_FILE}: {error.strerror or error}.") from error


def summarise_fleet(tables: Sequence[Path], engine: Engine = Engine.POLARS) -> FleetReport:
    """Asks an engine about all launches at once; results are the same on every engine.

    Args:
      tables: what `prepare_tables` returned.
      engine: who runs the queries.

    Raises:
      ParamsError: the engine is not installed.
    """
    session = connect(engine)
    try:
        answers = {
            name: collect(
                query(*(open_tables(session, engine, [folder / file for folder in tables]) for file in files))
            )
            for name, (files, query) in _QUERIES.items()
        }
        return FleetReport(**answers)
    finally:
        if session is not None:
            (session.stop if engine is Engine.PYSPARK else session.close)()
