"""Recorded kernels as the compiler made them: run, decoded, and compared with the simulator's capture; everywhere."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import mgpu as plgpu
import profiler
from mgpu.capture import Capture, unpack_tags
from mgpu.devices import load_device
from mgpu.gpu.capture_reader import read_capture
from mgpu.gpu.target import prepare
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from support.gpu_kernels import KERNELS
from support.gpu_lowering import program_of
from support.ptx.compiled import CASES, FOLDER, compile_case, load_compiled
from support.ptx.host import output_like
from support.ptx.stand_in_gpu import unavailable


@pytest.mark.parametrize("case", CASES)
def test_words_of_a_compiled_kernel_are_the_events_of_the_simulator(case, tmp_path, monkeypatch):
    name, space, scope = CASES[case]
    params = plgpu.CompilerParams(profile_space=space, profile_dir=str(tmp_path), profile_trace_scope=scope)
    kernel, operands, expected = KERNELS[name](params)
    ready = prepare(program_of(kernel, *operands), load_device("h100"))
    layout = ready.record_format
    assert layout is not None
    assert layout.in_smem == case.endswith("smem")
    out = output_like(expected.shape, expected.dtype)
    words = output_like((ready.program.launch.num_ctas, layout.gmem_words), np.dtype(np.uint32))
    load_compiled(case).run([*(operand.copy() for operand in operands), out, words])
    np.testing.assert_array_equal(out, expected)
    measured = read_capture(ready.program, ready.plan, layout, ready.device, words, 1)

    monkeypatch.setenv("MGPU_TARGET", "sim")
    kernel(*operands)
    (folder,) = list_launches(tmp_path)
    simulated = Capture.load(folder / CAPTURE_FILE)
    assert measured.tracks["count"].tolist() == simulated.tracks["count"].tolist()
    assert measured.dropped_counts.any() == (case == "cluster_multicast_smem")
    assert measured.header.sites == simulated.header.sites
    assert measured.words[:, 0].tolist() == simulated.words[:, 0].tolist()

    traces = [profiler.build_trace(capture) for capture in (simulated, measured)]
    ours, theirs = (
        trace.spans.group_by("track", "site", "slot").len().sort("track", "site", "slot") for trace in traces
    )
    assert theirs.equals(ours)
    sites, _, _ = unpack_tags(measured.words[:, 0])
    assert set(sites.tolist()) <= {site.id for site in measured.header.sites}


@pytest.mark.skipif(bool(unavailable()) or jax.__version_info__ < (0, 12), reason=unavailable() or "of JAX 0.12")
@pytest.mark.parametrize("case", CASES)
def test_what_is_kept_is_what_the_compiler_makes(case, monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    assert (FOLDER / f"{case}.ptx").read_text() == compile_case(case)
