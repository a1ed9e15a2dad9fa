"""The profile directory: whole launches under names that do not clash."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from mgpu import environment
from mgpu.capture import Capture
from mgpu.errors import CaptureError, ParamsError
from mgpu.profile_dir import (
    CAPTURE_FILE,
    INDEX_FILE,
    check_writable,
    delete_launches,
    list_launches,
    read_index,
    save_launch,
)
from support.captures import ring_capture


def test_launches_are_numbered(tmp_path: Path) -> None:
    capture = ring_capture()
    names = [save_launch(tmp_path / "new", capture).name for _ in range(3)]
    kernel = capture.header.kernel
    assert names == [f"{kernel}-0001", f"{kernel}-0002", f"{kernel}-0003"]
    assert [path.name for path in list_launches(tmp_path / "new")] == names


def test_writers_at_the_same_time_take_different_numbers(tmp_path: Path) -> None:
    capture = ring_capture()
    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(lambda _: save_launch(tmp_path, capture), range(24)))
    assert len(set(paths)) == 24
    assert sorted(paths) == list_launches(tmp_path)
    assert all(Capture.load(path / CAPTURE_FILE).header == capture.header for path in paths)


def test_a_failed_write_leaves_the_earlier_launches_alone(tmp_path: Path) -> None:
    first = save_launch(tmp_path, ring_capture())
    before = (first / CAPTURE_FILE).read_bytes()
    disk_full = OSError(28, "No space left on device")
    with (
        mock.patch("numpy.lib.format.write_array", side_effect=disk_full),
        pytest.raises(CaptureError, match="No space left on device"),
    ):
        save_launch(tmp_path, ring_capture())
    assert sorted(path.name for path in tmp_path.iterdir()) == [INDEX_FILE, first.name]
    assert (first / CAPTURE_FILE).read_bytes() == before
    assert list(read_index(tmp_path)) == [first.name]


def test_a_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    with pytest.raises(CaptureError, match=r"file/sub.*cannot be written.*Give CompilerParams\(profile_dir"):
        check_writable(blocker / "sub")


def test_listing_a_missing_directory_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match=r"no such profile directory\. Run a kernel"):
        list_launches(tmp_path / "missing")


def test_foreign_folders_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "matmul-0001").mkdir()  # no capture inside
    assert list_launches(tmp_path) == []


def test_the_index_tells_what_lists_show(tmp_path: Path) -> None:
    names = [save_launch(tmp_path, ring_capture(kernel=kernel)).name for kernel in ("a", "b", "a")]
    index = read_index(tmp_path)
    assert list(index) == names == ["a-0001", "b-0001", "a-0002"]
    assert index["b-0001"] == {"kernel": "b", "device": "h100", "provenance": "simulated", "grid": [2]}


@pytest.mark.parametrize("content", [None, b"", b'{"launch": "ring-00', b"\xff\n[1]\n3\n"])
def test_a_damaged_or_missing_index_costs_time_only(tmp_path: Path, content: bytes | None) -> None:
    save_launch(tmp_path, ring_capture())
    (tmp_path / INDEX_FILE).unlink()
    if content is not None:
        (tmp_path / INDEX_FILE).write_bytes(content)
    assert save_launch(tmp_path, ring_capture()).name == "ring-0002"
    assert set(read_index(tmp_path)) <= {"ring-0002"}
    assert len(list_launches(tmp_path)) == 2


def test_only_the_newest_launches_of_each_kernel_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.PROFILE_KEEP, "2")
    for kernel in ("a", "b", "a", "a", "a"):
        save_launch(tmp_path, ring_capture(kernel=kernel))
    assert [path.name for path in list_launches(tmp_path)] == ["a-0003", "a-0004", "b-0001"]
    assert not list(tmp_path.glob(".*"))
    monkeypatch.setenv(environment.PROFILE_KEEP, "none")
    with pytest.raises(ParamsError, match="MGPU_PROFILE_KEEP='none': expected a number of launches"):
        save_launch(tmp_path, ring_capture())


def test_a_large_index_forgets_deleted_launches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgpu.profile_dir._LARGE_INDEX_BYTES", 0)
    saved = [save_launch(tmp_path, ring_capture()) for _ in range(3)]
    assert delete_launches(tmp_path, [*saved[:2], tmp_path / "ring-0009"]) == 2
    assert list(read_index(tmp_path)) == ["ring-0003"]
    assert save_launch(tmp_path, ring_capture()).name == "ring-0004"


_LIMITED = """
import resource, sys
from mgpu.profile_dir import save_launch
from support.captures import ring_capture
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
try:
    save_launch(sys.argv[1], ring_capture(num_ctas=60, iterations=200))
except Exception as error:
    print(type(error).__name__, error)
"""


def test_a_write_beyond_the_limit_of_file_sizes_says_what_is_lost(tmp_path: Path) -> None:
    first = save_launch(tmp_path, ring_capture())
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", _LIMITED, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": f"{tests}:{tests.parent}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("CaptureError")
    assert "the launch of ring is not saved, earlier ones are whole" in done.stdout
    assert "File too large" in done.stdout
    assert list_launches(tmp_path) == [first]
    assert not list(tmp_path.glob(".writing-*"))
