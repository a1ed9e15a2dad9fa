"""TMA stores that are inferred from issues and waits: by hand, and against what the simulator knows."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl

import mgpu
import profiler
from mgpu.sites import Site, SiteKind
from profiler.as_measured import as_measured
from profiler.check import check_trace
from profiler.measured_stores import inferred_stores
from support.captures import ring_capture

STORE, OTHER_STORE, WAIT_BUT_ONE, WAIT_ALL = range(4)
SITES = (
    Site(STORE, "store", SiteKind.TMA_STORE, size_bytes=512),
    Site(OTHER_STORE, "store", SiteKind.TMA_STORE, size_bytes=256),
    Site(WAIT_BUT_ONE, "wait stores", SiteKind.STORE_WAIT, in_flight=1),
    Site(WAIT_ALL, "wait stores", SiteKind.STORE_WAIT),
)


def infer(*events: tuple[int, int, int]) -> list[tuple[int, int]]:
    """Returns (begin, end) of the stores, for (site, begin, end) of issues and waits of one track."""
    header = dataclasses.replace(ring_capture().header, sites=SITES, record_cycles=4)
    tracks = pl.DataFrame({"track": [0], "sm": 0, "cta": 0, "warpgroup": [0], "warp": -1, "end": 1000})
    columns: dict[str, Any] = {
        "track": [0 for _ in events],
        "span": range(len(events)),
        "site": [event[0] for event in events],
        "kind": [str(SITES[event[0]].kind) for event in events],
        "begin": [event[1] for event in events],
        "dur": [event[2] - event[1] for event in events],
        "closed": True,
    }
    rows = inferred_stores(tracks, pl.DataFrame(columns), header).sort("begin")
    assert set(rows["provenance"]) == {"inferred"}
    return [(begin, begin + dur) for begin, dur in rows.select("begin", "dur").iter_rows()]


def test_a_store_ends_with_the_wait_that_blocked_on_it() -> None:
    assert infer((STORE, 0, 10), (WAIT_ALL, 20, 300)) == [(0, 300)]


def test_a_wait_that_finds_the_store_done_bounds_it() -> None:
    assert infer((STORE, 0, 10), (WAIT_ALL, 200, 204)) == [(0, 200)]


def test_a_wait_that_leaves_one_group_in_flight_tells_of_those_before() -> None:
    loop = [(STORE, 0, 10), (WAIT_BUT_ONE, 10, 14), (STORE, 100, 110), (WAIT_BUT_ONE, 110, 250), (WAIT_ALL, 260, 400)]
    assert infer(*loop) == [(0, 250), (100, 400)]


def test_stores_of_several_places_in_a_row_are_one_group() -> None:
    turn = [(STORE, 0, 10), (OTHER_STORE, 10, 20), (WAIT_BUT_ONE, 20, 24)]
    later = [(STORE, 100, 110), (OTHER_STORE, 110, 120), (WAIT_BUT_ONE, 120, 300), (WAIT_ALL, 300, 500)]
    assert infer(*turn, *later) == [(0, 300), (10, 300), (100, 500), (110, 500)]
    # A place that stores again begins another group.
    assert infer((STORE, 0, 10), (STORE, 10, 20), (WAIT_BUT_ONE, 20, 300)) == [(0, 300), (10, 1000)]


def test_a_store_that_nobody_waited_for_lasts_to_the_end_of_its_track() -> None:
    assert infer((WAIT_ALL, 0, 1), (STORE, 5, 10)) == [(5, 1000)]


def test_stores_of_a_simulated_launch_are_found_again_never_too_early(tmp_path: Path) -> None:
    def body(x: Any, out: Any, smem: Any, full: Any) -> None:
        mgpu.copy_gmem_to_smem(x, smem, full)
        mgpu.barrier_wait(full)
        for step in range(5):
            mgpu.copy_smem_to_gmem(smem, out.at[step])
            mgpu.wait_smem_to_gmem(1)
        mgpu.wait_smem_to_gmem(0)

    mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((5, 64, 64), jnp.float32),
        scratch_types=[mgpu.SMEM((64, 64), jnp.float32), mgpu.Barrier()],
        compiler_params=mgpu.CompilerParams(profile_space=128, profile_dir=str(tmp_path)),
    )(np.ones((64, 64), np.float32))
    simulated = profiler.open(tmp_path)[0].load_trace()
    measured = as_measured(simulated)
    assert check_trace(measured) == []
    true, found = (
        trace.async_spans.filter(pl.col("unit") == "tma_store").sort("begin") for trace in (simulated, measured)
    )
    assert found["bytes"].to_list() == true["bytes"].to_list() == [64 * 64 * 4] * 5
    shift = measured.origin_cycles - simulated.origin_cycles
    true_end, found_end = ((rows["begin"] + rows["dur"]).to_numpy() for rows in (true, found))
    late = found_end + shift - true_end
    # Every wait here blocks, so each end is known to within what a wait costs beyond its reason.
    assert late.min() >= 0
    assert late.max() <= 60
