from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

from dashboard import figures
from dashboard.figures.categories import role_parts
from dashboard.figures.critical_path import STEP_COLORS
from dashboard.figures.sms import busy_raster
from dashboard.figures.tensor_core import budget_parts
from dashboard.names import step_name
from dashboard.quantities import Units
from dashboard.store import LoadedLaunch
from dashboard.theme import CAUSE_COLORS, HATCHED_KINDS, KIND_COLORS
from dashboard.timeline.slots import READING, full_barriers, slot_uses
from mgpu.sites import Category, SiteKind
from profiler.analysis import Cause
from profiler.analysis.compare import compare_reports
from profiler.analysis.event_graph import Step

CYCLES = Units("cycles", 1.755e9)


def bars(figure):
    return json.loads(figure.to_json())["data"]


def test_budget_is_the_whole_time_of_the_sms_in_use(ring: LoadedLaunch) -> None:
    parts = budget_parts(ring.report)
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    # Twelve MMAs of 100 cycles on each of two SMs.
    assert (parts[0].name, parts[0].cycles) == ("in use", 2 * 12 * 100)
    assert [bar["name"] for bar in bars(figures.tensor_core_budget(ring.report))] == [part.name for part in parts]


def test_parts_of_each_role_sum_to_its_time(matmul: LoadedLaunch) -> None:
    totals = role_parts(matmul.report).group_by("role").agg(total=pl.col("share").sum())
    assert totals["total"].to_list() == pytest.approx([1.0] * totals.height)
    hatched = {bar["name"]: bar["marker"]["pattern"]["shape"] for bar in bars(figures.role_categories(matmul.report))}
    assert hatched["wait full"] == "/"
    assert hatched["busy"] == ""


def test_matrix_counts_what_the_report_counts(ring: LoadedLaunch) -> None:
    [heatmap] = bars(figures.barrier_matrix(ring.report, CYCLES, gross=True))
    cycles = {
        (row["role"], row["releaser"]): row["blocked_cycles"] for row in ring.report.barrier_waits.matrix.to_dicts()
    }
    drawn = figures.barrier_matrix(ring.report, CYCLES, gross=True).data[0]
    assert np.asarray(drawn["z"]).sum() == sum(cycles.values())
    assert heatmap["y"] == ["compute", "memory"]


def test_raster_gives_every_slice_its_exact_share() -> None:
    # SM 0 is busy in [0, 5) and [8, 10), SM 2 in [2, 4); slices of 4 cycles up to 12.
    raster = busy_raster(np.array([0, 0, 2]), np.array([0, 8, 2]), np.array([5, 10, 4]), 12, 3)
    assert raster.tolist() == [[1.0, 0.25, 0.5], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]]


def test_gantt_draws_every_use_of_every_slot(matmul: LoadedLaunch) -> None:
    uses = slot_uses(matmul.trace, 0)
    drawn = bars(figures.pipeline_gantt(uses, CYCLES, full_barriers(matmul.trace)))
    assert sum(len(bar["y"]) for bar in drawn) == uses.height


def test_depth_below_the_gantt_is_the_counter_of_its_ring(matmul: LoadedLaunch) -> None:
    uses = slot_uses(matmul.trace, 0)
    drawn = bars(figures.pipeline_over_time(matmul.trace, 0, uses, CYCLES, full_barriers(matmul.trace)))
    [depth] = [one for one in drawn if one["type"] == "scatter"]
    counter = matmul.trace.counters.filter((pl.col("cta") == 0) & (pl.col("unit") == "slots"))
    assert depth["x"][1:-1] == counter["time"].to_list()
    assert depth["y"][1:-1] == counter["value"].to_list()
    assert (depth["x"][0], depth["y"][0]) == (uses["begin"].min(), 0)
    gantt_axis = {one.get("xaxis", "x") for one in drawn}
    assert gantt_axis <= {"x", "x2"}


def test_every_step_of_the_critical_path_has_a_name_and_a_colour(matmul: LoadedLaunch) -> None:
    graph = {str(step) for step in Step} - {str(Step.RUN), str(Step.END)}
    sites = {str(kind) for kind in SiteKind} - {str(SiteKind.UNRECORDED)}
    assert graph | sites <= set(STEP_COLORS)
    names = [step_name(kind) for kind in STEP_COLORS]
    assert len(set(names)) == len(names)
    assert not [name for name in names if "_" in name]


def test_critical_path_strip_is_as_long_as_the_launch(matmul: LoadedLaunch) -> None:
    drawn = bars(figures.critical_path_strip(matmul.report, CYCLES))
    assert sum(sum(bar["x"]) for bar in drawn) == matmul.trace.end


def test_waterfall_leads_from_one_length_to_the_other(matmul: LoadedLaunch, ring: LoadedLaunch) -> None:
    compared = compare_reports(ring.report, matmul.report, across_devices=True)
    [steps] = bars(figures.waterfall(compared, CYCLES))
    assert sum(steps["y"][:-1]) == pytest.approx(compared.b_cycles, abs=20)


def test_paired_pipelines_begin_to_be_read_at_the_same_moment(matmul: LoadedLaunch, ring: LoadedLaunch) -> None:
    before, after = slot_uses(ring.trace, 0), slot_uses(matmul.trace, 0)
    drawn = bars(figures.paired_gantt(before, after, CYCLES))
    assert sum(len(bar["y"]) for bar in drawn) == before.height + after.height
    reading = next(bar for bar in drawn if bar["name"] == READING)
    firsts = {
        launch: min(base for base, row in zip(reading["base"], reading["y"], strict=True) if row.endswith(launch))
        for launch in (" before", " after")
    }
    assert firsts == {" before": 0, " after": 0}
    order = figures.paired_gantt(before, after, CYCLES).layout["yaxis"]["categoryarray"]
    # Two stages before, three after: the third slot has no partner.
    assert list(order) == [f"full[{slot}] {one}" for slot in (0, 1) for one in ("before", "after")] + ["full[2] after"]


def test_roofline_marks_what_was_achieved(matmul: LoadedLaunch, ring: LoadedLaunch) -> None:
    figure = figures.roofline(matmul.report)
    assert figure is not None
    mark = figure.data[-1]
    # Per k step of 64, a 128 x 256 tile does 2 * 128 * 256 * 64 FLOP on 48 KiB; the result adds 64 KiB per eight steps.
    expected = 8 * 2 * 128 * 256 * 64 / (8 * 48 * 1024 + 64 * 1024)
    assert mark["x"][0] == pytest.approx(expected)
    assert mark["y"][0] == pytest.approx(2 * 512**3 / matmul.trace.end / 132)


def test_sm_timeline_draws_merged_boxes_only(matmul: LoadedLaunch) -> None:
    figure = figures.sm_timeline(matmul.timeline, 0, CYCLES)
    assert {"tensor core", "barrier wait", "tma load"} <= {bar["name"] for bar in bars(figure)}
    assert sum(len(bar["y"]) for bar in bars(figure)) < 5000


def test_every_kind_and_cause_has_a_colour() -> None:
    assert {str(kind) for kind in SiteKind} <= set(KIND_COLORS)
    assert {str(cause) for cause in Cause} == set(CAUSE_COLORS)
    waits = {str(kind) for kind in SiteKind if kind.category is Category.WAIT}
    assert waits == set(HATCHED_KINDS)
