"""The summary of many launches: against sums over the launches' own Traces, and equal on every engine."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from mgpu.profile_dir import save_launch
from profiler.analysis.bubbles import find_bubbles
from profiler.cli import app
from profiler.engines import Engine
from profiler.fleet import FleetReport, prepare_tables, summarise_fleet
from profiler.store import open_profile
from support.captures import ring_capture


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("many launches")
    for number in range(5):
        kernel = "ring" if number < 3 else "other_2-1"  # "-" becomes "_"
        save_launch(root, ring_capture(kernel=kernel, stages=2 + number % 2, tma_cycles=400 + 100 * number))
    save_launch(root, ring_capture(kernel="ring", capacity=20))
    return root


@pytest.fixture(scope="module")
def tables(directory: Path) -> list[Path]:
    return prepare_tables(open_profile(directory))


@pytest.fixture(scope="module")
def fleet(tables: list[Path]) -> FleetReport:
    return summarise_fleet(tables)


def test_launches_in_order_with_their_durations(directory: Path, fleet: FleetReport) -> None:
    expected = [
        (one.name.rpartition("-")[0], one.name, trace.end, trace.events_kept, trace.events_dropped, "whole")
        for one in open_profile(directory)
        for trace in [one.load_trace()]
    ]
    assert fleet.launches.rows() == expected
    assert fleet.launches["kernel"].unique().sort().to_list() == ["other_2_1", "ring"]
    assert fleet.kernels.select("kernel", "count").sort("kernel").rows() == [("other_2_1", 2), ("ring", 4)]


@pytest.mark.parametrize("engine", [Engine.POLARS, Engine.DUCKDB])
def test_a_launch_of_which_some_ctas_were_recorded_lasts_as_long_as_all(tmp_path: Path, engine: Engine) -> None:
    if engine is Engine.DUCKDB:
        pytest.importorskip("duckdb", reason="duckdb is not installed; it is an optional engine")
    whole = ring_capture(num_ctas=4, num_sms=1)  # one after the other
    first = whole.tracks["cta"] == 0
    header = dataclasses.replace(whole.header, notes=("only CTA 0 was recorded",))
    words = whole.words[: int(whole.offsets[np.flatnonzero(first)[-1] + 1])]
    save_launch(tmp_path, dataclasses.replace(whole, header=header, tracks=whole.tracks[first], words=words))
    save_launch(tmp_path, whole)
    found = summarise_fleet(prepare_tables(open_profile(tmp_path)), engine)
    assert found.launches.select("launch", "recorded").rows() == [("ring-0001", "part"), ("ring-0002", "whole")]
    assert found.launches["launch_cycles"].n_unique() == 1
    assert found.kernels.select("kernel", "recorded", "count").sort("recorded").rows() == [
        ("ring", "part", 1),
        ("ring", "whole", 1),
    ]


def test_sums_are_those_of_the_traces(directory: Path, fleet: FleetReport) -> None:
    traces = [one.load_trace() for one in open_profile(directory) if one.name.startswith("ring")]
    blocked = pl.concat([trace.waits for trace in traces]).filter(
        "blocked", barrier="full", released_by_role="tma_load"
    )
    row = fleet.waits.row(by_predicate=(pl.col("kernel") == "ring") & (pl.col("barrier") == "full"), named=True)
    assert row["count"] == blocked.height
    assert row["total_cycles"] == blocked["dur"].sum()
    assert row["p50_cycles"] == blocked["dur"].median()
    own = fleet.categories.filter(kernel="ring")["self_dur"].sum()
    assert own == sum(trace.spans["self_dur"].sum() for trace in traces)
    for place, frames in {
        "between MMAs": [find_bubbles(trace).bubbles for trace in traces],
        "ends": [find_bubbles(trace).edges for trace in traces],
    }.items():
        found = fleet.bubbles.filter(kernel="ring", place=place)
        assert found["total_cycles"].sum() == pl.concat(frames)["dur"].sum()


def test_duckdb_gives_the_same_tables(tables: list[Path], fleet: FleetReport) -> None:
    pytest.importorskip("duckdb", reason="duckdb is not installed; it is an optional engine")
    _assert_equal(summarise_fleet(tables, Engine.DUCKDB), fleet)


@pytest.mark.slow
def test_spark_gives_the_same_tables(tables: list[Path], fleet: FleetReport) -> None:
    pytest.importorskip("pyspark", reason="pyspark is not installed; it is an optional engine")
    _assert_equal(summarise_fleet(tables, Engine.PYSPARK), fleet)


def _assert_equal(found: FleetReport, expected: FleetReport) -> None:
    for title, frame in found.tables.items():
        assert frame.height > 0
        assert frame.schema == expected.tables[title].schema
        assert frame.equals(expected.tables[title]), title


def test_tables_are_written_once_and_again_when_the_capture_is_newer(directory: Path, tables: list[Path]) -> None:
    files = [folder / "bubbles.parquet" for folder in tables]
    written = [file.stat().st_mtime_ns for file in files]
    assert prepare_tables(open_profile(directory)) == tables
    assert [file.stat().st_mtime_ns for file in files] == written
    later = files[0].stat().st_mtime_ns + 10**9
    os.utime(tables[0].parent / "capture.npz", ns=(later, later))
    prepare_tables(open_profile(directory))
    changed = [file.stat().st_mtime_ns != before for file, before in zip(files, written, strict=True)]
    assert changed == [True, *[False] * (len(files) - 1)]


def test_an_engine_that_is_not_installed_says_how_to_get_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    result = CliRunner().invoke(app, ["report", str(directory), "--engine", "duckdb"])
    assert "pip install 'mgpu[sql]'" in str(result.exception)


def test_command_prints_all_launches_as_json(directory: Path, fleet: FleetReport) -> None:
    result = CliRunner().invoke(app, ["report", str(directory), "--engine", "polars", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["launches"] == fleet.launches.to_dicts()


def test_command_takes_no_single_launch(directory: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(directory), "--engine", "polars", "--launch", "ring-0001"])
    assert str(result.exception).startswith("--engine sums up all launches")
