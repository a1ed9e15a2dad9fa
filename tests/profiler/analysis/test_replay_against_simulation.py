"""How good is a replay? The same change, predicted on the event graph and made in the kernel and simulated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.analysis.what_if import predict_changes
from profiler.as_measured import as_measured
from profiler.report import build_report
from profiler.store import newest_launch, open_profile
from profiler.trace import Trace
from support.examples import load_example

TOLERANCE = 0.05
"""Loads queue differently when they are issued at other times, which a replay does not know."""

pytest.importorskip("jax")

from benchmarks.streams import COLUMNS, make_stream, rows_of_stream  # noqa: E402


@pytest.fixture(scope="module")
def matmul() -> Any:
    return load_example("04_warp_specialized_matmul")


@pytest.fixture
def attention(monkeypatch) -> Callable[[Path, int], Trace]:
    """Simulates attention, which has a ring for the keys and one for the values, filled in turns by one warpgroup.

    Its softmax runs at the rate of the pipes: as slow as on the device, it would hide what a stage gains.
    """
    example = load_example("05_attention")

    def simulate_attention(folder: Path, stages: int) -> Trace:
        import jax.numpy as jnp

        import mgpu

        monkeypatch.setattr(example, "STAGES", stages)
        operand = jnp.zeros((4, 2048, 128), jnp.bfloat16)
        params = mgpu.CompilerParams(approx_math=True, profile_space=512, profile_dir=str(folder))
        options = mgpu.InterpretGPUParams(numerics=False)
        with mgpu.device("h100", lone_warp_factor=0):
            example.make_attention(4, 2048, params=params, interpret=options)(operand, operand, operand)
        return newest_launch(open_profile(folder)).load_trace()

    return simulate_attention


def simulate(matmul: Any, folder: Path, stages: int, record_cycles: int | None = None) -> Trace:
    import jax.numpy as jnp

    import mgpu

    operand = jnp.zeros((1024, 1024), jnp.bfloat16)
    params = mgpu.CompilerParams(profile_space=512, profile_dir=str(folder))
    options = mgpu.InterpretGPUParams(numerics=False, record_cycles=record_cycles)
    matmul.make_matmul(1024, 1024, stages=stages, params=params, interpret=options)(operand, operand)
    return newest_launch(open_profile(folder)).load_trace()


def predicted(trace: Trace, scenario: str) -> int:
    rows = predict_changes(trace).scenarios
    return int(rows.filter(rows["scenario"].str.starts_with(scenario))["predicted_cycles"][0])


def test_one_more_stage(matmul, tmp_path) -> None:
    before = simulate(matmul, tmp_path / "2", stages=2)
    after = simulate(matmul, tmp_path / "3", stages=3)
    assert after.end < 0.8 * before.end
    assert predicted(before, "one more stage in full (2 to 3)") == pytest.approx(after.end, rel=TOLERANCE)
    assert predicted(after, "one more stage in full (3 to 4)") == pytest.approx(
        simulate(matmul, tmp_path / "4", stages=4).end, rel=TOLERANCE
    )


def test_one_more_stage_in_each_of_two_rings(attention, tmp_path) -> None:
    before = attention(tmp_path / "2", 2)
    after = attention(tmp_path / "3", 3)
    assert after.end < 0.98 * before.end
    assert predicted(before, "one more stage in every ring") == pytest.approx(after.end, rel=0.02)
    report = predict_changes(before)
    gains = dict(report.scenarios.select("scenario", "gain_cycles").iter_rows())
    each, keys, values = (
        gains[f"one more stage in {ring}"] for ring in ("every ring", "k_full (2 to 3)", "v_full (2 to 3)")
    )
    assert each > max(keys, values)


def test_advice_names_the_ring_that_gains(attention, tmp_path) -> None:
    report = build_report(attention(tmp_path, 2))
    remedies = [item.remedy for item in report.advice.items]
    (stages,) = (remedy for remedy in remedies if remedy.startswith("one more stage"))
    assert "in every ring (k_full 2 to 3, v_full 2 to 3, +64.0 KiB SMEM" in stages


def simulate_stream(folder: Path, stages: int, shared: bool) -> Trace:
    import mgpu

    shape = {"tiles": 32, "rows": 64, "shared": shared}
    operand = np.broadcast_to(np.zeros((), np.float32), (rows_of_stream(**shape), COLUMNS))
    params = mgpu.CompilerParams(profile_space=512, profile_dir=str(folder))
    options = mgpu.InterpretGPUParams(numerics=False)
    make_stream(**shape, stages=stages, params=params, interpret=options)(operand)
    return newest_launch(open_profile(folder)).load_trace()


@pytest.mark.parametrize(("stages", "shared"), [(1, False), (2, False), (4, False), (2, True), (4, True)])
def test_one_more_stage_gains_what_the_memory_can_deliver(tmp_path, stages, shared) -> None:
    """Loads that wait for HBM gain nothing once its bandwidth is used; those that L2 delivers gain with each stage."""
    before = simulate_stream(tmp_path / "before", stages, shared)
    after = simulate_stream(tmp_path / "after", stages + 1, shared)
    gain = 1 - after.end / before.end
    assert (gain < 0.01) == (stages == 4 and not shared)
    # More bytes in flight make requests wait for each other at HBM, which a replay does not know.
    assert predict_changes(before).gain("one more stage in full") == pytest.approx(gain, abs=0.08)
    # Without a look at HBM, loads that are slower than its bandwidth are taken to come from there.
    seen = as_measured(before)
    assert predict_changes(seen).gain("one more stage in full") == pytest.approx(gain, abs=0.1)


def test_a_launch_at_the_bandwidth_of_hbm_is_called_so(tmp_path) -> None:
    report = build_report(simulate_stream(tmp_path / "hbm", 4, shared=False))
    assert report.verdict.startswith("HBM-bound, at 9")
    first = report.advice.items[0]
    assert first.remedy.startswith("move fewer bytes")
    assert "HBM moved 9" in first.evidence
    assert all(item.gain_share < 0.03 for item in report.advice.items if "one more stage" in item.remedy)
    shared = build_report(simulate_stream(tmp_path / "l2", 3, shared=True))
    assert "HBM-bound" not in shared.verdict
    assert any(item.gain_share > 0.1 for item in shared.advice.items if "one more stage" in item.remedy)


def test_no_recording(matmul, tmp_path) -> None:
    recorded = simulate(matmul, tmp_path / "recorded", stages=2)
    free = simulate(matmul, tmp_path / "free", stages=2, record_cycles=0)
    assert free.end < recorded.end
    assert predicted(recorded, "no recording") == pytest.approx(free.end, rel=TOLERANCE)
