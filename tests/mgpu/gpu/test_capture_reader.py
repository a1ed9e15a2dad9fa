"""From raw words to a Capture, and on to the profiler's Trace; all numbers written by hand."""

from __future__ import annotations

import numpy as np
import pytest

import mgpu as plgpu
import profiler
from mgpu.capture import Capture, pack_tag
from mgpu.devices import load_device
from mgpu.errors import CaptureError
from mgpu.gpu.capture_reader import clock_rate, most_concurrent_ctas, read_capture, track_words
from mgpu.gpu.recorder import RecordFormat
from mgpu.params import TraceScope
from mgpu.passes.sites import plan_sites
from mgpu.sites import Edge, SiteKind
from support.gpu_kernels import KERNELS
from support.gpu_lowering import program_of


def program_and_plan(name="ring_copy", tmp_path="x"):
    kernel, operands, _ = KERNELS[name](plgpu.CompilerParams(profile_space=4, profile_dir=str(tmp_path)))
    program = program_of(kernel, *operands)
    return program, plan_sites(program)


def empty_words(program, layout):
    return np.zeros((program.launch.num_ctas, layout.num_tracks), track_words(layout.capacity))


def flat(words):
    return words.view(np.uint32).reshape(words.shape[0], -1)


def read(words, layout, name="ring_copy", launch=1):
    program, plan = program_and_plan(name)
    return read_capture(program, plan, layout, load_device("h100"), flat(words), launch)


def test_words_become_tracks_and_events():
    program, _ = program_and_plan()
    layout = RecordFormat(3, 2, TraceScope.WARPGROUP, in_smem=True)
    words = empty_words(program, layout)
    words[0, 0] = (2, 40, 1000, 5000, 10**9, 10**9 + 2000, 0, [(1, 11), (2, 12), (9, 9)], (8, 8))
    words[0, 1] = (5, 40, 1010, 5010, 10**9, 10**9 + 2000, 0, [(3, 13), (4, 14), (5, 15)], (7, 7))
    capture = read(words, layout, launch=6)
    assert capture.tracks["warpgroup"].tolist() == [0, 1]
    assert capture.tracks["warp"].tolist() == [-1, -1]
    assert capture.tracks["sm"].tolist() == [40, 40]
    assert capture.words.tolist() == [[1, 11], [2, 12], [3, 13], [4, 14], [5, 15]]
    assert capture.dropped_counts.tolist() == [0, 2]
    assert capture.sufficient_profile_space == 5
    assert capture.ctas.tolist() == [(0, 0, 40, 1000, 5010)]
    header = capture.header
    assert (header.provenance, header.device, header.launch, header.capacity) == ("measured", "h100", 6, 3)
    assert header.clock_hz == 4000 * 1e9 / 2000
    assert (header.kernel, header.num_warpgroups, header.trace_scope) == ("body", 2, "warpgroup")


def test_tracks_of_warps_are_numbered_within_their_warpgroup():
    program, _ = program_and_plan()
    layout = RecordFormat(1, 2, TraceScope.WARP, in_smem=False)
    capture = read(empty_words(program, layout), layout)
    assert capture.tracks["warpgroup"].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert capture.tracks["warp"].tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    assert capture.header.profile_smem_bytes == 0


def test_ctas_of_a_cluster_and_their_sms():
    program, _ = program_and_plan("cluster_multicast")
    layout = RecordFormat(1, 1, TraceScope.WARPGROUP, in_smem=True)
    words = empty_words(program, layout)
    words["sm"][:, 0] = [8, 9]
    words["clock_begin"][:, 0] = [100, 200]
    words["clock_end"][:, 0] = [150, 260]
    capture = read(words, layout, "cluster_multicast")
    assert capture.ctas.tolist() == [(0, 0, 8, 100, 150), (1, 0, 9, 200, 260)]
    assert capture.header.cluster == (2,)
    assert capture.header.profile_smem_bytes == 1024


def test_words_of_another_launch_are_refused():
    program, plan = program_and_plan()
    layout = RecordFormat(3, 2, TraceScope.WARPGROUP, in_smem=True)
    with pytest.raises(CaptureError, match=r"recorded words of body are uint32\[2, 5\], expected uint32\[1, 100\]"):
        read_capture(program, plan, layout, load_device("h100"), np.zeros((2, 5), np.uint32), 1)


def test_clock_rate_is_nominal_for_launches_shorter_than_a_timer_tick():
    tracks = np.zeros(1, [("clock_begin", "u8"), ("clock_end", "u8"), ("ns_begin", "u8"), ("ns_end", "u8")])
    tracks["clock_end"] = 500
    assert clock_rate(tracks, 1.7e9) == 1.7e9
    tracks["ns_end"] = 32
    assert clock_rate(tracks, 1.7e9) == 1.7e9
    tracks["ns_end"] = 250
    assert clock_rate(tracks, 1.7e9) == 2e9


def test_concurrent_ctas_are_counted_by_sm():
    ctas = np.zeros(4, [("sm", "u2"), ("begin", "i8"), ("end", "i8")])
    ctas["sm"] = [0, 0, 0, 1]
    ctas["begin"] = [0, 50, 100, 0]
    ctas["end"] = [100, 150, 200, 500]
    assert most_concurrent_ctas(ctas) == 2


def test_profiler_builds_a_trace_of_a_measured_launch(tmp_path):
    program, plan = program_and_plan()
    layout = RecordFormat(8, 2, TraceScope.WARPGROUP, in_smem=True)
    words = empty_words(program, layout)
    words["count"], words["sm"] = 2, 3
    words["clock_begin"], words["clock_end"] = 2**32 - 100, 2**32 + 900
    words["ns_begin"], words["ns_end"] = 0, 500
    for warpgroup, kind in enumerate((SiteKind.TMA_LOAD, SiteKind.BARRIER_WAIT)):
        full = next(b for b in plan.barriers if b.name == "full")
        site = next(s.id for s in plan.sites if s.kind is kind and s.barrier == full.name)
        words["events"][0, warpgroup, :2] = [
            (pack_tag(site, Edge.BEGIN, 1), 2**32 - 50),
            (pack_tag(site, Edge.END, 1), 200 * (warpgroup + 1)),
        ]
    capture = read(words, layout)
    capture.save(tmp_path / "capture.npz")
    trace = profiler.build_trace(Capture.load(tmp_path / "capture.npz"))
    spans = trace.spans.filter(trace.spans["kind"].is_in(["tma_load", "barrier_wait"])).sort("track")
    assert spans["dur"].to_list() == [250, 450]
    assert spans["slot"].to_list() == [1, 1]
