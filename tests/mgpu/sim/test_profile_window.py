"""Recording only a part of a launch: what is stored is what a full recording stores of it, and it is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import polars as pl
import pytest
from jax import lax

import mgpu
import profiler
from mgpu.capture import Capture
from mgpu.errors import ParamsError
from mgpu.sites import SiteKind
from profiler.report import build_report
from support.examples import load_example

M, N, K = 256, 512, 256  # 4 CTAs of 3 warpgroups


@pytest.fixture(scope="module")
def example() -> Any:
    return load_example("04_warp_specialized_matmul")


def record(
    example: Any, directory: Path, scope: mgpu.TraceScope = mgpu.TraceScope.WARPGROUP, **filters: Any
) -> Capture:
    params = mgpu.CompilerParams(
        profile_space=512,
        profile_dir=str(directory),
        profile_trace_scope=scope,
        profile_window=mgpu.ProfileWindow(**filters),
    )
    options = mgpu.InterpretGPUParams(numerics=False)
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
    part = record(example, tmp_path / "part", scope, ctas=[3, 1])
    everything, some = words_by_track(whole), words_by_track(part)
    assert sorted({cta for cta, *_ in some}) == [1, 3]
    for track, words in some.items():
        np.testing.assert_array_equal(words, everything[track])
    assert len(some) == len(everything) // 2
    np.testing.assert_array_equal(part.ctas, whole.ctas)
    np.testing.assert_array_equal(part.hbm, whole.hbm)  # of the whole device
    for table in ("unit_spans", "arrivals"):
        rows = getattr(whole, table)
        np.testing.assert_array_equal(getattr(part, table), rows[np.isin(rows["cta"], [1, 3])])


def test_some_warpgroups(example: Any, tmp_path: Path) -> None:
    whole = record(example, tmp_path / "all")
    part = record(example, tmp_path / "part", warpgroups=(0, 2))
    everything, some = words_by_track(whole), words_by_track(part)
    assert {warpgroup for _, warpgroup, _ in some} == {0, 2}
    for track, words in some.items():
        np.testing.assert_array_equal(words, everything[track])
    np.testing.assert_array_equal(part.arrivals, whole.arrivals)


@pytest.mark.parametrize("filters", [{"ctas": (0,)}, {"warpgroups": (0, 1)}, {"warpgroups": [2]}])
def test_what_was_left_out_is_said_and_analyses_run(example: Any, tmp_path: Path, filters: dict[str, Any]) -> None:
    capture = record(example, tmp_path, **filters)
    trace = profiler.open(tmp_path)[0].load_trace()
    assert profiler.check_trace(trace) == []
    report = build_report(trace)
    (note,) = report.notes
    what = "CTAs" if "ctas" in filters else "warpgroups"
    assert note.startswith(f"filtered: only {what} {', '.join(map(str, next(iter(filters.values()))))} were recorded")
    assert note in report.to_text(200)
    assert trace.end == int(capture.ctas["end"].max() - capture.ctas["begin"].min())
    assert 0 < report.utilisation.busy_share < 1


def test_everything_named_needs_no_note(example: Any, tmp_path: Path) -> None:
    capture = record(example, tmp_path, ctas=range(4), warpgroups=range(3))
    assert capture.header.notes == ()
    assert len(capture.tracks) == 12


@pytest.mark.parametrize(
    ("filters", "message"),
    [
        ({"ctas": (0, 4)}, r"ProfileWindow\(ctas=\) names 4, but the launch has 4: 0 to 3"),
        ({"warpgroups": (3,)}, r"ProfileWindow\(warpgroups=\) names 3, but the launch has 3: 0 to 2"),
        ({"ctas": ()}, "ctas must name at least one"),
        ({"warpgroups": (-1, 0)}, "warpgroups must name at least one, from 0 on"),
    ],
)
def test_filters_that_match_nothing_are_errors(
    example: Any, tmp_path: Path, filters: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParamsError, match=message):
        record(example, tmp_path, **filters)


STAGES = 3


@pytest.mark.parametrize("iterations", [range(2, 5), slice(5, None), range(1)])
def test_iterations_inside_are_those_of_a_whole_recording(example: Any, tmp_path: Path, iterations: Any) -> None:
    whole, part = (
        record_long(example, tmp_path / name, window)
        for name, window in (("all", mgpu.ProfileWindow()), ("part", mgpu.ProfileWindow(iterations=iterations)))
    )
    site = next(s.id for s in part.header.sites if s.kind is SiteKind.UNRECORDED)
    everything, some = words_by_track(whole), words_by_track(part)
    assert list(everything) == list(some)
    for track, words in some.items():
        own = words[(words[:, 0] & 0x3FFF) != site]
        assert 0 < len(own) < len(everything[track])
        found = {tuple(word) for word in everything[track].tolist()}
        assert all(tuple(word) in found for word in own.tolist())
    np.testing.assert_array_equal(part.ctas, whole.ctas)


def record_long(example: Any, directory: Path, window: mgpu.ProfileWindow, stages: int = STAGES) -> Capture:
    params = mgpu.CompilerParams(profile_space=512, profile_dir=str(directory), profile_window=window)
    options = mgpu.InterpretGPUParams(numerics=False)
    steps = 9
    example.make_matmul(128, 256, stages=stages, params=params, interpret=options)(
        jnp.zeros((128, steps * 64), jnp.bfloat16), jnp.zeros((steps * 64, 256), jnp.bfloat16)
    )
    return profiler.open(directory)[0].load_capture()


def test_all_roles_have_the_same_iterations_and_waits_find_their_arrivals(example: Any, tmp_path: Path) -> None:
    record_long(example, tmp_path / "all", mgpu.ProfileWindow())
    record_long(example, tmp_path / "part", mgpu.ProfileWindow(iterations=range(4, 7)))
    whole, part = (profiler.open(tmp_path / name)[0].load_trace() for name in ("all", "part"))
    assert profiler.check_trace(part) == []
    slots = part.waits.filter(pl.col("barrier") == "full").group_by("track").agg("slot").sort("track")["slot"]
    assert slots.to_list() == [[1, 2, 0], [1, 2, 0]]
    assert part.waits.filter(pl.col("barrier") == "empty")["slot"].to_list() == [1, 2, 0]
    # A wait of the window has the phase, the release and the releaser that it has in a whole recording.
    columns = ["track", "barrier", "slot", "phase", "begin", "dur", "blocked", "released_at", "released_by"]
    joined = part.waits.select(columns).join(whole.waits.select(columns), on=columns, how="semi")
    assert joined.height == part.waits.height == 9


def test_time_that_is_not_recorded_is_in_no_share(example: Any, tmp_path: Path) -> None:
    record_long(example, tmp_path, mgpu.ProfileWindow(iterations=range(4, 7)))
    report = build_report(profiler.open(tmp_path)[0].load_trace())
    (note,) = report.notes
    assert note == ("filtered: only iterations 4:7 were recorded; the time of the others is left out of every share")
    gaps = report.trace.spans.filter(pl.col("kind") == "not_recorded")
    # Every role leaves out its iterations before and after.
    assert gaps.group_by("track").len()["len"].to_list() == [2, 2, 2]
    left_out = report.categories.parts.filter(pl.col("kind") == "not_recorded")
    assert set(left_out["category"]) == {"idle"}
    recording = 2 * gaps.height * report.trace.header.record_cycles
    assert int(gaps["dur"].sum()) - recording <= int(left_out["cycles"].sum()) <= int(gaps["dur"].sum())
    assert all("not_recorded" not in item.evidence for item in report.advice.items)


@pytest.mark.parametrize("window", [range(2), range(1, 4), range(4, 7), range(8, 10), range(11, 12)])
@pytest.mark.parametrize("steps", [10, 2])
def test_both_roles_of_a_pipeline_record_the_same_steps(tmp_path: Path, window: range, steps: int) -> None:
    slots = 3

    def body(x_gmem: Any, out_gmem: Any) -> None:
        def step(indices: Any, x_smem: Any) -> None:
            out_gmem[indices[0]] = x_smem[0] + 1

        mgpu.emit_pipeline_warp_specialized(
            step,
            grid=(steps,),
            memory_registers=40,
            in_specs=[mgpu.BlockSpec((1, 128), lambda i: (i, 0))],
            max_concurrent_steps=slots,
            wg_axis="wg",
            num_compute_wgs=1,
        )(x_gmem)

    params = mgpu.CompilerParams(
        profile_space=256, profile_dir=str(tmp_path), profile_window=mgpu.ProfileWindow(iterations=window)
    )
    mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((steps, 128), jnp.float32),
        num_threads=2,
        thread_name="wg",
        compiler_params=params,
    )(np.ones((steps, 128), np.float32))
    trace = profiler.open(tmp_path)[0].load_trace()
    wanted = [step % slots for step in window if step < steps]
    loads = trace.spans.filter(pl.col("kind") == str(SiteKind.TMA_LOAD))
    waits = trace.waits.filter(pl.col("warpgroup") == 0)  # the last warpgroup loads
    assert loads["slot"].to_list() == wanted
    assert waits["slot"].to_list() == wanted
    assert profiler.check_trace(trace) == []


def nested_kernel(window: mgpu.ProfileWindow, directory: Path, *, warp_level: bool = False) -> Capture:
    """Three tiles of four steps each; each step waits for a load of its own."""

    def body(x_gmem: Any, out_gmem: Any, smem: Any, full: Any) -> None:
        def load_and_wait(step: Any) -> None:
            mgpu.copy_gmem_to_smem(x_gmem.at[step], smem, full)
            mgpu.barrier_wait(full)

        def tile(t: Any, _: None) -> None:
            def step(k: Any, _: None) -> None:
                if warp_level:
                    lax.cond(
                        k >= 0, lambda: mgpu.warp_map(lambda warp: _only_first(warp, load_and_wait, k)), lambda: None
                    )
                else:
                    load_and_wait(k)

            lax.fori_loop(0, 4, step, None)
            mgpu.copy_smem_to_gmem(smem, out_gmem.at[t])
            mgpu.wait_smem_to_gmem(0)

        lax.fori_loop(0, 3, tile, None)

    params = mgpu.CompilerParams(profile_space=256, profile_dir=str(directory), profile_window=window)
    mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((3, 64), jnp.float32),
        scratch_types=[mgpu.SMEM((64,), jnp.float32), mgpu.Barrier()],
        compiler_params=params,
    )(np.ones((4, 64), np.float32))
    return profiler.open(directory)[0].load_capture()


def _only_first(warp: Any, act: Any, step: Any) -> None:
    lax.cond(warp == 0, lambda: act(step), lambda: None)


@pytest.mark.parametrize("warp_level", [False, True])
@pytest.mark.parametrize(
    ("iterations", "waits", "stores", "gaps"),
    [
        (range(1, 2), 4, 1, 2),  # tile 1 with all its steps
        ((None, range(1, 3)), 6, 3, 6),  # steps 1 and 2 of every tile
        ((range(2, 3), slice(3, None)), 1, 1, 2),  # the last step of the last tile
    ],
)
def test_nested_loops(tmp_path: Path, iterations: Any, waits: int, stores: int, gaps: int, warp_level: bool) -> None:
    nested_kernel(mgpu.ProfileWindow(iterations=iterations), tmp_path, warp_level=warp_level)
    trace = profiler.open(tmp_path)[0].load_trace()
    counts = dict(trace.spans.group_by("kind").len().iter_rows())
    assert (counts["barrier_wait"], counts["tma_store"], counts["not_recorded"]) == (waits, stores, gaps)
    assert trace.spans["closed"].all()
    assert trace.waits["phase"].is_unique().all()
    build_report(trace)


def test_a_kernel_without_such_loops_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ParamsError, match=r"has 3 levels, the recorded code of the kernel has loops nested 2 deep"):
        nested_kernel(mgpu.ProfileWindow(iterations=(range(1), range(1), range(1))), tmp_path)
