"""What to change first: a short ranked list in plain words, each item tied to numbers of the other reports."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator

import polars as pl

from mgpu.devices import list_devices, load_device
from mgpu.sites import SiteKind
from mgpu.units import format_bytes
from profiler.analysis.balance import BalanceReport
from profiler.analysis.barrier_waits import BarrierWaitReport
from profiler.analysis.bubbles import BubbleReport
from profiler.analysis.categories import CategoryReport
from profiler.analysis.critical_path import QUEUEING, RECORDING, UNRECORDED, CriticalPathReport
from profiler.analysis.event_graph import Step
from profiler.analysis.rings import ONE_MORE_EACH, Ring
from profiler.analysis.roofline import RooflineReport
from profiler.analysis.scenarios import EVEN_CLUSTERS
from profiler.analysis.what_if import WhatIfReport
from profiler.trace import Trace

MIN_GAIN = 0.01
"""Parts of the launch below this are not worth an author's time, and within the error of a replay."""
MAX_ITEMS = 6
# A rate of which less than this part of the critical path consists does not bound the launch.
_BINDING_SHARE = 0.1
_NOT_CODE = (RECORDING, QUEUEING, str(SiteKind.UNRECORDED))


@dataclasses.dataclass(frozen=True)
class Advice:
    """One thing to try.

    Attributes:
      remedy: what to do.
      evidence: the numbers that speak for it.
      gain_cycles: by how much the launch would get shorter.
      gain_share: the same as a part of the launch, 0 to 1.
      basis: where the gain comes from: "replay" (an estimate on the event graph) or "at most" (a bound).
    """

    remedy: str
    evidence: str
    gain_cycles: int
    gain_share: float
    basis: str

    @property
    def weight(self) -> float:
        """What ranks it: the gain, and half of a gain that is only a bound, for few bounds are reached."""
        return self.gain_cycles if self.basis == "replay" else self.gain_cycles / 2

    @property
    def gain_text(self) -> str:
        """The gain in words."""
        how = "by replay" if self.basis == "replay" else "at most"
        return f"{self.gain_share:.0%} ({self.gain_cycles:,} cycles) {how}"


@dataclasses.dataclass(frozen=True)
class Findings:
    """The reports that advice rests on, all of one trace."""

    trace: Trace
    bubbles: BubbleReport
    waits: BarrierWaitReport
    categories: CategoryReport
    critical_path: CriticalPathReport
    what_if: WhatIfReport
    balance: BalanceReport
    roofline: RooflineReport
    rings: tuple[Ring, ...]


@dataclasses.dataclass(frozen=True)
class AdviceReport:
    """Things to try, largest gain first, and what the launch is limited by as it is."""

    items: tuple[Advice, ...]
    limit: str


def give_advice(findings: Findings) -> AdviceReport:
    """Turns findings into at most six things to try that gain at least 1% each; bounds rank with half their gain."""
    rules = (_stages, _release, _spread, _queueing, _latency, _own_work, _skew, _cta_start, _stores, _mma)
    items = [advice for rule in rules for advice in rule(findings) if advice.gain_share >= MIN_GAIN]
    ranked = sorted(items, key=lambda item: (-item.weight, item.remedy))
    return AdviceReport(tuple(ranked[:MAX_ITEMS]), _limit(findings))


def _limit(findings: Findings) -> str:
    """Says in one sentence what the critical path mostly consists of."""
    parts = findings.critical_path.parts
    if parts.is_empty():
        return "nothing is known of the critical path"
    groups = parts.group_by("kind").agg(pl.col("cycles", "share").sum(), pl.col("barrier", "source").first())
    top = groups.sort("cycles", "kind", descending=[True, False]).row(0, named=True)
    place = f" at {top['source']}" if top["source"] else ""
    return f"{top['share']:.0%} of the critical path is {top['kind']}{place}"


