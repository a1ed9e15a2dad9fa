"""How long is one iteration of the main loop once the pipeline runs, and what is it made of?"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import SiteKind
from profiler.analysis.leaves import Leaves, cut_into_leaves
from profiler.analysis.mma_activity import find_mma_activity
from profiler.analysis.wait_causes import find_wait_causes
from profiler.analysis.window import Window, known_window
from profiler.event_tables import SiteColumns
from profiler.trace import Trace

# An iteration that takes longer than this many times the median is an outlier.
OUTLIER_RATIO = 1.5
# A loop that keeps its SM's tensor core in use for this share of its time is bound by it, however long its waits are:
# warpgroups that take turns at the tensor core wait for each other's turn.
TENSOR_BOUND_SHARE = 0.9


@dataclasses.dataclass(frozen=True)
class SteadyStateReport:
    """The main loop of every compute track. An iteration begins where the track begins to wait for its data.

    Attributes:
      window: the analysed stretch.
      tracks: a row per track with at least two iterations: `track, name, sm, cta, barrier` (the one that marks
        iterations), `iterations`, `interval_cycles` (initiation interval: median), `p95_interval_cycles`,
        `prologue_cycles` (start to first iteration), `loop_cycles`, `epilogue_cycles` (last MMA to exit; null if the
        track outlives the window; the three sum to the lifetime), per iteration on average `data_wait_cycles`,
        `mma_wait_cycles`, `other_cycles`; `tensor_share`, the part of the loop in which the SM's tensor core is in use;
        `bound_by`: the tensor core if that is nearly all, else the largest of the three; `outliers`.
      iterations: a row per iteration but each track's last: `track, iteration, begin, dur, is_outlier`.
    """

    window: Window
    tracks: pl.DataFrame
    iterations: pl.DataFrame

    @property
    def interval_cycles(self) -> float:
        """Median initiation interval over all tracks, 0.0 if there is no loop."""
        value = self.tracks["interval_cycles"].median()
        return float(value) if isinstance(value, int | float) else 0.0

    @property
    def bound_by(self) -> str:
        """What most tracks' iterations are bound by, "" if there is no loop."""
        return str(self.tracks["bound_by"].mode().sort()[0]) if self.tracks.height else ""

    def by_warpgroup(self) -> pl.DataFrame:
        """Returns medians over the tracks of each warpgroup: `name, tracks`, then the columns of `tracks` in cycles."""
        medians = ["iterations", "interval_cycles", "data_wait_cycles", "mma_wait_cycles", "other_cycles"]
        return (
            self.tracks.group_by("name")
            .agg(
                pl.len().cast(pl.Int64).alias("tracks"),
                *(pl.col(name).median() for name in [*medians, "prologue_cycles", "epilogue_cycles"]),
                pl.col("p95_interval_cycles").max(),
                pl.col("tensor_share").median(),
                pl.col("outliers").sum(),
                pl.col("bound_by").mode().sort().first(),
            )
            .sort("name")
        )


def steady_state(trace: Trace) -> SteadyStateReport:
    """Finds the iterations of every compute track from its waits for data, and their initiation interval."""
    window = known_window(trace)
    leaves = cut_into_leaves(trace)
    marks = _iteration_marks(trace, window)
    iterations = _iterations(marks)
    per_track = iterations.group_by("track", "barrier").agg(
        iterations=pl.len().cast(pl.Int64) + 1,
        interval_cycles=pl.col("dur").median(),
        p95_interval_cycles=pl.col("dur").quantile(0.95, "linear"),
        loop_begin=pl.col("begin").min(),
        last_begin=(pl.col("begin") + pl.col("dur")).max(),
        outliers=pl.col("is_outlier").cast(pl.Int64).sum(),
    )
    tracks = _with_parts(trace, window, per_track.sort("track"))
    shares = _time_per_iteration(trace, leaves, tracks)
    tracks = tracks.join(shares, on="track", how="left", maintain_order="left")
    tracks = _with_tensor_share(trace, window, tracks).drop("loop_begin", "loop_end", "last_begin")
    return SteadyStateReport(window, tracks, iterations.drop("barrier"))


def _iteration_marks(trace: Trace, window: Window) -> pl.DataFrame:
    """Returns `track, barrier, begin` of the waits for data, for the barrier that each compute track waits for most."""
    for_data = find_wait_causes(trace).waits_for_data
    waits = trace.waits.filter(pl.Series(for_data, dtype=pl.Boolean))
    waits = waits.filter(pl.col("role").str.contains("compute") & (pl.col("begin") < window.end))
    counts = waits.group_by("track", "barrier").len().sort("track", "len", "barrier", descending=[False, True, False])
    chosen = counts.unique("track", keep="first", maintain_order=True).select("track", "barrier")
    return waits.join(chosen, on=["track", "barrier"]).select("track", "barrier", "begin").sort("track", "begin")


