"""Imports of what JAX's own profiler writes: its `ProfilerSpec.dump` makes the files, from words made by hand."""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import numpy as np
import pytest

from mgpu.errors import CaptureError, ParamsError
from profiler.build import build_trace
from profiler.importers import import_file, import_jax

CLOCK_HZ = 2e9  # two cycles a ns


def event(name: str, edge: str, ts: float, sm: int, tid: int) -> dict[str, Any]:
    return {"name": name, "ph": edge, "ts": ts, "pid": 1 + sm, "tid": 1 + tid}


def two_ctas() -> dict[str, Any]:
    """Two CTAs of two tracks on SMs 0 and 1; the second starts 500 ns = 1000 cycles later, each runs 40 cycles."""
    events = []
    for cta, start_ns in enumerate((10_000, 10_500)):
        for track in range(2):
            at = [(start_ns + cycles) / 1e3 for cycles in (0, 10, 30, 40)]
            marks = [("outer", "B"), ("inner", "B"), ("inner", "E"), ("outer", "E")]
            events += [event(name, edge, ts, cta, 2 * cta + track) for (name, edge), ts in zip(marks, at)]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def test_ns_and_cycles_are_told_apart() -> None:
    trace = build_trace(import_jax(two_ctas(), name="k", clock_hz=CLOCK_HZ))
    assert trace.tracks.select("cta", "sm", "warpgroup", "begin", "end").rows() == [
        (0, 0, 0, 0, 40),
        (0, 0, 1, 0, 40),
        (1, 1, 0, 1000, 1040),
        (1, 1, 1, 1000, 1040),
    ]
    second = trace.spans.filter(trace.spans["track"] == 2)
    assert second.select("name", "begin", "dur", "depth").rows() == [("outer", 1000, 40, 0), ("inner", 1010, 20, 1)]


def test_what_the_file_destroyed_is_listed() -> None:
    trace = build_trace(import_jax(two_ctas(), name="k", clock_hz=CLOCK_HZ))
    messages = " ".join(trace.defects.filter(trace.defects["kind"] == "imported")["message"].to_list())
    for part in ("cost of recording", "shared SM clock", "source line", "2 tracks per CTA (found"):
        assert part in messages


def test_tracks_per_cta_can_be_given() -> None:
    trace = build_trace(import_jax(two_ctas(), name="k", clock_hz=CLOCK_HZ, tracks_per_cta=1))
    assert trace.tracks["cta"].to_list() == [0, 1, 2, 3]


def test_without_a_clock_there_is_no_time() -> None:
    with pytest.raises(ParamsError, match="--clock-ghz"):
        import_jax(two_ctas(), name="k", clock_hz=0)


@pytest.mark.parametrize("broken", [{"ph": "X"}, {"ts": "soon"}, {"pid": None}])
def test_a_malformed_event_is_named(broken) -> None:
    content = two_ctas()
    content["traceEvents"][5] |= broken
    with pytest.raises(CaptureError, match=r"traceEvents\[5\]"):
        import_jax(content, name="k", clock_hz=CLOCK_HZ)


def test_a_file_that_jax_wrote(tmp_path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        profiler = pytest.importorskip("jax.experimental.mosaic.gpu.profiler")
    spec = profiler.ProfilerSpec(16)
    spec.interned_names = {"load": 0, "wait": 1}
    exit_bit = profiler.ProfilerSpec.EXIT
    # One CTA, one warpgroup of four warps recorded as one trace: start, SM, words used, then (tag, clock) pairs.
    pairs = [(0, 100), (1, 150), (1 | exit_bit, 400), (0 | exit_bit, 700)]
    words = np.zeros(16, np.uint32)
    words[:3] = 5_000, 7, 2 * len(pairs)
    words[3 : 3 + 2 * len(pairs)] = np.array(pairs, np.uint32).reshape(-1)
    file = io.StringIO()
    try:
        spec.dump(words, file, grid=(1, 1, 1), block=(128, 1, 1))
    except (TypeError, ValueError) as error:
        pytest.skip(f"this version of JAX dumps another layout: {error}")
    path = tmp_path / "kernel-123-trace.json"
    path.write_text(file.getvalue())
    trace = build_trace(import_file(path, clock_hz=CLOCK_HZ))
    assert trace.header.kernel == "kernel-123"
    assert trace.spans["name"].to_list() == ["load", "wait"]
    assert trace.tracks["sm"].to_list() == [7]
    # JAX takes up to 11 cycles per event off, which cannot be put back: 600 and 250 cycles at least less that.
    load, wait = trace.spans["dur"].to_list()
    assert 600 - 3 * 11 <= load <= 600
    assert 250 - 11 <= wait <= 250


def test_other_files_are_refused(tmp_path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"x": 1}))
    (tmp_path / "b.json").write_text("{")
    for name, message in (("a.json", "neither"), ("b.json", "not a JSON file"), ("c.json", "no such file")):
        with pytest.raises(CaptureError, match=message):
            import_file(tmp_path / name)
