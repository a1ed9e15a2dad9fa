"""How good is a replay? The same change, predicted on the event graph and made in the kernel and simulated."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from profiler.analysis.what_if import predict_changes
from profiler.report import build_report
from profiler.store import newest_launch, open_profile
from profiler.trace import Trace
from support.examples import load_example

TOLERANCE = 0.05
"""Loads queue differently when they are issued at other times, which a replay does not know."""

pytest.importorskip("jax")


@pytest.fixture(scope="module")
def matmul() -> Any:
    return load_example("04_warp_specialized_matmul")


@pytest.fixture
def attention(monkeypatch) -> Callable[[Path, int], Trace]:
    """Simulates attention, which has a ring for the keys and one for the values, filled in turns by one warpgroup."""
    example = load_example("05_attention")

    def simulate_attention(folder: Path, stages: int) -> Trace:
        import jax.numpy as jnp

        import mgpu

        monkeypatch.setattr(example, "STAGES", stages)
        operand = jnp.zeros((4, 2048, 128), jnp.bfloat16)
        params = mgpu.CompilerParams(approx_math=True, profile_space=512, profile_dir=str(folder))
        options = mgpu.InterpretGPUParams(numerics=False)
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


def test_no_recording(matmul, tmp_path) -> None:
    recorded = simulate(matmul, tmp_path / "recorded", stages=2)
    free = simulate(matmul, tmp_path / "free", stages=2, record_cycles=0)
    assert free.end < recorded.end
    assert predicted(recorded, "no recording") == pytest.approx(free.end, rel=TOLERANCE)
