"""Recorded kernels compiled as for a GPU and executed: what comes back is, event by event, what the simulator records.

The GPU is a stand-in that runs the compiled PTX (`support.ptx`); it needs the compiler's packages.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.gpu import attention_mgpu, hopper_matmul_mgpu
from jax.sharding import PartitionSpec

import mgpu as plgpu
import profiler
from mgpu.capture import Capture, unpack_tags
from mgpu.gpu.capture_reader import track_words
from mgpu.gpu.recorder import RecordFormat
from mgpu.params import TraceScope
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from mgpu.profile_window import ProfileWindow
from support.examples import load_example
from support.foreign_kernels import ring_copy
from support.gpu_compositions import COMPOSITIONS
from support.gpu_kernels import KERNELS
from support.gpu_lowering import kernel_modules, lower_for_gpu
from support.ptx.host import compile_executable, output_like
from support.ptx.stand_in_gpu import NUM_SMS, stand_in_gpu, unavailable

pytestmark = pytest.mark.skipif(bool(unavailable()), reason=unavailable())

ALL = KERNELS | COMPOSITIONS
UNTOUCHED = 0xCDCDCDCD
RANDOM = np.random.default_rng(0)


def events(capture):
    """Returns the events of each track: (site, edge, payload), in the order of their clocks."""
    sites, edges, payloads = unpack_tags(capture.words[:, 0])
    whole = list(zip(sites.tolist(), edges.tolist(), payloads.tolist(), strict=True))
    return [whole[first:end] for first, end in zip(capture.offsets, capture.offsets[1:], strict=False)]


def assert_same_record(simulated, measured):
    """What a launch on the simulator and one on the GPU tell about the kernel, times apart."""
    ours, theirs = simulated.header, measured.header
    assert (theirs.provenance, theirs.kernel) == ("measured", ours.kernel)
    assert (theirs.sites, theirs.barriers) == (ours.sites, ours.barriers)
    assert (theirs.grid, theirs.grid_names, theirs.cluster) == (ours.grid, ours.grid_names, ours.cluster)
    for name in ("cta", "warpgroup", "warp", "count"):
        assert measured.tracks[name].tolist() == simulated.tracks[name].tolist()
    assert events(measured) == events(simulated)
    clocks = measured.words[:, 1].astype(np.int64)
    for row, first, end in zip(measured.tracks, measured.offsets, measured.offsets[1:], strict=False):
        begin, length = int(row["clock_begin"]), int(row["clock_end"]) - int(row["clock_begin"])
        since = (clocks[first:end] - begin) % (1 << 32)
        assert (np.diff(since) > 0).all()
        assert not len(since) or (since[0] > 0 and since[-1] < length)
        assert row["ns_begin"] <= row["ns_end"]
    trace = profiler.build_trace(measured)
    assert measured.dropped_counts.any() or not set(trace.defects["kind"]) & {"orphan_end", "unclosed"}
    pairs = trace.spans.filter(trace.spans["kind"] == "barrier_wait")
    waits = [e for track in events(measured) for e in track if ours.sites[e[0]].kind.value == "barrier_wait"]
    assert pairs.height == len([e for e in waits if e[1] == 0])


def run(name, directory, **options):
    params = plgpu.CompilerParams(profile_dir=str(directory), **options)
    kernel, operands, expected = ALL[name](params)
    np.testing.assert_array_equal(np.asarray(kernel(*operands)), expected)
    (folder,) = list_launches(directory)
    return Capture.load(folder / CAPTURE_FILE)


@pytest.mark.parametrize(
    ("space", "scope"), [(64, TraceScope.WARPGROUP), (100_000, TraceScope.WARP)], ids=["smem", "gmem"]
)
@pytest.mark.parametrize("name", ALL)
def test_a_kernel_computes_and_records_what_the_simulator_does(name, space, scope, tmp_path, monkeypatch):
    options = {"profile_space": space, "profile_trace_scope": scope}
    monkeypatch.setenv("MGPU_TARGET", "sim")
    simulated = run(name, tmp_path / "sim", **options)
    with stand_in_gpu(tmp_path, monkeypatch):
        measured = run(name, tmp_path / "gpu", **options)
    assert (measured.header.profile_smem_bytes > 0) == (space == 64)
    assert_same_record(simulated, measured)


@pytest.mark.parametrize(
    "name", ["ring_copy", "warp_specialised_pipeline", "peer_reads", "store_to_peer", "semaphores"]
)
def test_no_order_of_warps_changes_a_result(name, tmp_path, monkeypatch):
    with stand_in_gpu(tmp_path, monkeypatch) as gpu:
        found = []
        for seed in range(8):
            gpu.options["seed"] = seed
            found.append(run(name, tmp_path / str(seed), profile_space=64))
    assert all(events(capture) == events(found[0]) for capture in found)
    assert len({capture.words[:, 1].tobytes() for capture in found}) > 1  # the order did change


WINDOW = ProfileWindow(warpgroups=[1], iterations=range(2, 4))


@pytest.mark.parametrize("window", [None, WINDOW], ids=["all", "window"])
@pytest.mark.parametrize("scope", list(TraceScope))
@pytest.mark.parametrize("in_smem", [True, False], ids=["smem", "gmem"])
@pytest.mark.parametrize("capacity", [5, 60])
def test_only_the_words_of_stored_events_are_written(capacity, in_smem, scope, window, tmp_path, monkeypatch):
    """The rest of the buffer keeps what was there, whether all events fit or not."""
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    if not in_smem:
        monkeypatch.setattr("mgpu.gpu.target.fits_in_smem", lambda *_: False)
    fields = {} if window is None else {"profile_window": window}
    params = plgpu.CompilerParams(
        profile_space=capacity, profile_dir=str(tmp_path), profile_trace_scope=scope, **fields
    )
    kernel, operands, expected = KERNELS["ring_copy"](params)
    (module,) = kernel_modules(lower_for_gpu(kernel, *operands))
    layout = RecordFormat(capacity, 2, scope, in_smem, *([] if window is None else [window]))
    out = output_like(expected.shape, np.dtype(np.float32))
    words = output_like((1, layout.gmem_words), np.dtype(np.uint32))
    compile_executable(module, 3, tmp_path).run([*operands, out, words])
    np.testing.assert_array_equal(out, expected)
    # In the window: two iterations of nine events, and both ends of two stretches that are not recorded.
    happened = {None: [20, 54], WINDOW: [2 * 9 + 4]}[window]
    tracks = words.view(track_words(capacity)).reshape(len(happened), -1)
    for row, count in zip(tracks, happened, strict=True):
        for track in row:
            kept = min(count, capacity)
            assert track["count"] == count
            assert (track["events"][:kept] != UNTOUCHED).all()
            assert (track["events"][kept:] == UNTOUCHED).all()
            assert (track["spill"] == UNTOUCHED).all() or (not in_smem and count > capacity)
            assert track["reserved"] == UNTOUCHED << 32 | UNTOUCHED


def test_cycles_that_the_counter_wraps_in_are_told_apart(tmp_path, monkeypatch):
    with stand_in_gpu(tmp_path, monkeypatch) as gpu:
        gpu.options["start"] = (1 << 40) - 5000  # the low 32 bits of every clock wrap within the kernel
        gpu.options["clock_skew"] = 0
        capture = run("ring_copy", tmp_path / "gpu", profile_space=64)
    clocks = capture.words[:, 1]
    assert clocks.max() > 1 << 31 > clocks.min()
    cycles = profiler.build_trace(capture).spans["dur"].to_numpy()
    assert cycles.min() >= 0
    assert cycles.max() < 1 << 24


MATRICES = [RANDOM.standard_normal((256, 256)).astype(jnp.bfloat16) for _ in range(2)]
HEADS = [RANDOM.standard_normal((1, 256, 2, 64)).astype(np.float16) for _ in range(3)]
EXAMPLES = {
    "01_copy": (lambda example, params: example.make_double(128, 256, params), [MATRICES[0].astype(np.float32)[:128]]),
    "02_pipelined_copy": (
        lambda example, params: example.make_double(256, 256, slots=2, params=params),
        [MATRICES[0].astype(np.float32)],
    ),
    "03_matmul": (lambda example, params: example.make_matmul(256, 256, params=params), MATRICES),
    "04_warp_specialized_matmul": (lambda example, params: example.make_matmul(256, 256, params=params), MATRICES),
    "05_attention": (
        lambda example, params: example.make_attention(1, 256, causal=True, params=params),
        [RANDOM.standard_normal((1, 256, 128)).astype(jnp.bfloat16) for _ in range(3)],
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_computes_and_records_what_the_simulator_does(name, tmp_path, monkeypatch):
    make, operands = EXAMPLES[name]
    found = {}

    def launch(target):
        params = plgpu.CompilerParams(profile_space=256, profile_dir=str(tmp_path / target))
        with plgpu.device("h100", num_sms=NUM_SMS):
            out = np.asarray(make(load_example(name), params)(*operands)).astype(np.float32)
        (folder,) = list_launches(tmp_path / target)
        found[target] = out, Capture.load(folder / CAPTURE_FILE)

    monkeypatch.setenv("MGPU_TARGET", "sim")
    launch("sim")
    with stand_in_gpu(tmp_path, monkeypatch):
        launch("gpu")
    np.testing.assert_allclose(found["gpu"][0], found["sim"][0], rtol=2**-7, atol=2**-7)
    assert_same_record(found["sim"][1], found["gpu"][1])


def hopper_matmul(a, b):
    return hopper_matmul_mgpu.matmul(a, b, None, hopper_matmul_mgpu.TuningConfig(128, 128, 64, max_concurrent_steps=2))


def attention(q, k, v):
    config = attention_mgpu.TuningConfig(block_q=64, block_kv=64, max_concurrent_steps=2)
    return attention_mgpu.attention(q, k, v, config)


def in_control_flow(x):
    copy = ring_copy()
    y = jax.lax.cond(x[0, 0, 0] < 100, copy, lambda value: value + 1, x)
    z = jax.lax.scan(lambda carry, _: (jax.jit(copy)(carry) + 1, None), y, None, length=2)[0]
    return jax.lax.while_loop(lambda carry: carry[0] < 2, lambda carry: (carry[0] + 1, copy(carry[1])), (0, z))[1]


def sharded(x):
    mesh = jax.make_mesh((1,), ("devices",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = PartitionSpec("devices")
    return jax.shard_map(ring_copy(), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)(x)


STEPS = RANDOM.standard_normal((6, 64, 64)).astype(np.float32)
# JAX functions with unmodified kernels: function, operands, options of `mgpu.profile`, launches.
FOREIGN = {
    "ring": (ring_copy(), [STEPS], {}, 1),
    "ring_by_warp": (ring_copy(), [STEPS], {"trace_scope": TraceScope.WARP}, 1),
    "ring_too_long": (ring_copy(), [STEPS], {"profile_space": 7}, 1),
    "window": (
        ring_copy(grid=(1,), grid_names=("i",)),
        [STEPS],
        {"window": ProfileWindow(ctas=[0], iterations=range(2, 4))},
        1,
    ),
    "vmap": (jax.vmap(ring_copy()), [np.stack([STEPS] * 3)], {}, 1),
    "control_flow": (in_control_flow, [STEPS], {}, 5),
    "shard_map": (sharded, [STEPS], {}, 1),
    "hopper_matmul": (hopper_matmul, MATRICES, {}, 1),
    "attention": (attention, HEADS, {}, 1),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_an_unmodified_kernel_is_profiled_as_the_simulator_does(name, tmp_path, monkeypatch):
    function, operands, options, launches = FOREIGN[name]
    profiled = functools.partial(plgpu.profile, function, **({"profile_space": 512} | options))
    monkeypatch.setenv("MGPU_TARGET", "sim")
    with plgpu.device("h100", num_sms=NUM_SMS):
        expected, simulated = profiled()(*operands)
        with stand_in_gpu(tmp_path, monkeypatch):
            out, measured = profiled()(*operands)
    np.testing.assert_allclose(
        np.asarray(out).astype(np.float32), np.asarray(expected).astype(np.float32), rtol=2**-6, atol=2**-6
    )
    assert len(measured) == len(simulated) == launches
    assert [capture.header.launch for capture in measured] == list(range(1, launches + 1))
    starts = [int(capture.tracks["ns_begin"].min()) for capture in measured]
    assert starts == sorted(set(starts))
    for ours, theirs in zip(simulated, measured, strict=True):
        assert_same_record(ours, theirs)
        theirs.save(tmp_path / "capture.npz")
        assert events(Capture.load(tmp_path / "capture.npz")) == events(theirs)
