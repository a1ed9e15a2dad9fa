"""Two launches side by side: what got faster or slower, and where the time went.

Roles, warpgroups and iterations are matched by name and number, never by time. Every table is a waterfall: its `delta`
column sums to the difference of the two launches' lengths, so that nothing is left unexplained.
"""

from __future__ import annotations

import dataclasses

import polars as pl

from mgpu.errors import ParamsError
from profiler.analysis.bubbles import BubbleReport
from profiler.as_measured import as_measured
from profiler.report import Report, build_report

_BUSY = "tensor core busy"
_SETTINGS = {
    "kernel": "kernel",
    "provenance": "provenance",
    "clock_hz": "clock in Hz",
    "grid": "grid",
    "cluster": "cluster",
    "num_sms": "SMs",
    "smem_bytes": "SMEM of a CTA in bytes",
    "record_cycles": "cycles that an event costs",
}


@dataclasses.dataclass(frozen=True)
class CompareReport:
    """Launch B measured against launch A. All cycles are of A's clock, as means, so that `delta` = B - A.

    Attributes:
      a_cycles, b_cycles: lengths of the analysed stretches; B's is converted if the devices differ.
      a_ns, b_ns: the same in ns, each at its own clock.
      categories: per `role, category`: `a_cycles, b_cycles, delta_cycles` of one track on average; per role, they sum
        to the difference.
      waits: the waiting part of these, per `role, kind, barrier`.
      causes: per `cause, detail, barrier` of tensor-core bubbles, and what is busy: of one SM in use on average; they
        sum to the difference.
      phases: per `name` (warpgroup) and `phase` (prologue, loop, epilogue): medians over CTAs.
      iterations: per `name, iteration`: median length over CTAs.
      notes: what is different about the two runs besides their times.
    """

    a_cycles: float
    b_cycles: float
    a_ns: float
    b_ns: float
    categories: pl.DataFrame
    waits: pl.DataFrame
    causes: pl.DataFrame
    phases: pl.DataFrame
    iterations: pl.DataFrame
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        for role in self.categories["role"].unique().to_list():
            rows = self.categories.filter(pl.col("role") == role)
            if (rows["a_cycles"] > 0).any() and (rows["b_cycles"] > 0).any():
                total = float(rows["delta_cycles"].sum())
                assert abs(total - self.delta_cycles) < 1, f"{role}: {total} of {self.delta_cycles} cycles explained"

    @property
    def delta_cycles(self) -> float:
        """B's length less A's."""
        return self.b_cycles - self.a_cycles

    @property
    def change(self) -> float:
        """Change of the time from A to B: -0.1 if B takes 10% less."""
        return self.b_ns / self.a_ns - 1 if self.a_ns else 0.0

    def largest(self) -> pl.DataFrame:
        """Returns the causes that changed most, in either direction."""
        return self.causes.filter(pl.col("delta_cycles").abs() >= 1).head(12)


def compare_reports(a: Report, b: Report, across_devices: bool = False) -> CompareReport:
    """Compares launch B with launch A.

    If one is simulated and the other measured, both are seen with the recorder's eyes: see `profiler.as_measured`.

    Args:
      a, b: their reports.
      across_devices: True compares different devices, by time.

    Raises:
      ParamsError: the launches ran on different devices, and `across_devices` is not set.
    """
    header_a, header_b = a.trace.header, b.trace.header
    scale = 1.0
    notes = _differences(a, b)
    if header_a.provenance != header_b.provenance:
        a, b = (build_report(as_measured(r.trace)) if r.trace.header.provenance == "simulated" else r for r in (a, b))
        notes.append("the simulated launch counts from its first event, as the measured one does")
    if header_a.device != header_b.device:
        if not across_devices:
            raise ParamsError(
                f"the first launch ran on {header_a.device}, the second on {header_b.device}: their cycles are not the "
                "same thing. Record both on one device, or compare by time with --across-devices."
            )
        scale = header_a.clock_hz / header_b.clock_hz
        notes.append(f"cycles of the second launch are converted by time to cycles of {header_a.device}")
    a_cycles, b_cycles = float(a.window.end), b.window.end * scale
    return CompareReport(
        a_cycles=a_cycles,
        b_cycles=b_cycles,
        a_ns=a.trace.to_ns(a.window.end),
        b_ns=b.trace.to_ns(b.window.end),
        categories=_difference(_categories(a), _categories(b), ["role", "category"], scale),
        waits=_difference(_waits(a), _waits(b), ["role", "kind", "barrier"], scale),
        causes=_difference(_causes(a), _causes(b), ["cause", "detail", "barrier"], scale),
        phases=_difference(_phases(a), _phases(b), ["name", "phase"], scale),
        iterations=_difference(_iterations(a), _iterations(b), ["name", "iteration"], scale, by_size=False),
        notes=tuple(notes),
    )


