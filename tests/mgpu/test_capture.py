"""The capture's file form and word layout."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu.capture import MAX_PAYLOAD, MAX_SITES, Capture, CaptureHeader, pack_tag, unpack_tags
from mgpu.errors import CaptureError
from mgpu.sites import Edge
from support.captures import ring_capture

_ARRAYS = ("tracks", "words", "ctas", "unit_spans", "arrivals")


@given(st.integers(0, MAX_SITES - 1), st.sampled_from(Edge), st.integers(0, 2 * MAX_PAYLOAD))
def test_tag_round_trip(site: int, edge: Edge, payload: int) -> None:
    tag = pack_tag(site, edge, payload)
    assert 0 <= tag < 2**32
    sites, edges, payloads = unpack_tags(np.array([tag], np.uint32))
    assert (sites[0], edges[0], payloads[0]) == (site, edge, min(payload, MAX_PAYLOAD))


@given(ctas=st.integers(1, 3), stages=st.integers(1, 4), iterations=st.integers(1, 5), capacity=st.integers(1, 40))
def test_save_and_load_keep_everything(
    tmp_path_factory: pytest.TempPathFactory, ctas: int, stages: int, iterations: int, capacity: int
) -> None:
    capture = ring_capture(num_ctas=ctas, stages=stages, iterations=iterations, capacity=capacity)
    path = tmp_path_factory.mktemp("capture") / "capture.npz"
    capture.save(path)
    loaded = Capture.load(path)
    assert loaded.header == capture.header
    for name in _ARRAYS:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(capture, name))
    again = path.with_name("again.npz")
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_dropped_events_are_counted() -> None:
    full = ring_capture(capacity=10_000)
    capture = ring_capture(capacity=5)
    assert full.dropped_counts.sum() == 0
    assert capture.stored_counts.max() == 5
    assert (capture.stored_counts + capture.dropped_counts == full.tracks["count"]).all()
    assert capture.sufficient_profile_space == full.tracks["count"].max()


@pytest.mark.parametrize("keep", [0, 10, 200, -30])
def test_damaged_files_are_refused_with_their_name(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "capture.npz"
    ring_capture().save(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(CaptureError, match=r"capture\.npz.*Record it again"):
        Capture.load(path)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="no such capture"):
        Capture.load(tmp_path / "nothing.npz")
    (tmp_path / "passwd.npz").write_text("root:x:0:0\n")
    with pytest.raises(CaptureError, match="its contents are something else"):  # and no advice to unpickle it
        Capture.load(tmp_path / "passwd.npz")
    np.savez(tmp_path / "other.npz", x=np.zeros(3))
    with pytest.raises(CaptureError, match="not a capture"):
        Capture.load(tmp_path / "other.npz")


def test_other_format_version_is_named() -> None:
    value = ring_capture().header.to_json() | {"format_version": 99}
    with pytest.raises(CaptureError, match="format version 99, this program reads 1"):
        CaptureHeader.from_json(value)


def test_header_without_a_field_is_refused() -> None:
    value = ring_capture().header.to_json()
    del value["clock_hz"]
    with pytest.raises(CaptureError, match="lacks clock_hz"):
        CaptureHeader.from_json(value)


def test_words_must_match_the_tracks() -> None:
    capture = ring_capture()
    with pytest.raises(CaptureError, match="tracks stored"):
        dataclasses.replace(capture, words=capture.words[1:])
