"""The life of every SMEM slot of a CTA's rings: filled by TMA, full and waiting, read by the consumers, empty."""

from __future__ import annotations

from typing import Any

import polars as pl

from profiler import Trace

FILLING, HELD, READING = "filling (TMA in flight)", "full, not read yet", "being read"
SlotUse = {
    "barrier": pl.String,
    "slot": pl.Int64,
    "round": pl.Int64,
    "state": pl.String,
    "begin": pl.Int64,
    "dur": pl.Int64,
}


def slot_uses(trace: Trace, cta: int) -> pl.DataFrame:
    """Returns `barrier, slot, round, state, begin, dur`: what each slot was used for, in cycles.

    A round of a slot begins with the first TMA load into it and goes on: *filling* until the full barrier's phase
    completes, *held* until the first consumer's wait for it ends, *being read* until the empty barrier's phase of the
    same round completes. Without an empty barrier reading lasts until the next round's load; the last
    rounds, which nobody needs to release, until the CTA's last MMA.
    """
    rows: list[dict[str, Any]] = []
    for barrier in full_barriers(trace):
        rounds = _rounds(trace, cta, barrier, empty_barrier(trace, cta, barrier))
        for row in rounds.iter_rows(named=True):
            moments = (row["issued"], row["landed"], row["taken"], row["released"])
            for state, begin, end in zip((FILLING, HELD, READING), moments, moments[1:], strict=False):
                if begin is not None and end is not None and end > begin:
                    place = {"barrier": barrier, "slot": row["slot"], "round": row["phase"]}
                    rows.append(place | {"state": state, "begin": begin, "dur": end - begin})
    return pl.DataFrame(rows, schema=SlotUse)


def full_barriers(trace: Trace) -> list[str]:
    """Returns the barriers that TMA loads complete, in the order of the kernel's loads."""
    return list(dict.fromkeys(site.barrier for site in trace.header.sites if site.kind == "tma_load" and site.barrier))


def slot_shares(uses: pl.DataFrame) -> pl.DataFrame:
    """Returns `barrier, slot`, and of each slot's time from its first load to its last release the share per state.

    The columns are `filling, held, reading, empty`; they sum to 1.
    """
    span = uses.group_by("barrier", "slot").agg(
        total=(pl.col("begin") + pl.col("dur")).max() - pl.col("begin").min(),
        **{
            name: pl.col("dur").filter(pl.col("state") == state).sum()
            for name, state in (("filling", FILLING), ("held", HELD), ("reading", READING))
        },
    )
    parts = ("filling", "held", "reading")
    shares = span.with_columns(pl.col(name) / pl.col("total") for name in parts)
    return shares.with_columns(empty=1 - pl.sum_horizontal(parts)).drop("total").sort("barrier", "slot")


def empty_barrier(trace: Trace, cta: int, full: str) -> str:
    """Returns the barrier that a CTA's producer waits on for a free slot of `full`, "" if there is none.

    Several rings may have as many slots: of a load's ring is the barrier that its warpgroup waited on last before it.
    A CTA with less work than slots does not wait; then the first one that does is asked.
    """
    slots = {barrier.name: barrier.num_slots for barrier in trace.header.barriers}
    rings = [name for name in slots if slots[name] == slots.get(full) and name not in full_barriers(trace)]
    waits = trace.waits.filter(pl.col("barrier").is_in(rings) & pl.col("role").str.contains("memory"))
    if waits.is_empty():
        return ""
    own = waits.filter(pl.col("cta") == cta)
    waits = own if own.height else waits.filter(pl.col("cta") == waits["cta"][0])
    tracks = waits["track"].unique().implode()
    sites = [site.id for site in trace.header.sites if site.kind == "tma_load" and site.barrier == full]
    loads = trace.spans.filter(pl.col("track").is_in(tracks) & pl.col("site").is_in(sites)).select("track", "begin")
    before = loads.sort("begin").join_asof(
        waits.select("track", "begin", "barrier").sort("begin"), on="begin", by="track", check_sortedness=False
    )
    before = before.drop_nulls("barrier")
    counts = before.group_by("barrier").len().sort("len", "barrier", descending=[True, False])
    return counts["barrier"][0] if counts.height else ""


def _rounds(trace: Trace, cta: int, full: str, empty: str) -> pl.DataFrame:
    """Returns a row per round: `slot, phase` and the moments `issued, landed, taken, released` (null if unknown)."""
    own = pl.col("cta") == cta
    completed = trace.arrivals.filter(own & pl.col("completes")).select("barrier", "slot", "phase", "time")
    landed = completed.filter(pl.col("barrier") == full).drop("barrier").rename({"time": "landed"})
    released = completed.filter(pl.col("barrier") == empty).drop("barrier").rename({"time": "released"})
    taken = (
        trace.waits.filter(own & (pl.col("barrier") == full))
        .group_by("slot", "phase")
        .agg(taken=(pl.col("begin") + pl.col("dur")).min())
    )
    sites = [site.id for site in trace.header.sites if site.kind == "tma_load" and site.barrier == full]
    loads = trace.async_spans.filter(own & (pl.col("unit") == "tma_load") & pl.col("site").is_in(sites))
    # A load belongs to the first phase of its slot that completes no earlier than the load lands.
    issued = (
        loads.select("slot", "begin", landing=pl.col("begin") + pl.col("dur"))
        .sort("landing")
        .join_asof(
            landed.sort("landed"),
            left_on="landing",
            right_on="landed",
            by="slot",
            strategy="forward",
            check_sortedness=False,
        )
        .group_by("slot", "phase")
        .agg(issued=pl.col("begin").min())
    )
    rounds = landed.join(issued, on=["slot", "phase"], how="left").join(taken, on=["slot", "phase"], how="left")
    rounds = rounds.join(released, on=["slot", "phase"], how="left").sort("slot", "phase")
    next_load = pl.col("issued").shift(-1).over("slot")
    return rounds.with_columns(
        taken=pl.max_horizontal("taken", "landed"),
        released=pl.coalesce("released", next_load, pl.lit(_last_mma(trace, cta))),
    )


def _last_mma(trace: Trace, cta: int) -> int:
    """Returns when the CTA's last MMA ended, or if none is known, the CTA itself."""
    mma = trace.async_spans.filter((pl.col("cta") == cta) & (pl.col("unit") == "tensor_core"))
    last = (mma["begin"] + mma["dur"]).max() if mma.height else trace.ctas.filter(pl.col("cta") == cta)["end"].max()
    return last if isinstance(last, int) else trace.end
