"""Recording only some CTAs or warpgroups: what is stored is what a full recording stores of them, and it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import mgpu
import profiler
from mgpu.capture import Capture
from mgpu.errors import ParamsError
from profiler.report import build_report
from support.examples import load_example

M, N, K = 256, 512, 256  # 4 CTAs of 3 warpgroups


@pytest.fixture(scope="module")
def example() -> Any:
    return load_example("04_warp_specialized_matmul")


def record(
    example: Any, directory: Path, scope: mgpu.TraceScope = mgpu.TraceScope.WARPGROUP, **filters: Any
) -> Capture:
    params = mgpu.CompilerParams(profile_space=512, profile_dir=str(directory), profile_trace_scope=scope)
    options = mgpu.InterpretGPUParams(numerics=False, **filters)
    example.make_matmul(M, N, params=params, interpret=options)(
        jnp.zeros((M, K), jnp.bfloat16), jnp.zeros((K, N), jnp.bfloat16)
    )
    return profiler.open(directory)[0].load_capture()


def words_by_track(capture: Capture) -> dict[tuple[int, int, int], np.ndarray]:
    """Returns the words of each (CTA, warpgroup, warp)."""
    parts = np.split(capture.words, capture.offsets[1:-1])
    columns = [capture.tracks[name].tolist() for name in ("cta", "warpgroup", "warp")]
    keys: list[tuple[int, int, int]] = list(zip(*columns, strict=True))
    return dict(zip(keys, parts, strict=True))


@pytest.mark.parametrize("scope", list(mgpu.TraceScope))
def test_some_ctas_keep_the_timeline_of_all(example: Any, tmp_path: Path, scope: mgpu.TraceScope) -> None:
    whole = record(example, tmp_path / "all", scope)
    part = record(example, tmp_path / "part", scope, record_ctas=[3, 1])
    everything, some = words_by_track(whole), words_by_track(part)
    assert sorted({cta for cta, *_ in some}) == [1, 3]
    for track, words in some.items():
        np.testing.assert_array_equal(words, everything[track])
    assert len(some) == len(everything) // 2
    np.testing.assert_array_equal(part.ctas, whole.ctas)
    for table in ("unit_spans", "arrivals"):
        rows = getattr(whole, table)
        np.testing.assert_array_equal(getattr(part, table), rows[np.isin(rows["cta"], [1, 3])])


def test_some_warpgroups(example: Any, tmp_path: Path) -> None:
    whole = record(example, tmp_path / "all")
    part = record(example, tmp_path / "part", record_warpgroups=(0, 2))
    everything, some = words_by_track(whole), words_by_track(part)
    assert {warpgroup for _, warpgroup, _ in some} == {0, 2}
    for track, words in some.items():
        np.testing.assert_array_equal(words, everything[track])
    np.testing.assert_array_equal(part.arrivals, whole.arrivals)


@pytest.mark.parametrize("filters", [{"record_ctas": (0,)}, {"record_warpgroups": (0, 1)}, {"record_warpgroups": [2]}])
def test_what_was_left_out_is_said_and_analyses_run(example: Any, tmp_path: Path, filters: dict[str, Any]) -> None:
    capture = record(example, tmp_path, **filters)
    trace = profiler.open(tmp_path)[0].load_trace()
    assert profiler.check_trace(trace) == []
    report = build_report(trace)
    (note,) = report.notes
    what = "CTAs" if "record_ctas" in filters else "warpgroups"
    assert note.startswith(f"filtered: only {what} {', '.join(map(str, next(iter(filters.values()))))} were recorded")
    assert note in report.to_text(200)
    assert trace.end == int(capture.ctas["end"].max() - capture.ctas["begin"].min())
    assert 0 < report.utilisation.busy_share < 1


def test_everything_named_needs_no_note(example: Any, tmp_path: Path) -> None:
    capture = record(example, tmp_path, record_ctas=range(4), record_warpgroups=range(3))
    assert capture.header.notes == ()
    assert len(capture.tracks) == 12


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"record_ctas": (0, 4)}, "record_ctas names 4, but the launch has 4: 0 to 3"),
        ({"record_warpgroups": (3,)}, "record_warpgroups names 3, but the launch has 3: 0 to 2"),
        ({"record_ctas": ()}, "record_ctas must name at least one"),
        ({"record_warpgroups": (-1, 0)}, "record_warpgroups must name at least one, from 0 on"),
    ],
)
def test_filters_that_match_nothing_are_errors(
    example: Any, tmp_path: Path, filters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParamsError, match=message):
        record(example, tmp_path, **filters)
