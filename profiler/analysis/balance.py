"""Was the work spread evenly over the SMs, and what did the last wave cost?"""

from __future__ import annotations

import dataclasses
import math

import polars as pl

from profiler.trace import Trace


@dataclasses.dataclass(frozen=True)
class BalanceReport:
    """How CTAs filled the device.

    Attributes:
      cycles: length of the launch.
      device_sms: SMs of the device.
      ctas_per_sm: CTAs that fit on an SM at once.
      sms: per SM in use: `sm, ctas, first_begin, last_end, busy_cycles` (at least one CTA there), `idle_cycles` (the
        rest of the launch); the two sum to `cycles`. By SM.
      ctas: per CTA: `cta, cluster, sm, begin, dur`, and `wave`: CTAs that ran in its place before it. By CTA.
    """

    cycles: int
    device_sms: int
    ctas_per_sm: int
    sms: pl.DataFrame
    ctas: pl.DataFrame

    @property
    def waves(self) -> float:
        """CTAs over the places that the device has for them."""
        return self.ctas.height / max(self.device_sms * self.ctas_per_sm, 1)

    @property
    def wave_efficiency(self) -> float:
        """Part of the places that CTAs fill if all waves take the same time, 0 to 1: what quantisation leaves."""
        return self.waves / math.ceil(self.waves) if self.ctas.height else 0.0

    @property
    def occupied_share(self) -> float:
        """Part of all SM time in which a CTA was on the SM, 0 to 1."""
        return int(self.sms["busy_cycles"].sum()) / max(self.cycles * self.device_sms, 1)

    @property
    def unused_sms(self) -> int:
        """SMs of the device that ran no CTA."""
        return self.device_sms - self.sms.height

    @property
    def tail_cycles(self) -> int:
        """Cycles from the moment at which the first SM in use was done for good to the end of the launch."""
        first_done = self.sms["last_end"].min()
        return self.cycles - first_done if isinstance(first_done, int) else 0

    @property
    def imbalance(self) -> float:
        """Busiest SM over the mean of the SMs in use, 1.0 if all were busy equally long."""
        mean, most = self.sms["busy_cycles"].mean(), self.sms["busy_cycles"].max()
        return most / mean if isinstance(mean, float) and isinstance(most, int) and mean else 1.0

    @property
    def even_cycles(self) -> int:
        """Length of the launch if the same SM time were spread evenly over all SMs of the device: a lower bound."""
        return math.ceil(int(self.sms["busy_cycles"].sum()) / max(self.device_sms, 1))


def find_balance(trace: Trace) -> BalanceReport:
    """Summarises when CTAs occupied each SM, and in which wave each CTA ran."""
    ctas = trace.ctas if trace.ctas.height else _ctas_of_tracks(trace)
    ctas = ctas.sort("cta").select("cta", "cluster", "sm", "begin", dur=pl.col("end") - pl.col("begin"))
    ctas = ctas.with_columns(wave=_waves(ctas))
    return BalanceReport(trace.end, trace.header.num_sms, max(trace.header.ctas_per_sm, 1), _sms(ctas, trace.end), ctas)


def _ctas_of_tracks(trace: Trace) -> pl.DataFrame:
    return trace.tracks.group_by("cta").agg(pl.col("cluster", "sm").first(), pl.col("begin").min(), pl.col("end").max())


def _waves(ctas: pl.DataFrame) -> pl.Series:
    """Returns how many places deep each CTA stood: one more than the CTA whose exit let it in."""
    ordered = ctas.with_columns(end=pl.col("begin") + pl.col("dur"))
    waves: dict[int, int] = {}
    done: dict[int, list[tuple[int, int]]] = {}  # per SM: (end, wave) of CTAs, by begin
    for cta, sm, begin, end in ordered.sort("begin", "cta").select("cta", "sm", "begin", "end").iter_rows():
        earlier = [wave for stop, wave in done.setdefault(sm, []) if stop <= begin]
        waves[cta] = 1 + max(earlier, default=-1)
        done[sm].append((end, waves[cta]))
    return pl.Series([waves[cta] for cta in ctas["cta"].to_list()], dtype=pl.Int64)


def _sms(ctas: pl.DataFrame, cycles: int) -> pl.DataFrame:
    """Sums the union of the CTAs' lifetimes per SM."""
    ordered = ctas.sort("sm", "begin", "cta").with_columns(end=pl.col("begin") + pl.col("dur"))
    reach = ordered.with_columns(before=pl.col("end").cum_max().shift(1).over("sm").fill_null(0))
    added = reach.with_columns(added=(pl.col("end") - pl.max_horizontal("begin", "before")).clip(lower_bound=0))
    sums = added.group_by("sm").agg(
        ctas=pl.len().cast(pl.Int64),
        first_begin=pl.col("begin").min(),
        last_end=pl.col("end").max(),
        busy_cycles=pl.col("added").sum(),
    )
    return sums.with_columns(idle_cycles=cycles - pl.col("busy_cycles")).sort("sm")