def _replayed(findings: Findings, scenario: str, remedy: str, evidence: str) -> Iterator[Advice]:
    """Yields the advice whose gain is that of the scenario whose name begins so."""
    rows = findings.what_if.scenarios.filter(pl.col("scenario").str.starts_with(scenario))
    for row in rows.head(1).iter_rows(named=True):
        gain = int(row["gain_cycles"])
        basis = "at most" if row["is_bound"] else "replay"
        yield Advice(remedy, evidence, gain, gain / max(findings.what_if.cycles, 1), basis)


def _stages(findings: Findings) -> Iterator[Advice]:
    """One more stage in the ring that gains most by it, or in every ring where that gains clearly more."""
    trace, rings = findings.trace, findings.rings
    choices = [
        _replayed(
            findings,
            f"one more stage in {ring.name} ({ring.one_more})",
            f"one more stage in the ring {ring.name} ({ring.one_more}{_smem_note(trace, ring.stage_bytes)})",
            f"{_wait_share(findings, ring.name)}; loads wait for a free slot on {ring.empty}",
        )
        for ring in rings
    ]
    each = ", ".join(f"{ring.name} {ring.one_more}" for ring in rings)
    room = sum(ring.stage_bytes for ring in rings) if all(ring.stage_bytes for ring in rings) else 0
    together = _replayed(
        findings,
        ONE_MORE_EACH,
        f"one more stage in every ring ({each}{_smem_note(trace, room)})",
        "; ".join(_wait_share(findings, ring.empty) for ring in rings),
    )
    single = max(itertools.chain(*choices), key=lambda advice: advice.gain_cycles, default=None)
    both = next(together, None)
    if both and (single is None or both.gain_share > single.gain_share + MIN_GAIN):
        yield both
    elif single:
        yield single


def _release(findings: Findings) -> Iterator[Advice]:
    for ring in findings.rings:
        scenario = f"slots of {ring.empty} released at once"
        rows = findings.what_if.scenarios.filter(pl.col("scenario") == scenario)
        evidence = f"{', '.join(rows['caveat'])}; {_wait_share(findings, ring.empty)}"
        remedy = f"arrive on {ring.empty} as soon as the MMA that reads the slot is done, before other work"
        yield from _replayed(findings, scenario, remedy, evidence)


def _smem_note(trace: Trace, more_bytes: int) -> str:
    """Says what SMEM a change takes and whether it fits; nothing if the bytes are not known (0)."""
    header = trace.header
    if not more_bytes:
        return ""
    note = f", +{format_bytes(more_bytes)} SMEM"
    if header.device not in list_devices():
        return note
    room = load_device(header.device).smem_per_cta_bytes - header.smem_bytes - more_bytes
    if room < 0:
        return f"{note}, does not fit: make tiles smaller"
    return f"{note}, fits" if header.profile_smem_bytes <= room else f"{note}, fits without the event buffer"


def _wait_share(findings: Findings, barrier: str) -> str:
    """Says what part of its waiters' time a barrier takes."""
    role, share = findings.categories.waiting_share(barrier)
    return (
        f"waits on {barrier} are {share:.0%} of the {role} warpgroups' time" if role else f"nobody waits on {barrier}"
    )


def _spread(findings: Findings) -> Iterator[Advice]:
    balance = findings.balance
    gain = balance.cycles - balance.even_cycles
    if balance.unused_sms:
        evidence = f"{balance.ctas.height} CTAs use {balance.sms.height} of {balance.device_sms} SMs"
        remedy = "give every SM work: smaller tiles, or split K over CTAs (split-K, stream-K)"
    else:
        evidence = (
            f"{balance.waves:.2f} waves; SMs idle {1 - balance.occupied_share:.0%} of the launch, the last "
            f"{balance.tail_cycles:,} cycles are a tail"
        )
        remedy = "even out the last wave: tiles that divide the work, or persistent CTAs (stream-K)"
    yield Advice(remedy, evidence, gain, gain / max(balance.cycles, 1), "at most")