def _differences(a: Report, b: Report) -> list[str]:
    """Names the settings in which two launches differ."""
    first, second = a.trace.header, b.trace.header
    notes = []
    for name, label in _SETTINGS.items():
        one, other = getattr(first, name), getattr(second, name)
        if one != other:
            notes.append(f"{label}: {_text(one)}, then {_text(other)}")
    if first.clock_hz != second.clock_hz and first.device == second.device:
        notes.append("clocks differ, so cycles are compared, not times")
    for name, report in (("first", a), ("second", b)):
        if not report.window.is_whole:
            notes.append(f"the {name} launch is known only up to cycle {report.window.end:,}: {report.window.note}")
    return notes


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return "x".join(map(str, value)) or "none"
    return f"{value:,.0f}" if isinstance(value, (int, float)) else str(value)


def _difference(a: pl.DataFrame, b: pl.DataFrame, keys: list[str], scale: float, by_size: bool = True) -> pl.DataFrame:
    """Joins two tables of `cycles` by key; what only one of them has counts as 0 in the other."""
    b = b.with_columns(pl.col("cycles") * scale)
    joined = a.rename({"cycles": "a_cycles"}).join(b.rename({"cycles": "b_cycles"}), on=keys, how="full", coalesce=True)
    joined = joined.with_columns(pl.col("a_cycles", "b_cycles").fill_null(0.0))
    joined = joined.with_columns(delta_cycles=pl.col("b_cycles") - pl.col("a_cycles"))
    if not by_size:
        return joined.sort(*keys)
    size = pl.col("delta_cycles").abs()
    return joined.with_columns(size=size).sort("size", *keys, descending=[True] + [False] * len(keys)).drop("size")


def _categories(report: Report) -> pl.DataFrame:
    roles = report.categories.roles
    return roles.select("role", "category", cycles=pl.col("cycles") / pl.col("tracks"))


def _waits(report: Report) -> pl.DataFrame:
    tracks = report.categories.roles.group_by("role").agg(pl.col("tracks").first())
    waits = report.categories.waits.join(tracks, on="role")
    return waits.select("role", "kind", "barrier", cycles=pl.col("cycles") / pl.col("tracks"))


def _causes(report: Report) -> pl.DataFrame:
    bubbles: BubbleReport = report.bubbles
    sms = max(bubbles.sms.height, 1)
    keys = ["cause", "detail", "barrier"]
    groups = pl.concat([bubbles.groups, bubbles.edge_groups]).group_by(keys).agg(pl.col("total_cycles").sum())
    lost = groups.select(*keys, cycles=pl.col("total_cycles") / sms)
    rest = report.window.end - float(lost["cycles"].sum())
    busy = pl.DataFrame({"cause": [_BUSY], "detail": [""], "barrier": [""], "cycles": [rest]})
    return pl.concat([lost.cast({"cause": pl.String(), "detail": pl.String(), "barrier": pl.String()}), busy])


def _phases(report: Report) -> pl.DataFrame:
    names = ["prologue_cycles", "loop_cycles", "epilogue_cycles"]
    medians = report.steady_state.tracks.group_by("name").agg(pl.col(names).median().cast(pl.Float64))
    long = medians.unpivot(names, index="name", variable_name="phase", value_name="cycles")
    return long.with_columns(pl.col("phase").str.strip_suffix("_cycles")).drop_nulls()


def _iterations(report: Report) -> pl.DataFrame:
    named = report.steady_state.iterations.join(report.steady_state.tracks.select("track", "name"), on="track")
    return named.group_by("name", "iteration").agg(cycles=pl.col("dur").median().cast(pl.Float64))
