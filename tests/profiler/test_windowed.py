"""Waits of a capture that holds only some iterations find what released them, also without any record of arrivals."""

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
from mgpu.capture import Capture
from profiler.build import build_trace
from profiler.trace import Trace
from profiler.windowed import gaps_before
from support.examples import load_example

KEYS = ["track", "barrier", "slot", "begin", "dur"]


def record(directory: Path, window: mgpu.ProfileWindow, **options: Any) -> Capture:
    params = mgpu.CompilerParams(profile_space=512, profile_dir=str(directory), profile_window=window)
    interpret = mgpu.InterpretGPUParams(numerics=False)
    example = load_example("04_warp_specialized_matmul")
    matmul = example.make_matmul(128, 256, params=params, interpret=interpret, **options)
    matmul(np.zeros((128, 1024), jnp.bfloat16), np.zeros((1024, 256), jnp.bfloat16))
    return profiler.open(directory)[0].load_capture()


def as_measured(capture: Capture) -> Trace:
    """Returns the trace that the same events give without the activity that no GPU tells."""
    header = dataclasses.replace(capture.header, provenance="measured")
    return build_trace(
        dataclasses.replace(capture, header=header, unit_spans=capture.unit_spans[:0], arrivals=capture.arrivals[:0])
    )


@pytest.mark.parametrize("options", [{"stages": 2}, {"stages": 3}, {"stages": 3, "producer_delay_ns": 900}])
def test_a_measured_window_names_the_right_arrival_or_none(tmp_path: Path, options: dict[str, Any]) -> None:
    whole = build_trace(record(tmp_path / "all", mgpu.ProfileWindow(), **options)).waits
    part = as_measured(record(tmp_path / "part", mgpu.ProfileWindow(iterations=range(5, 12)), **options)).waits
    joined = part.join(whole.select(*KEYS, pl.col("released_at").alias("true")), on=KEYS, validate="1:1")
    assert joined.height == part.height > 20
    known = joined.filter(pl.col("barrier") == "empty", pl.col("released_at") >= 0)
    # Releases from before the window are not known; all that are known are right.
    assert known.height >= 7 - options["stages"]
    late = (known["true"] - known["released_at"]).abs()
    assert (late <= 30).all(), "an arrival takes effect some cycles after its event"
    full = joined.filter(pl.col("barrier") == "full")
    assert (full["released_at"] >= 0).all()
    assert (full["released_at"] >= full["true"]).all()
    assert (
        full.filter("blocked")["released_at"]
        <= full.filter("blocked").select(pl.col("begin") + pl.col("dur")).to_series()
    ).all()


def test_gaps_are_counted_per_track() -> None:
    spans = pl.DataFrame(
        {
            "track": [0, 0, 1, 0],
            "begin": [10, 50, 20, 30],
            "kind": ["not_recorded", "not_recorded", "not_recorded", "scope"],
        }
    )
    track, time = np.array([0, 0, 0, 0, 1, 1, 2]), np.array([9, 10, 49, 50, 19, 20, 99])
    assert gaps_before(spans, track, time).tolist() == [0, 1, 1, 2, 0, 1, 0]
