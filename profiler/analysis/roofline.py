"""What could the launch have taken at least, given what it computed and moved?"""

from __future__ import annotations

import dataclasses
import math

import polars as pl

from mgpu.sites import SiteKind
from profiler.analysis.utilisation import tensor_core_utilisation
from profiler.analysis.window import Window, known_window
from profiler.event_tables import SiteColumns, rows_of_kind
from profiler.trace import Trace


@dataclasses.dataclass(frozen=True)
class RooflineReport:
    """Work of a launch and the cycles that the device's peak rates need for it.

    Attributes:
      window: the analysed stretch.
      flops: of MMAs.
      load_bytes, store_bytes: what TMA moved into and out of SMEM. A multicast load counts where it lands.
      ceilings: `ceiling, work, unit, rate` (per cycle), `least_cycles, share` (of the launch): "tensor core" and "TMA"
        are those of the SM with most work, "tensor core, all SMs" and "HBM" of the whole device. HBM's is an upper
        bound of the need: bytes that L2 served did not come from there. Most binding first.
      cycles: length of the analysed stretch.
    """

    window: Window
    flops: int
    load_bytes: int
    store_bytes: int
    ceilings: pl.DataFrame
    cycles: int

    @property
    def intensity(self) -> float:
        """FLOP per byte that TMA moved; 0.0 if it moved none."""
        moved = self.load_bytes + self.store_bytes
        return self.flops / moved if moved else 0.0

    @property
    def bound(self) -> str:
        """The ceiling that allows least, "" if the capture tells no rates."""
        return str(self.ceilings["ceiling"][0]) if self.ceilings.height else ""

    @property
    def share_of_bound(self) -> float:
        """How near the launch came to its ceiling, 0 to 1."""
        return float(self.ceilings["share"][0]) if self.ceilings.height else 0.0

    def share(self, ceiling: str) -> float:
        """How near the launch came to one ceiling, 0 to 1; 0.0 if it is not known."""
        return float(self.ceilings.filter(pl.col("ceiling") == ceiling)["share"].sum())


def find_roofline(trace: Trace) -> RooflineReport:
    """Places the launch under the roofs of its device."""
    use = tensor_core_utilisation(trace)
    loads, stores = (_moved(trace, kind, unit) for kind, unit in _COPIES)
    load_bytes, store_bytes = (int(frame["bytes"].sum()) for frame in (loads, stores))
    mma = _moved(trace, SiteKind.MMA_ISSUE, "tensor_core", "flops")
    peaks, sms = trace.header.peaks, trace.header.num_sms
    copies = pl.concat([loads, stores]).group_by("sm").agg(pl.col("bytes").sum())
    rows = [
        ("tensor core", _most(mma, "flops"), "FLOP", use.peak_flops_per_cycle),
        ("tensor core, all SMs", int(mma["flops"].sum()), "FLOP", use.peak_flops_per_cycle * sms),
        ("TMA", _most(copies, "bytes"), "bytes", peaks.get("tma_bytes", 0.0)),
        ("HBM", _hbm_bytes(trace), "bytes", peaks.get("hbm_bytes", 0.0) * sms),
    ]
    cycles = use.window.end
    table = [
        (name, work, unit, rate, math.ceil(work / rate), work / rate / max(cycles, 1))
        for name, work, unit, rate in rows
        if rate and work
    ]
    schema = {
        "ceiling": pl.String(), "work": pl.Int64(), "unit": pl.String(), "rate": pl.Float64(),
        "least_cycles": pl.Int64(), "share": pl.Float64(),
    }  # fmt: skip
    ceilings = pl.DataFrame(table, schema=schema, orient="row").sort(
        "least_cycles", "ceiling", descending=[True, False]
    )
    return RooflineReport(known_window(trace), int(mma["flops"].sum()), load_bytes, store_bytes, ceilings, cycles)


def _hbm_bytes(trace: Trace) -> int:
    """Bytes between HBM and L2. What TMA moves is no substitute: most of it comes from L2 when tiles are shared."""
    traffic = trace.header.traffic_bytes
    return traffic.get("hbm_read", 0) + traffic.get("hbm_write", 0)


_COPIES = ((SiteKind.TMA_LOAD, "tma_load"), (SiteKind.TMA_STORE, "tma_store"))


def _moved(trace: Trace, kind: SiteKind, unit: str, what: str = "bytes") -> pl.DataFrame:
    """Returns `sm` and the work of a unit: observed, or what the recorded sites say that they start."""
    observed = trace.async_spans.filter((pl.col("unit") == unit) & (pl.col("provenance") != "inferred"))
    if observed.height:
        return observed.group_by("sm").agg(pl.col(what).sum())
    work = {site.id: site.flops if what == "flops" else site.size_bytes for site in trace.header.sites}
    spans = rows_of_kind(trace.spans, SiteColumns.of(trace.header), kind)
    # With a track per warp all four record the same operation; the first one counts.
    first = trace.tracks.filter(pl.col("warp") <= 0).select("track", "sm")
    amount = pl.col("site").replace_strict(work, default=0, return_dtype=pl.Int64).alias(what)
    return spans.join(first, on="track").select("sm", amount).group_by("sm").agg(pl.col(what).sum())


def _most(frame: pl.DataFrame, column: str) -> int:
    value = frame[column].max()
    return value if isinstance(value, int) else 0
