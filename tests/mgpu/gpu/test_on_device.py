"""On a GPU (`make test-gpu`): results, and what is recorded.

Without one, the same on a stand-in that runs the compiled PTX, where the compiler's packages are.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.gpu import hopper_matmul_mgpu

import mgpu as plgpu
import profiler
from mgpu.capture import Capture, unpack_tags
from mgpu.errors import Unsupported
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from mgpu.sites import Edge, SiteKind
from support.examples import load_example
from support.gpu_compositions import COMPOSITIONS
from support.gpu_kernels import KERNELS
from support.ptx.stand_in_gpu import stand_in_gpu, unavailable

ALL = KERNELS | COMPOSITIONS


@pytest.fixture(
    autouse=True,
    params=[
        pytest.param("gpu", marks=pytest.mark.gpu),
        pytest.param("stand-in", marks=pytest.mark.skipif(bool(unavailable()), reason=unavailable())),
    ],
)
def _on_gpu(request, monkeypatch, tmp_path_factory):
    if request.param == "gpu":
        monkeypatch.setenv("MGPU_TARGET", "gpu")
        yield
    else:
        with stand_in_gpu(tmp_path_factory.mktemp("gpu"), monkeypatch):
            yield


def recording(directory, space=256, **fields):
    return plgpu.CompilerParams(profile_space=space, profile_dir=str(directory), **fields)


def captures_in(directory):
    return [Capture.load(folder / CAPTURE_FILE) for folder in list_launches(directory)]


def matrices(size, count=2):
    generator = np.random.default_rng(0)
    return [generator.standard_normal((size, size)).astype(jnp.bfloat16) for _ in range(count)]


@pytest.mark.parametrize("scope", list(plgpu.TraceScope))
@pytest.mark.parametrize("space", [256, 100_000], ids=["smem", "gmem"])
@pytest.mark.parametrize("name", ALL)
def test_recording_changes_no_result_and_loses_no_event(name, space, scope, tmp_path):
    kernel, operands, expected = ALL[name](recording(tmp_path, space, profile_trace_scope=scope))
    np.testing.assert_array_equal(np.asarray(kernel(*operands)), expected)
    (capture,) = captures_in(tmp_path)
    assert capture.header.provenance == "measured"
    assert not capture.dropped_counts.any()
    assert (capture.tracks["clock_begin"] < capture.tracks["clock_end"]).all()
    sites, edges, _ = unpack_tags(capture.words[:, 0])
    assert sites.max(initial=0) < max(len(capture.header.sites), 1)
    for track in range(len(capture.tracks)):
        part = slice(capture.offsets[track], capture.offsets[track + 1])
        begins, ends = (sorted(sites[part][edges[part] == edge]) for edge in (Edge.BEGIN, Edge.END))
        assert begins == ends


def test_every_launch_has_its_capture(tmp_path):
    kernel, operands, _ = KERNELS["ring_copy"](recording(tmp_path))
    for _ in range(3):
        kernel(*operands)
    jax.block_until_ready(jax.jit(lambda x: kernel(kernel(x)))(*operands))
    jax.effects_barrier()
    captures = captures_in(tmp_path)
    assert sorted(capture.header.launch for capture in captures) == [1, 2, 3, 4, 5]
    assert len({int(capture.tracks["ns_begin"][0]) for capture in captures}) == 5


def test_recording_in_loops_and_vmap(tmp_path):
    kernel, (x, y), expected = KERNELS["arithmetic"](recording(tmp_path))
    stacked = np.stack([x, x, x])
    out = jax.vmap(kernel, (0, None))(stacked, y)
    np.testing.assert_array_equal(np.asarray(out), np.stack([expected] * 3))
    looped = jax.lax.scan(lambda carry, value: (carry + kernel(value, y), None), y, stacked)[0]
    np.testing.assert_array_equal(np.asarray(looped), y + 3 * expected)
    jax.effects_barrier()
    assert len(captures_in(tmp_path)) == 6


def test_events_that_do_not_fit_are_counted(tmp_path):
    kernel, operands, expected = KERNELS["ring_copy"](recording(tmp_path / "few", 4))
    np.testing.assert_array_equal(np.asarray(kernel(*operands)), expected)
    KERNELS["ring_copy"](recording(tmp_path / "all"))[0](*operands)
    (few,), (whole,) = captures_in(tmp_path / "few"), captures_in(tmp_path / "all")
    assert few.tracks["count"].tolist() == whole.tracks["count"].tolist()
    assert few.words[:, 0].tolist() == [
        tag
        for track in range(len(whole.tracks))
        for tag in whole.words[whole.offsets[track] : whole.offsets[track + 1], 0][:4].tolist()
    ]


def test_slots_are_recorded(tmp_path):
    kernel, operands, _ = KERNELS["ring_copy"](recording(tmp_path))
    kernel(*operands)
    (capture,) = captures_in(tmp_path)
    sites, edges, payloads = unpack_tags(capture.words[:, 0])
    full = [s.id for s in capture.header.sites if s.kind is SiteKind.BARRIER_WAIT and s.barrier == "full"]
    assert payloads[np.isin(sites, full) & (edges == Edge.BEGIN)].tolist() == [0, 1, 0, 1, 0, 1]


def test_matmul_report_of_a_measured_trace(tmp_path):
    a, b = matrices(1024)
    matmul = load_example("04_warp_specialized_matmul").make_matmul(1024, 1024, params=recording(tmp_path))
    result = np.asarray(matmul(a, b)).astype(np.float32)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(result, expected, rtol=2**-7, atol=0.5)
    (capture,) = captures_in(tmp_path)
    trace = profiler.build_trace(capture)
    # Consumers wait for full slots, the producer for empty ones; each wait ends no earlier than it begins.
    waits = trace.spans.filter(trace.spans["kind"] == "barrier_wait")
    assert (waits["dur"].to_numpy() >= 0).all()
    assert set(waits["slot"].unique().to_list()) == {0, 1, 2}


def test_profile_of_unmodified_jax_kernel():
    a, b = matrices(1024)
    config = hopper_matmul_mgpu.TuningConfig(128, 128, 64, max_concurrent_steps=4)
    plain = hopper_matmul_mgpu.matmul(a, b, None, config)
    out, captures = plgpu.profile(lambda a, b: hopper_matmul_mgpu.matmul(a, b, None, config))(a, b)
    np.testing.assert_array_equal(np.asarray(out), np.asarray(plain))
    (capture,) = captures
    assert capture.header.provenance == "measured"
    assert capture.tracks["count"].min() > 0


def test_what_jax_cannot_compile_is_refused_by_name():
    kernel = plgpu.kernel(
        lambda x, out: out.__setitem__(..., jnp.sort(x[...])),
        out_type=jax.ShapeDtypeStruct((128,), jnp.float32),
        name="sorts",
    )
    with pytest.raises(Unsupported, match="kernel sorts: JAX's Mosaic GPU compiler refuses it"):
        kernel(np.ones(128, np.float32))
