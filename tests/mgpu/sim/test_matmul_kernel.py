"""The warp-specialised matmul on the simulated H100: values, determinism, recording, deadlock."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgpu
import profiler
from mgpu.capture import Capture
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from support.examples import load_example

example = load_example("04_warp_specialized_matmul")


def integers(*shape: int) -> np.ndarray:
    """Small integers: their products and sums are exact in float32, so results must match to the bit."""
    return np.random.default_rng(0).integers(-3, 4, shape).astype(jnp.bfloat16)


def expected(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a.astype(np.float32) @ b.astype(np.float32)).astype(jnp.bfloat16)


def recorded(directory: Path, space: int = 512, **options: Any) -> mgpu.CompilerParams:
    return mgpu.CompilerParams(profile_space=space, profile_dir=str(directory), **options)


@pytest.mark.parametrize(("m", "n", "k"), [(128, 256, 64), (256, 512, 192), (384, 256, 1024)])
@pytest.mark.parametrize("stages", [2, 3, 4])
def test_integers_match_to_the_bit(m: int, n: int, k: int, stages: int) -> None:
    a, b = integers(m, k), integers(k, n)
    result = np.asarray(example.make_matmul(m, n, stages=stages)(a, b))
    np.testing.assert_array_equal(result, expected(a, b))


def test_normal_numbers_match_within_bfloat16() -> None:
    generator = np.random.default_rng(1)
    a, b = (generator.standard_normal((512, 512)).astype(jnp.bfloat16) for _ in range(2))
    result = np.asarray(example.make_matmul(512, 512)(a, b)).astype(np.float32)
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert (np.abs(result - exact) <= 2**-8 * np.abs(exact) + 1e-3).all()


def test_ties_in_any_order_give_the_same_values() -> None:
    a, b = integers(256, 512), integers(512, 512)
    results = [np.asarray(matmul_with_seed(seed)(a, b)) for seed in (None, 0, 1, 2)]
    for result in results:
        np.testing.assert_array_equal(result, expected(a, b))


def matmul_with_seed(seed: int | None) -> Any:
    return example.make_matmul(256, 512, interpret=mgpu.InterpretGPUParams(seed=seed))


def test_every_launch_gives_a_capture_and_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    a, b = integers(256, 256), integers(256, 512)
    example.make_matmul(256, 512, params=recorded(tmp_path))(a, b)
    matmul = example.make_matmul(256, 512, params=recorded(tmp_path))
    matmul(a, b)
    matmul(a, b)
    first, again, second_launch = list_launches(tmp_path)
    assert (first / CAPTURE_FILE).read_bytes() == (again / CAPTURE_FILE).read_bytes()
    assert Capture.load(again / CAPTURE_FILE).header.launch == 1
    assert Capture.load(second_launch / CAPTURE_FILE).header.launch == 2


def test_capture_tells_the_launch(tmp_path: Path) -> None:
    a, b = integers(256, 256), integers(256, 512)
    example.make_matmul(256, 512, params=recorded(tmp_path))(a, b)
    capture = profiler.open(tmp_path)[0].load_capture()
    header = capture.header
    assert (header.kernel, header.device, header.provenance, header.grid) == ("matmul", "h100", "simulated", (2, 2))
    assert [barrier.name for barrier in header.barriers] == ["empty", "full"]
    # k steps, loads of a and b in each, and 2 compute warpgroups with a wgmma in each, in 4 CTAs.
    loads, mmas = (capture.unit_spans["unit"] == unit for unit in (0, 2))
    assert (loads.sum(), mmas.sum()) == (4 * 4 * 2, 4 * 4 * 2)
    assert capture.unit_spans["flops"].sum() == 2 * 256 * 512 * 256
    assert capture.unit_spans["bytes"][loads].sum() == 4 * 4 * (128 * 64 + 64 * 256) * 2
    files = {site.file.rsplit("/", 1)[-1] for site in header.sites}
    assert files == {"04_warp_specialized_matmul.py"}


@pytest.mark.parametrize("scope", list(mgpu.TraceScope))
@pytest.mark.parametrize("space", [512, 20])
def test_the_trace_is_sound(tmp_path: Path, scope: mgpu.TraceScope, space: int) -> None:
    a, b = integers(256, 512), integers(512, 512)
    example.make_matmul(256, 512, params=recorded(tmp_path, space, profile_trace_scope=scope))(a, b)
    trace = profiler.open(tmp_path)[0].load_trace()
    assert profiler.check_trace(trace) == []
    assert trace.tracks.height == 4 * 3 * (4 if scope is mgpu.TraceScope.WARP else 1)
    assert (trace.events_dropped > 0) == (space == 20)
    assert trace.sufficient_profile_space > 20


def test_recording_costs_time_and_can_be_free(tmp_path: Path) -> None:
    a, b = integers(256, 512), integers(512, 512)

    def cycles(directory: Path, record_cycles: int | None) -> int:
        matmul = example.make_matmul(
            256, 512, params=recorded(directory), interpret=mgpu.InterpretGPUParams(record_cycles=record_cycles)
        )
        matmul(a, b)
        return profiler.open(directory)[0].load_trace().end

    assert cycles(tmp_path / "free", 0) < cycles(tmp_path / "default", None) < cycles(tmp_path / "dear", 100)


def test_timing_only_gives_the_same_timeline(tmp_path: Path) -> None:
    a, b = integers(256, 512), integers(512, 512)
    for name, numerics in (("values", True), ("time", False)):
        matmul = example.make_matmul(
            256, 512, params=recorded(tmp_path / name), interpret=mgpu.InterpretGPUParams(numerics=numerics)
        )
        matmul(a, b)
    with_values, without = (profiler.open(tmp_path / name)[0].load_capture() for name in ("values", "time"))
    np.testing.assert_array_equal(with_values.words, without.words)
    np.testing.assert_array_equal(with_values.unit_spans, without.unit_spans)


def test_a_device_without_wgmma_is_refused_with_the_line_of_the_wgmma() -> None:
    source = Path(str(example.__file__))
    (line,) = (n for n, text in enumerate(source.read_text().splitlines(), 1) if "plgpu.wgmma(" in text)
    expected_start = rf"^{source.name}:{line} kernel \w+: wgmma m64n256k64 with 16-bit operands on b200"
    with mgpu.device("b200"), pytest.raises(mgpu.errors.Unsupported, match=expected_start):
        example.make_matmul(128, 256)(integers(128, 64), integers(64, 256))


def test_free_recording_shows_the_timeline_that_nobody_records(tmp_path: Path) -> None:
    from mgpu.devices import load_device
    from mgpu.sim.simulation import prepare, simulate

    a, b = (np.zeros((512, 512), jnp.bfloat16) for _ in range(2))

    def run(params: mgpu.CompilerParams | None) -> np.ndarray:
        options = mgpu.InterpretGPUParams(numerics=False, record_cycles=0)
        kernel = example.make_matmul(512, 512, params=params, interpret=options)
        program, _ = kernel._program(jax.tree.structure((0, 0)), [a, b])
        device = load_device("h100")
        return simulate(prepare(program, device, device.num_sms, options), [], [a, b]).ctas

    np.testing.assert_array_equal(run(None), run(recorded(tmp_path)))
