"""Tensor-core activity that is inferred from issues and waits: by hand, and against what the simulator knows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest

import mgpu
import profiler
from mgpu.sites import Site, SiteKind
from profiler.analysis.mma_activity import find_mma_activity
from profiler.analysis.window import known_window
from profiler.as_measured import as_measured
from profiler.build import build_trace
from profiler.measured_mma import inferred_mma
from profiler.tensor_rate import peak_of_mix
from support.captures import ring_capture
from support.examples import load_example

ISSUE, WAIT_BUT_ONE, WAIT_ALL, NARROW = range(4)
SITES = (
    Site(ISSUE, "wgmma", SiteKind.MMA_ISSUE, flops=1000, operand_bits=16),
    Site(WAIT_BUT_ONE, "wait", SiteKind.MMA_WAIT, in_flight=1),
    Site(WAIT_ALL, "wait", SiteKind.MMA_WAIT),
    Site(NARROW, "wgmma", SiteKind.MMA_ISSUE, flops=1000, operand_bits=8),
)


def infer(*events: tuple[int, int, int, int], peak: float = 100.0) -> list[tuple[int, int, int]]:
    """Returns (track, begin, end) of the groups, for (track, site, begin, end) of issues and waits on one SM."""
    header = dataclasses.replace(ring_capture().header, sites=SITES, peaks={"tensor_flops": peak} if peak else {})
    tracks = pl.DataFrame({"track": [0, 1], "sm": 0, "cta": 0, "warpgroup": [0, 1], "warp": -1, "end": 1000})
    columns: dict[str, Any] = {
        "track": [event[0] for event in events],
        "span": range(len(events)),
        "site": [event[1] for event in events],
        "kind": [str(SITES[event[1]].kind) for event in events],
        "begin": [event[2] for event in events],
        "dur": [event[3] - event[2] for event in events],
        "closed": True,
    }
    rows = inferred_mma(tracks, pl.DataFrame(columns), header).sort("begin")
    return [(track, begin, begin + dur) for track, begin, dur in rows.select("track", "begin", "dur").iter_rows()]


def test_a_blocked_wait_ends_with_the_groups_that_it_covers() -> None:
    # The wait leaves the second group in flight, so it tells when the first one ended; the second one is worked off at
    # 100 FLOP a cycle behind it, and the last wait finds it done.
    events = [(0, ISSUE, 0, 2), (0, ISSUE, 6, 8), (0, WAIT_BUT_ONE, 8, 60), (0, WAIT_ALL, 90, 95)]
    assert infer(*events) == [(0, 0, 60), (0, 60, 70)]


def test_a_wait_that_finds_its_group_done_bounds_it_only() -> None:
    assert infer((0, ISSUE, 0, 2), (0, WAIT_ALL, 200, 204)) == [(0, 0, 10)]
    assert infer((0, ISSUE, 0, 2), (0, WAIT_ALL, 2, 6)) == [(0, 0, 6)]


def test_warpgroups_share_the_tensor_core_in_order_of_issue() -> None:
    events = [(0, ISSUE, 0, 2), (1, ISSUE, 4, 6), (0, WAIT_ALL, 100, 101), (1, WAIT_ALL, 100, 101)]
    assert infer(*events) == [(0, 0, 10), (1, 10, 20)]


def test_narrow_operands_take_half_the_time() -> None:
    assert infer((0, NARROW, 0, 2), (0, WAIT_ALL, 100, 101)) == [(0, 0, 5)]


def test_without_a_wait_a_group_ends_by_its_rate_and_without_a_rate_with_its_track() -> None:
    assert infer((0, ISSUE, 0, 2)) == [(0, 0, 10)]
    assert infer((0, ISSUE, 0, 2), peak=0.0) == [(0, 0, 1000)]


def busy_cycles(trace: Any) -> int:
    return int(find_mma_activity(trace, known_window(trace)).in_flight().cycles.sum())


def test_busy_cycles_are_those_of_the_simulated_ring() -> None:
    ring: dict[str, Any] = {"num_ctas": 4, "num_sms": 2, "iterations": 8, "stages": 3}
    truth, measured = (build_trace(ring_capture(**ring, activity=activity)) for activity in (True, False))
    assert busy_cycles(measured) == pytest.approx(busy_cycles(truth), rel=0.05)


@pytest.fixture(scope="module")
def matmul(tmp_path_factory) -> Any:
    """The example's matmul, whose wait leaves one wgmma in flight."""
    directory: Path = tmp_path_factory.mktemp("profile")
    params = mgpu.CompilerParams(profile_space=1024, profile_dir=str(directory))
    interpret = mgpu.InterpretGPUParams(numerics=False)
    run = load_example("04_warp_specialized_matmul").make_matmul(256, 512, params=params, interpret=interpret)
    run(np.zeros((256, 1024), jnp.bfloat16), np.zeros((1024, 512), jnp.bfloat16))
    return profiler.open(directory)[0].load_trace()


def test_busy_cycles_are_those_of_a_simulated_matmul(matmul) -> None:
    seen = as_measured(matmul)
    assert seen.async_spans["provenance"].unique().to_list() == ["inferred"]
    assert busy_cycles(seen) == pytest.approx(busy_cycles(matmul), rel=0.02)
    unit = pl.col("unit") == "tensor_core"
    assert seen.async_spans.filter(unit)["flops"].sum() == matmul.async_spans.filter(unit)["flops"].sum()


def test_seen_as_measured_a_launch_begins_with_its_first_event(matmul) -> None:
    seen = as_measured(matmul)
    hidden = matmul.tracks["begin"].min()
    assert hidden > 0
    assert seen.tracks["begin"].min() == 0
    assert seen.end == matmul.end - hidden
    assert profiler.check_trace(seen) == []


def test_a_simulated_launch_beside_a_measured_one(matmul) -> None:
    """The same launch with other eyes: nothing differs but where it is said to come from."""
    measured = as_measured(matmul)
    measured = dataclasses.replace(measured, header=dataclasses.replace(matmul.header, provenance="measured"))
    found = profiler.compare_reports(profiler.build_report(matmul), profiler.build_report(measured))
    assert found.delta_cycles == 0
    assert found.causes["delta_cycles"].abs().max() == 0
    assert any("from its first event" in note for note in found.notes)


def test_the_peak_is_that_of_the_operands() -> None:
    header = dataclasses.replace(ring_capture().header, sites=SITES, peaks={"tensor_flops": 100.0})
    flops = np.array([1000, 1000])
    assert peak_of_mix(header, np.array([ISSUE, ISSUE]), flops) == 100
    assert peak_of_mix(header, np.array([NARROW, NARROW]), flops) == 200
    assert peak_of_mix(header, np.array([ISSUE, NARROW]), flops) == pytest.approx(2000 / 15)