def _queueing(findings: Findings) -> Iterator[Advice]:
    share = sum(findings.critical_path.share(kind) for kind in (QUEUEING, Step.LANDING_ORDER, Step.MEMORY))
    evidence = f"{share:.0%} of the critical path is loads that queue for TMA, L2 or HBM"
    if hbm := findings.roofline.share("HBM"):
        evidence += f"; HBM moved {hbm:.0%} of what it can"
    remedy = "move fewer bytes: larger tiles, multicast in a cluster, an L2-friendly tile order"
    yield from _replayed(findings, "TMA loads never queue", remedy, evidence)


def _latency(findings: Findings) -> Iterator[Advice]:
    share = findings.critical_path.share(Step.TMA_LOAD)
    evidence = f"{share:.0%} of the critical path is the latency of loads that nothing covers"
    remedy = "issue loads earlier: a deeper ring, before set-up work, or the next tile's during the epilogue"
    yield from _replayed(findings, "TMA loads without latency", remedy, evidence)


def _own_work(findings: Findings) -> Iterator[Advice]:
    path = findings.critical_path
    for role in findings.trace.tracks["role"].unique(maintain_order=True).to_list():
        own = path.parts.filter((pl.col("role") == role) & ~pl.col("kind").is_in([*map(str, Step), *_NOT_CODE]))
        if own.is_empty():
            continue
        lines = ", ".join(
            f"{name} {cycles:,} cycles" for name, cycles in _by_line(own).head(3).select("line", "cycles").iter_rows()
        )
        evidence = f"{own['share'].sum():.0%} of the critical path is code of the {role} warpgroups: {lines}"
        where = " between their loads" if role == "memory" else ""
        where = ", or run it under another warpgroup's MMAs" if "compute" in role else where
        remedy = f"take work off the {role} warpgroups{where}"
        yield from _replayed(findings, f"{role} warpgroups work twice as fast", remedy, evidence)


def _by_line(parts: pl.DataFrame) -> pl.DataFrame:
    after = pl.when(pl.col("kind") == UNRECORDED).then(pl.lit(" after")).otherwise(pl.lit(""))
    line = pl.format("{}{} {}", "kind", after, "source")
    line = pl.when(pl.col("source") == "").then(pl.col("kind")).otherwise(line)
    return parts.group_by(line=line).agg(pl.col("cycles").sum()).sort("cycles", "line", descending=[True, False])


def _skew(findings: Findings) -> Iterator[Advice]:
    rows = findings.what_if.scenarios.filter(pl.col("scenario") == EVEN_CLUSTERS)
    remedy = "give the CTAs of a cluster equal work: they wait for the slowest at every shared barrier and multicast"
    yield from _replayed(findings, EVEN_CLUSTERS, remedy, ", ".join(rows["caveat"]))


def _cta_start(findings: Findings) -> Iterator[Advice]:
    path = findings.critical_path
    share = sum(path.share(step) for step in (Step.CTA_START, Step.CTA_SWITCH, Step.LAUNCH))
    evidence = f"{share:.0%} of the critical path is launching CTAs; {findings.balance.waves:.2f} waves"
    remedy = "make CTAs persistent, or put two on an SM, so that one's start runs under the other's MMAs"
    if findings.balance.waves > 1:
        yield from _replayed(findings, "CTAs start at once", remedy, evidence)


def _stores(findings: Findings) -> Iterator[Advice]:
    path = findings.critical_path
    share = path.share("store_wait") + path.share(Step.TMA_STORE)
    cycles = round(share * path.end)
    evidence = f"{share:.0%} of the critical path is stores and waits for them"
    remedy = "double-buffer the output and wait for stores only before their buffer is reused"
    yield Advice(remedy, evidence, cycles, share, "at most")


def _mma(findings: Findings) -> Iterator[Advice]:
    share = findings.critical_path.share(Step.MMA_QUEUE)
    if share < _BINDING_SHARE:
        return
    evidence = f"{share:.0%} of the critical path is the tensor core's own rate"
    remedy = "a smaller dtype, or wider MMAs where N is below 256: nothing else helps a loop at the tensor core's rate"
    yield from _replayed(findings, "MMAs take 10% less time", remedy, evidence)
