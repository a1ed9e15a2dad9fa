"""Barriers that are allocated more than once in a launch, such as those of a pipeline inside a loop over tiles.

Each allocation counts its phases from 0. To keep (CTA, barrier, slot, phase) unique, phases of a later allocation go on
where those of the one before it stopped. An allocation shows in the arrivals: a slot's phase is one that is complete.
"""

from __future__ import annotations

import polars as pl

from profiler.grouping import stable_order, with_shared_key

SLOT_KEYS = ("cta", "barrier", "slot")


def find_reallocations(arrivals: pl.DataFrame) -> pl.DataFrame:
    """Returns the allocations of each barrier slot after its first, by time.

    Args:
      arrivals: `cta, barrier, slot, phase, completes, time`, in time order, phases as each allocation counts them.

    Returns:
      `cta, barrier, slot`, `time` (first arrival), `allocation` (from 1), `first_phase` (phases completed before).
    """
    (arrivals,) = with_shared_key([arrivals], SLOT_KEYS)
    if not _any_begins_allocation(arrivals):
        return arrivals.select(*SLOT_KEYS, "time", allocation=pl.lit(0), first_phase=pl.lit(0)).clear()
    completed = pl.col("completes").cast(pl.Int64).cum_sum().over(SLOT_KEYS) - pl.col("completes")
    firsts = arrivals.with_columns(began=_begins_allocation(), first_phase=completed).filter("began")
    return firsts.select(
        *SLOT_KEYS,
        "time",
        (pl.int_range(pl.len(), dtype=pl.Int64).over(SLOT_KEYS) + 1).alias("allocation"),
        "first_phase",
    )


def _any_begins_allocation(arrivals: pl.DataFrame) -> bool:
    """True if there is a second allocation of a slot (`key`); most launches have none, and are done with that."""
    key, phase, completes = (arrivals[name].to_numpy() for name in ("key", "phase", "completes"))
    order = stable_order(key)
    key, phase, completes = key[order], phase[order], completes[order]
    return bool(((key[1:] == key[:-1]) & (phase[1:] < phase[:-1] + completes[:-1])).any())


def _begins_allocation() -> pl.Expr:
    """True for an arrival whose phase is less than the arrivals before it on its slot led to."""
    reached = (pl.col("phase") + pl.col("completes").cast(pl.Int64)).shift().over(SLOT_KEYS)
    return (pl.col("phase") < reached).fill_null(False)


def add_allocation(rows: pl.DataFrame, reallocations: pl.DataFrame, time: str) -> pl.DataFrame:
    """Adds `allocation` and `first_phase` of the allocation that was in use at each row's `time`, in the same order."""
    found = reallocations.rename({"time": "allocated"}).sort("allocated")
    return (
        rows.with_row_index("row")
        .sort(time)
        .join_asof(found, left_on=time, right_on="allocated", by=list(SLOT_KEYS), check_sortedness=False)
        .sort("row")
        .drop("row", "allocated")
        .with_columns(pl.col("allocation", "first_phase").fill_null(0))
    )


def continue_phases(arrivals: pl.DataFrame, reallocations: pl.DataFrame) -> pl.DataFrame:
    """Renumbers the phases of arrivals so that they go on over reallocations."""
    if reallocations.is_empty():
        return arrivals
    # Counted over rows, not by time: an arrival may come in the same cycle as the first of the next allocation.
    arrivals = arrivals.with_columns(_begins_allocation().cast(pl.Int64).alias("allocation"))
    arrivals = arrivals.with_columns(pl.col("allocation").cum_sum().over(SLOT_KEYS))
    joined = arrivals.join(reallocations.drop("time"), on=[*SLOT_KEYS, "allocation"], how="left", maintain_order="left")
    phase = pl.col("phase") + pl.col("first_phase").fill_null(0)
    return joined.with_columns(phase).drop("allocation", "first_phase")


def number_waits(waits: pl.DataFrame, reallocations: pl.DataFrame) -> pl.DataFrame:
    """Gives waits the phase that they waited for: the n-th wait of a track on a slot, since its allocation, phase n."""
    if reallocations.is_empty():
        return waits
    waits = add_allocation(waits.with_columns(end=pl.col("begin") + pl.col("dur")), reallocations, "end")
    ordinal = pl.int_range(pl.len(), dtype=pl.Int64).over("track", "barrier", "slot", "allocation")
    return waits.with_columns(phase=ordinal + pl.col("first_phase")).drop("allocation", "first_phase", "end")
