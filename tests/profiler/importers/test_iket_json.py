"""Imports of IKET's JSON, in the form that NVIDIA's documentation describes."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from mgpu.errors import CaptureError
from mgpu.sites import Edge
from profiler import cli
from profiler.build import build_trace
from profiler.importers import import_file, import_iket


def place(sm: int = 0, cta: object = 0, warp: int = 0) -> dict[str, Any]:
    return {"smId": sm, "tpcId": 0, "gpcId": 0, "ctaId": cta, "warpId": warp}


def range_of(name: str, begin: int, end: int, *places: dict[str, object]) -> dict[str, Any]:
    return {"rangeName": name, "startTs": begin, "endTs": end, "warpLocs": list(places) or [place()]}


def one_launch(ranges, **more) -> dict[str, Any]:
    return {"launches": [{"gridId": 1, "kernelName": "gemm", "ranges": ranges, **more}]}


def test_ranges_markers_and_lifetimes() -> None:
    content = one_launch(
        [range_of("load", 1064, 1128, place(3, 1, 5)), range_of("tile", 1032, 1256, place(3, 1, 5))],
        markers=[{"markerName": "ready", "timestamp": 1096, "location": place(3, 1, 5)}],
        warpLifetimes=[{"startTs": 1000, "endTs": 1320, "warpLocation": place(3, 1, 5)}],
    )
    trace = build_trace(import_iket(content, name="x"))
    assert trace.header.kernel == "gemm"
    assert trace.tracks.select("sm", "cta", "warpgroup", "warp", "begin", "end").rows() == [(3, 1, 1, 1, 0, 320)]
    assert trace.spans.select("name", "begin", "dur", "depth").rows() == [("tile", 32, 224, 0), ("load", 64, 64, 1)]
    assert trace.instants.select("name", "time").rows() == [("ready", 96)]


def test_ranges_that_cross_get_tracks_of_their_own() -> None:
    trace = build_trace(
        import_iket(one_launch([range_of("a", 0, 64), range_of("b", 32, 96), range_of("c", 64, 96)]), name="x")
    )
    assert sorted(trace.spans.select("name", "begin", "dur").rows()) == [("a", 0, 64), ("b", 32, 64), ("c", 64, 32)]
    assert trace.tracks.height == 2
    assert trace.defects.filter(trace.defects["kind"] != "imported").is_empty()


def test_names_and_places_in_tables() -> None:
    """As the tool writes them: numbers of names and places; begin and end of a range both say where they were."""
    ends = [{"eventId": 2, "timestamp": 0, "payloadType": 5, "payloadVal": 7}, {"eventId": 9, "timestamp": 32}]
    tile = {"rangeNameIdx": 1, "rangeScope": 0, "startTs": 0, "endTs": 32, "warpLocIdxs": [0, 0]}
    content = one_launch(
        [tile | {"internalEvents": ends}],
        markers=[{"markerNameIdx": 0, "timestamp": 16, "locIdx": 1}],
        warpLifetimes=[{"startTs": -8, "endTs": 64, "locIdx": 0}],
        gridDimX=4,
        gridDimY=3,
        gridDimZ=2,
    )
    content |= {
        "stringTable": ["ready", "mma"],
        "locationTable": [place(2, [1, 2, 1], 4), place(0, [3, 0, 0], 0)],
        "graphLaunches": {},
    }
    capture = import_iket(content, name="x", clock_hz=2e9)
    trace = build_trace(capture)
    assert trace.spans.select("name", "begin", "dur").rows() == [("mma", 16, 64)]
    assert trace.instants.select("name", "time").rows() == [("ready", 48)]
    assert trace.tracks.select("sm", "cta", "warpgroup", "end").rows() == [(0, 3, 0, 48), (2, 1 + 4 * (2 + 3), 1, 144)]
    assert any("payloads" in note for note in capture.header.notes)


def test_launches_of_graphs(tmp_path) -> None:
    (old,), (new,) = (one_launch([range_of(name, 0, 32)])["launches"] for name in ("old", "new"))
    path = tmp_path / "trace.json"
    for content in ({"graphLaunches": {"0x1": [old, new]}}, {"launches": [old], "graphLaunches": {"0x1": [new]}}):
        path.write_text(json.dumps(content))
        capture = import_file(path)
        assert [site.name for site in capture.header.sites] == ["new"]
        assert any("2 launches" in note for note in capture.header.notes)


def test_the_last_of_several_launches() -> None:
    content = {
        "launches": [
            *one_launch([range_of("old", 0, 32)])["launches"],
            *one_launch([range_of("new", 0, 32)])["launches"],
        ]
    }
    capture = import_iket(content, name="x")
    assert [site.name for site in capture.header.sites] == ["new"]
    assert any("2 launches" in note for note in capture.header.notes)
    assert any("cycles are ns" in note for note in capture.header.notes)


def test_marker_events_keep_their_order() -> None:
    capture = import_iket(one_launch([range_of("a", 0, 32), range_of("b", 32, 64)]), name="x")
    edges = [(int(tag) >> 14) & 3 for tag in capture.words[:, 0]]
    assert edges == [Edge.BEGIN, Edge.END, Edge.BEGIN, Edge.END]


@pytest.mark.parametrize("ranges", [[{"rangeName": "a"}], [range_of("a", 0, 32, {"smId": 0})]])
def test_a_range_without_its_fields_is_refused(ranges) -> None:
    with pytest.raises(CaptureError, match="lacks a field"):
        import_iket(one_launch(ranges), name="x")


def test_nothing_to_import() -> None:
    with pytest.raises(CaptureError, match="no launch"):
        import_iket({"launches": []}, name="x")
    with pytest.raises(CaptureError, match="no event"):
        import_iket(one_launch([]), name="x")


def test_command_line(tmp_path) -> None:
    source = tmp_path / "trace.json.gz"
    source.write_bytes(gzip.compress(json.dumps(one_launch([range_of("tile", 0, 3200)])).encode()))
    assert import_file(source).header.provenance == "imported"
    arguments = ["import", str(source), "-o", str(tmp_path / "profile"), "--device", "h100", "--clock-ghz", "1.5"]
    result = CliRunner().invoke(cli.app, arguments, catch_exceptions=False)
    assert "multiples of 32 ns" in result.stdout
    report = CliRunner().invoke(cli.app, ["report", str(tmp_path / "profile")], catch_exceptions=False)
    assert "4,800 cycles = 3.20 µs at 1.500 GHz" in report.stdout
    assert "h100 (imported)" in report.stdout
