"""What is wrong with a kernel is what the report says: the matmul with one role slowed down at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import mgpu
import profiler
from profiler import Report
from support.examples import load_example

M, N, K = 256, 512, 2048


def report(directory: Path, **options: Any) -> Report:
    """Runs the matmul without recording cost and returns its report."""
    params = mgpu.CompilerParams(profile_space=1024, profile_dir=str(directory))
    interpret = mgpu.InterpretGPUParams(numerics=False, record_cycles=0)
    example = load_example("04_warp_specialized_matmul")
    matmul = example.make_matmul(M, N, params=params, interpret=interpret, **options)
    matmul(np.zeros((M, K), jnp.bfloat16), np.zeros((K, N), jnp.bfloat16))
    return profiler.build_report(profiler.open(directory)[0].load_trace())


def cycles_by_cause(found: Report) -> dict[tuple[str, str], int]:
    groups = found.bubbles.groups
    return {
        (cause, detail): cycles
        for cause, detail, cycles in groups.select("cause", "detail", "total_cycles").iter_rows()
    }


def test_a_deep_ring_keeps_the_tensor_core_busy(tmp_path: Path) -> None:
    assert sum(cycles_by_cause(report(tmp_path, stages=4)).values()) == 0


def test_one_stage_fewer_shows_as_slots_that_are_not_free(tmp_path: Path) -> None:
    deep, shallow = (report(tmp_path / str(stages), stages=stages) for stages in (4, 2))
    causes = cycles_by_cause(shallow)
    assert shallow.kernel_cycles > 1.2 * deep.kernel_cycles
    assert max(causes, key=lambda cause: causes[cause]) == ("slot not free", "back-pressure")
    assert causes["slot not free", "back-pressure"] > 0.9 * sum(causes.values())


def test_a_slow_producer_shows_as_data_that_is_issued_late(tmp_path: Path) -> None:
    slow = report(tmp_path, stages=4, producer_delay_ns=2000)
    causes = cycles_by_cause(slow)
    assert {cause for cause, _ in causes if causes[cause, _] > 0.02 * sum(causes.values())} == {"data not ready"}
    # 3100 cycles of pause for 1024 cycles of MMA: two thirds of the loop are bubbles.
    assert sum(causes.values()) / (4 * slow.kernel_cycles) == pytest.approx(2 / 3, abs=0.1)
    assert "data not ready" in slow.verdict


def test_starved_memory_shows_as_bandwidth(tmp_path: Path) -> None:
    with mgpu.device("h100", hbm_bandwidth=10**11):
        starved = report(tmp_path, stages=4)
    causes = cycles_by_cause(starved)
    assert max(causes, key=lambda cause: causes[cause]) == ("data not ready", "bandwidth-bound")


def test_a_slower_tensor_core_leaves_no_bubbles(tmp_path: Path) -> None:
    with mgpu.device("h100", wgmma_flops_per_cycle=2048):
        assert sum(cycles_by_cause(report(tmp_path, stages=3)).values()) == 0


def test_the_main_loop_is_bound_by_the_tensor_core_or_by_data(tmp_path: Path) -> None:
    deep, shallow = (report(tmp_path / str(stages), stages=stages) for stages in (4, 2))
    assert (deep.steady_state.bound_by, shallow.steady_state.bound_by) == ("tensor core", "waiting for data")
    # Two wgmmas of 64 x 256 x 64 at 128.7 cycles for each of 4 instructions.
    assert deep.steady_state.interval_cycles == pytest.approx(2 * 4 * 128.7, rel=0.01)
