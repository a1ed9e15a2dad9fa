"""The ring of `support.captures` with its defaults: two slots, six iterations. Time 0 is SM clock 1000."""

from __future__ import annotations

import polars as pl
import pytest

from dashboard.store import LoadedLaunch
from dashboard.timeline.slots import (
    FILLING,
    HELD,
    READING,
    empty_barrier,
    full_barriers,
    slot_shares,
    slot_uses,
)


def test_first_round_of_each_slot(ring: LoadedLaunch) -> None:
    assert full_barriers(ring.trace) == ["full"]
    uses = slot_uses(ring.trace, 0)
    first = uses.filter(pl.col("round") == 0).select("slot", "state", "begin", "dur").rows()
    # Load 0: 0 to 500; WG0 goes on at 504; WG1's arrival at 728 releases it. Load 1 begins and lands 20 later, WG0 is
    # done with its first MMA at 628 and takes it at 632 (a wait that need not block still takes 4).
    assert first[:3] == [(0, FILLING, 0, 500), (0, HELD, 500, 4), (0, READING, 504, 224)]
    assert first[3:5] == [(1, FILLING, 20, 500), (1, HELD, 520, 112)]


def test_uses_of_a_slot_do_not_overlap(matmul: LoadedLaunch) -> None:
    uses = slot_uses(matmul.trace, 0)
    assert uses["slot"].n_unique() == 3
    for (_, _), rows in uses.sort("begin").group_by("barrier", "slot", maintain_order=True):
        assert ((rows["begin"] + rows["dur"])[:-1] <= rows["begin"][1:]).all()
    # 512 / 64 steps of k: eight rounds over three slots, each filled once.
    assert uses.filter(pl.col("state") == FILLING).height == 8


def test_each_of_several_rings_is_released_by_its_own_barrier(attention: LoadedLaunch) -> None:
    # k and v have rings of two slots each, released by k_empty and v_empty; q is loaded once.
    trace = attention.trace
    busiest = int(trace.waits.filter(pl.col("barrier") == "v_empty")["cta"].max())  # pyright: ignore[reportArgumentType]
    assert [empty_barrier(trace, busiest, full) for full in full_barriers(trace)] == ["", "k_empty", "v_empty"]
    uses = slot_uses(trace, busiest).filter((pl.col("barrier") == "v_full") & (pl.col("state") == READING))
    released = trace.arrivals.filter(
        (pl.col("cta") == busiest) & (pl.col("barrier") == "v_empty") & pl.col("completes")
    ).select("slot", pl.col("phase").alias("round"), "time")
    both = uses.join(released, on=["slot", "round"])
    assert both.height > 2
    assert (both["begin"] + both["dur"]).to_list() == both["time"].to_list()


def test_shares_of_a_slot_sum_to_one(matmul: LoadedLaunch) -> None:
    shares = slot_shares(slot_uses(matmul.trace, 0))
    totals = shares.select(pl.sum_horizontal("filling", "held", "reading", "empty")).to_series().to_list()
    assert totals == pytest.approx([1.0] * 3)
    assert (shares["empty"] >= 0).all()
