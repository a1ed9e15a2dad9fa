"""The microbenchmarks: on the simulator each gives the number that it measures; all lower for a GPU."""

from __future__ import annotations

import dataclasses
import json

import jax
import numpy as np
import pytest
from jax.experimental.pallas import mosaic_gpu

import mgpu
from benchmarks.gpu import chip_probes, overhead, sm_probes
from benchmarks.gpu.__main__ import PROBES, main
from benchmarks.gpu.probe import run_on_gpu, run_simulated
from mgpu.capture import Capture
from mgpu.devices import load_device
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from support.gpu_lowering import kernel_texts, lower_for_gpu
from support.ptx.stand_in_gpu import stand_in_gpu, unavailable

H100 = load_device("h100")


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_simulator_reproduces_the_device_table(probe):
    result = run_simulated(probe, H100)
    assert result.measured == pytest.approx(result.expected, rel=probe.tolerance)


# For some numbers, a probe that has to follow when they change.
CHANGED = {
    "mbarrier_hop_cycles": 200,
    "named_barrier_cycles": 60,
    "tma_latency_l2_cycles": 700,
    "tma_bytes_per_cycle": 61,
    "tma_store_latency_cycles": 500,
    "wgmma_flops_per_cycle": 2048,
    "wgmma_latency_cycles": 100,
    "hbm_bandwidth": 1_500_000_000_000,
    "l2_bandwidth": 5_000_000_000_000,
    "relaunch_gap_ns": 3000,
    "clock_hz": 1_200_000_000,
}


@pytest.mark.parametrize("name", CHANGED)
def test_probes_follow_the_numbers_that_they_measure(name):
    device = H100.override(**{name: CHANGED[name]})
    probe = next(probe for probe in PROBES if name in probe.numbers)
    before, after = run_simulated(probe, H100), run_simulated(probe, device)
    assert abs(after.measured / before.measured - 1) > 3 * probe.tolerance
    assert after.measured == pytest.approx(after.expected, rel=probe.tolerance)


def test_events_cost_what_the_table_says(tmp_path):
    def capture(count):
        params = mgpu.CompilerParams(profile_space=1, profile_dir=str(tmp_path / str(count)))
        kernel, operands = sm_probes.arrivals(count, 1, compiler_params=params)
        kernel(*operands)
        (launch,) = list_launches(tmp_path / str(count))
        return Capture.load(launch / CAPTURE_FILE)

    # Three events, one arrival and the loop's own 3 cycles for each execution.
    arrival_and_loop = (H100.mbarrier_arrive_cycles + 3) / 3
    measured = overhead.event_cycles((capture(10), capture(20)))
    assert measured == pytest.approx(H100.record_event_cycles + arrival_and_loop, abs=0.5)


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_probes_lower_for_a_gpu(probe, monkeypatch, tmp_path):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    params = mgpu.CompilerParams(profile_space=1, profile_dir=str(tmp_path))
    kernel, operands = probe.make(16, 4, compiler_params=params)
    (text,) = kernel_texts(lower_for_gpu(kernel, *operands))
    assert "gpu.launch" in text


# Under load the clock is measured over very many products.
@pytest.mark.skipif(bool(unavailable()), reason=unavailable())
@pytest.mark.parametrize("number", [number for number, probe in enumerate(PROBES) if probe.name != chip_probes.CLOCK])
def test_probes_run_as_compiled_for_a_gpu(number, monkeypatch, tmp_path):
    """On a stand-in that counts instructions: what is measured there is no time of a GPU, but it is measured."""
    probe = dataclasses.replace(PROBES[number], counts=PROBES[number].simulated_counts)
    with stand_in_gpu(tmp_path, monkeypatch):
        result = run_on_gpu(probe, H100.override(num_sms=4), 0.0, tmp_path / "captures")
    assert 0 < result.measured < np.inf
    assert len(list((tmp_path / "captures").rglob(CAPTURE_FILE))) == 4


# On a machine without a GPU JAX cannot lower the callback of its own recorder.
@pytest.mark.parametrize(
    ("language", "recording"),
    [(mgpu, False), (mgpu, True), (mosaic_gpu, False)],
    ids=["ours", "ours, recording", "jax"],
)
def test_overhead_kernel_lowers_in_both_languages(language, recording, monkeypatch, tmp_path):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    params = language.CompilerParams(profile_space=64, profile_dir=str(tmp_path)) if recording else None
    kernel = overhead.scopes(language, 8, params)
    (text,) = kernel_texts(lower_for_gpu(kernel, np.zeros(128, np.float32)))
    assert ("clock" in text) == recording


def test_command_on_the_simulator(capsys, tmp_path):
    main(["--simulate", "h200", "--output", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())
    assert found["device"] == "simulated h200"
    assert [result["name"] for result in found["results"]] == [probe.name for probe in PROBES]
    assert "hbm_bandwidth = 4250000000000 bytes/s:" in capsys.readouterr().out


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="there is a GPU")
def test_command_without_a_gpu(tmp_path):
    with pytest.raises(SystemExit, match="--simulate"):
        main(["--output", str(tmp_path / "out.json")])
    (failed,) = json.loads((tmp_path / "out.json").read_text())["results"]
    assert failed == {"name": "device", "error": "RuntimeError: JAX sees no GPU here"}
