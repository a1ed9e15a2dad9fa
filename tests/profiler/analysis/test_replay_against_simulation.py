"""How good is a replay? The same change, predicted on the event graph and made in the kernel and simulated."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from profiler.analysis.what_if import predict_changes
from profiler.store import newest_launch, open_profile
from profiler.trace import Trace

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "04_warp_specialized_matmul.py"
TOLERANCE = 0.05
"""Loads queue differently when they are issued at other times, which a replay does not know."""


@pytest.fixture(scope="module")
def example() -> Any:
    pytest.importorskip("jax")
    spec = importlib.util.spec_from_file_location("warp_specialized_matmul", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def simulate(example: Any, folder: Path, stages: int, record_cycles: int | None = None) -> Trace:
    import jax.numpy as jnp

    import mgpu

    operand = jnp.zeros((1024, 1024), jnp.bfloat16)
    params = mgpu.CompilerParams(profile_space=512, profile_dir=str(folder))
    options = mgpu.InterpretGPUParams(numerics=False, record_cycles=record_cycles)
    example.make_matmul(1024, 1024, stages=stages, params=params, interpret=options)(operand, operand)
    return newest_launch(open_profile(folder)).load_trace()


def predicted(trace: Trace, scenario: str) -> int:
    rows = predict_changes(trace).scenarios
    return int(rows.filter(rows["scenario"].str.starts_with(scenario))["predicted_cycles"][0])


def test_one_more_stage(example, tmp_path) -> None:
    before = simulate(example, tmp_path / "2", stages=2)
    after = simulate(example, tmp_path / "3", stages=3)
    assert after.end < 0.8 * before.end
    assert predicted(before, "one more stage (2 to 3)") == pytest.approx(after.end, rel=TOLERANCE)
    assert predicted(after, "one more stage (3 to 4)") == pytest.approx(
        simulate(example, tmp_path / "4", stages=4).end, rel=TOLERANCE
    )


def test_no_recording(example, tmp_path) -> None:
    recorded = simulate(example, tmp_path / "recorded", stages=2)
    free = simulate(example, tmp_path / "free", stages=2, record_cycles=0)
    assert free.end < recorded.end
    assert predicted(recorded, "no recording") == pytest.approx(free.end, rel=TOLERANCE)