def _iterations(marks: pl.DataFrame) -> pl.DataFrame:
    frame = marks.with_columns(
        iteration=pl.int_range(pl.len()).over("track"),
        dur=(pl.col("begin").shift(-1) - pl.col("begin")).over("track"),
    )
    frame = frame.filter(pl.col("dur").is_not_null())
    return frame.with_columns(is_outlier=pl.col("dur") > OUTLIER_RATIO * pl.col("dur").median().over("track"))


def _with_parts(trace: Trace, window: Window, loops: pl.DataFrame) -> pl.DataFrame:
    """Adds the track's name and place, and splits its lifetime into prologue, loop and epilogue."""
    end = (pl.col("begin") + pl.col("dur")).clip(upper_bound=window.end)
    is_mma = pl.col("kind").is_in([str(SiteKind.MMA_ISSUE), str(SiteKind.MMA_WAIT)])
    last_mma = trace.spans.filter(is_mma & (pl.col("begin") < window.end)).group_by("track").agg(last_mma=end.max())
    frame = loops.join(last_mma, on="track", how="left").join(
        trace.tracks.select("track", "name", "sm", "cta", "begin", exit="end"),
        on="track",
    )
    frame = frame.with_columns(loop_end=pl.max_horizontal("last_mma", "last_begin")).sort("track")
    return frame.with_columns(
        prologue_cycles=pl.col("loop_begin") - pl.col("begin"),
        loop_cycles=pl.col("loop_end") - pl.col("loop_begin"),
        epilogue_cycles=pl.when(pl.col("exit") <= window.end).then(pl.col("exit") - pl.col("loop_end")),
    ).drop("begin", "exit", "last_mma")


def _time_per_iteration(trace: Trace, leaves: Leaves, tracks: pl.DataFrame) -> pl.DataFrame:
    """Returns per track the mean cycles per iteration in which it waited for data, for MMAs, and did anything else."""
    row_of_track = np.full(trace.tracks.height, -1, np.int64)
    numbers = tracks["track"].to_numpy()
    row_of_track[numbers] = np.arange(len(numbers))
    row = row_of_track[leaves.track]
    first, last = (np.append(tracks[name].to_numpy().astype(np.int64), 0)[row] for name in ("loop_begin", "last_begin"))
    cycles = np.maximum(np.minimum(leaves.end, last) - np.maximum(leaves.begin, first), 0)
    cycles[row < 0] = 0
    sites = SiteColumns.of(trace.header)
    # Leaves without a span, and sites without a barrier, find -1.
    site = np.append(trace.spans["site"].to_numpy(), [-1, -1, -1])[leaves.span]
    is_wait, is_mma_wait = (
        np.append(sites.is_kind(kind), False)[site] for kind in (SiteKind.BARRIER_WAIT, SiteKind.MMA_WAIT)
    )
    barrier = np.append(sites.barrier_code, -1)[site]
    own_barrier = np.append(sites.codes_of_barriers(tracks["barrier"].to_list()), -1)[row]
    for_data = is_wait & (barrier == own_barrier)
    sums = {
        "data_wait_cycles": _sum_where(for_data, row, cycles, len(numbers)),
        "mma_wait_cycles": _sum_where(is_mma_wait, row, cycles, len(numbers)),
        "other_cycles": _sum_where(~for_data & ~is_mma_wait, row, cycles, len(numbers)),
    }
    steps = np.maximum(tracks["iterations"].to_numpy() - 1, 1)
    means = np.stack([values / steps for values in sums.values()])
    names = np.array(["waiting for data", "tensor core", "own work and other waits"])
    bound_by = names[means.argmax(axis=0)] if len(numbers) else []
    columns = dict(zip(sums, means, strict=True))
    return pl.DataFrame({"track": tracks["track"], **columns, "bound_by": pl.Series(bound_by, dtype=pl.String)})


def _with_tensor_share(trace: Trace, window: Window, tracks: pl.DataFrame) -> pl.DataFrame:
    """Adds how much of its loop a track's SM had an MMA in flight, and lets that decide what the loop is bound by."""
    in_flight = find_mma_activity(trace, window).in_flight()
    sm, begin, end = (tracks[name].to_numpy().astype(np.int64) for name in ("sm", "loop_begin", "last_begin"))
    share = pl.Series(in_flight.covered(sm, begin, end) / np.maximum(end - begin, 1), dtype=pl.Float64)
    is_bound = pl.col("tensor_share") >= TENSOR_BOUND_SHARE
    return tracks.with_columns(tensor_share=share).with_columns(
        bound_by=pl.when(is_bound).then(pl.lit("tensor core")).otherwise(pl.col("bound_by"))
    )


def _sum_where(where: np.ndarray, row: np.ndarray, cycles: np.ndarray, size: int) -> np.ndarray:
    chosen = where & (row >= 0)
    return np.bincount(row[chosen], cycles[chosen], size)
