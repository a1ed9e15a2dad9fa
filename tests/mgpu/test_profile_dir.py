"""The profile directory: whole launches under names that do not clash."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pytest

from mgpu.capture import Capture
from mgpu.errors import CaptureError
from mgpu.profile_dir import CAPTURE_FILE, check_writable, list_launches, save_launch
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
    assert [path.name for path in tmp_path.iterdir()] == [first.name]
    assert (first / CAPTURE_FILE).read_bytes() == before


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
