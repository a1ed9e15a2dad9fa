import dataclasses
import os

import polars as pl
import pytest

import profiler
from mgpu import environment
from mgpu.errors import CaptureError
from mgpu.profile_dir import save_launch
from profiler.store import (
    TABLES_FOLDER,
    TABLES_FORMAT,
    load_trace,
    newest_launch,
    open_profile,
    read_header,
    read_tables,
    save_tables,
)
from profiler.trace import SCHEMAS
from support.captures import ring_capture


@pytest.fixture
def folder(tmp_path):
    return save_launch(tmp_path, ring_capture())


def assert_equal(trace, other) -> None:
    for name in SCHEMAS:
        assert trace.table(name).equals(other.table(name)), name
    for field in ("header", "origin_cycles", "sufficient_profile_space", "alignment_residual_cycles"):
        assert getattr(trace, field) == getattr(other, field)


def test_tables_come_back_as_they_were(folder) -> None:
    trace = load_trace(folder)
    save_tables(trace, folder)
    assert_equal(read_tables(folder / TABLES_FOLDER), trace)
    assert sorted(os.listdir(folder)) == ["capture.npz", "tables"]


def test_tables_describe_themselves(folder) -> None:
    tables = save_tables(load_trace(folder), folder)
    metadata = pl.read_parquet_metadata(tables / "spans.parquet")
    assert metadata["mgpu.table"] == "spans"
    assert "SM cycles" in metadata["mgpu.time_unit"]


def test_tables_are_used_only_while_they_are_newer_than_the_capture(folder) -> None:
    trace = load_trace(folder)
    marked = dataclasses.replace(trace, origin_cycles=-7)
    save_tables(marked, folder)
    save_tables(marked, folder)  # replaces the first
    assert load_trace(folder).origin_cycles == -7
    capture = folder / "capture.npz"
    newer = capture.stat().st_mtime_ns + 10**10
    os.utime(capture, ns=(newer, newer))
    assert load_trace(folder).origin_cycles == trace.origin_cycles


def test_tables_of_another_format_are_built_again(folder) -> None:
    header = save_tables(dataclasses.replace(load_trace(folder), origin_cycles=-7), folder) / "trace.json"
    header.write_text(header.read_text().replace(f'"tables_format": {TABLES_FORMAT}', '"tables_format": 99'))
    assert load_trace(folder).origin_cycles == 1000
    with pytest.raises(CaptureError, match="format 99"):
        read_tables(folder / TABLES_FOLDER)


def test_a_damaged_table_is_an_error_that_says_what_to_do(folder) -> None:
    tables = save_tables(load_trace(folder), folder)
    (tables / "spans.parquet").write_bytes(b"PAR1")
    with pytest.raises(CaptureError, match="Delete the folder"):
        load_trace(folder)


def test_a_profile_opens_by_directory_launch_or_file(tmp_path, folder) -> None:
    second = save_launch(tmp_path, ring_capture(kernel="other"))
    assert [launch.name for launch in profiler.open(tmp_path)] == ["other-0001", "ring-0001"]
    assert [launch.folder for launch in open_profile(second)] == [second]
    assert [launch.name for launch in open_profile(folder / "capture.npz")] == ["ring-0001"]
    assert open_profile(folder)[0].load_trace().header.kernel == "ring"


def test_places_without_launches_are_errors(tmp_path) -> None:
    with pytest.raises(CaptureError, match="no such profile directory"):
        open_profile(tmp_path / "nothing")
    with pytest.raises(CaptureError, match="holds no launches"):
        open_profile(tmp_path)
    (tmp_path / "junk.npz").write_bytes(b"junk")
    with pytest.raises(CaptureError, match="not a capture"):
        open_profile(tmp_path / "junk.npz")[0].load_trace()


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path, folder) -> None:
    trace = load_trace(folder)
    with pytest.raises(CaptureError, match="cannot write the tables"):
        save_tables(trace, tmp_path / "missing")


def test_launches_that_mgpu_run_recorded_elsewhere_are_found(tmp_path, monkeypatch) -> None:
    save_launch(tmp_path / "elsewhere", ring_capture())
    (tmp_path / "own").mkdir()
    monkeypatch.setenv("MGPU_PROFILE_DIR", str(tmp_path / "elsewhere"))
    for asked in ("own", "never made"):
        assert [launch.folder.parent.name for launch in open_profile(tmp_path / asked)] == ["elsewhere"]
    save_launch(tmp_path / "own", ring_capture())
    assert [launch.folder.parent.name for launch in open_profile(tmp_path / "own")] == ["own"]
    monkeypatch.setattr(environment, "_redirected", set())
    environment.recording(64, str(tmp_path / "own"))  # as a kernel asks that would have recorded there
    assert [launch.folder.parent.name for launch in open_profile(tmp_path / "own")] == ["elsewhere"]


def test_the_newest_launch_and_its_header(tmp_path) -> None:
    folders = [save_launch(tmp_path, ring_capture(stages=stages)) for stages in (2, 3, 4)]
    for age, folder in zip((5, 9, 9), folders):
        os.utime(folder / "capture.npz", ns=(age, age))
    newest = newest_launch(open_profile(tmp_path))
    assert newest.name == "ring-0003"
    assert read_header(newest.capture_path) == newest.load_capture().header
    (tmp_path / "x.npz").write_bytes(b"no")
    with pytest.raises(CaptureError, match="not a capture"):
        read_header(tmp_path / "x.npz")
