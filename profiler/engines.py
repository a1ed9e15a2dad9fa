"""The engines that can read the Parquet tables of many launches: Polars (always), DuckDB and Spark (if installed)."""

from __future__ import annotations

import enum
import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from mgpu.errors import ParamsError


class Engine(enum.StrEnum):
    """Who runs the queries. Polars and DuckDB work in pieces on this machine, Spark also on a cluster."""

    POLARS = "polars"
    DUCKDB = "duckdb"
    PYSPARK = "pyspark"


_INSTALL = {
    Engine.DUCKDB: "pip install 'mgpu[sql]'",
    Engine.PYSPARK: "pip install pyspark (it needs a Java runtime)",
}


def connect(engine: Engine) -> Any:
    """Returns what `open_tables` needs to hold on to: a DuckDB connection, a Spark session, nothing for Polars.

    Raises:
      ParamsError: the engine is not installed.
    """
    try:
        if engine is Engine.DUCKDB:
            return importlib.import_module("duckdb").connect()
        if engine is Engine.PYSPARK:
            return importlib.import_module("pyspark.sql").SparkSession.builder.appName("mgpu").getOrCreate()
    except ImportError as error:
        raise ParamsError(
            f"--engine {engine}: {error.name} is not installed. {_INSTALL[engine]}, or use --engine polars."
        ) from error
    return None


def open_tables(session: Any, engine: Engine, files: Sequence[Path]) -> Any:
    """Returns Parquet files as one lazy table of the engine, with the file that a row is from in the column `path`."""
    names = [str(file) for file in files]
    if engine is Engine.DUCKDB:
        return session.sql("select * from read_parquet($files, filename = 'path')", params={"files": names})
    if engine is Engine.PYSPARK:
        path = importlib.import_module("pyspark.sql.functions").input_file_name()
        return session.read.parquet(*names).withColumn("path", path)
    return pl.scan_parquet(names, include_file_paths="path", glob=False)


def collect(table: Any) -> pl.DataFrame:
    """Runs a lazy table and returns its rows; Polars streams, so that what it reads need not fit in memory."""
    if isinstance(table, pl.LazyFrame):
        return table.collect(engine="streaming")
    if nw.from_native(table).implementation is nw.Implementation.DUCKDB:
        return pl.DataFrame(table)  # by Arrow's C interface; the relation's own method needs pyarrow
    schema = nw.from_native(table).lazy().collect_schema().to_polars()
    return pl.DataFrame([tuple(row) for row in table.collect()], schema=schema, orient="row")  # Spark, without pyarrow
