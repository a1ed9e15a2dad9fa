"""Tables of a Trace as batches of track events: slices, asynchronous work, instants, arrows and counters."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from profiler.event_tables import SiteColumns
from profiler.export.interning import Interner
from profiler.export.layout import Layout
from profiler.export.track_events import EventBatch, EventType, Look
from profiler.grouping import count_before, distinct_rows, with_shared_key
from profiler.trace import Trace

_UNIT_CATEGORY = {"tma_load": "tma", "tma_store": "tma", "tensor_core": "mma"}


@dataclasses.dataclass(frozen=True)
class Arrows:
    """Arrows from an arrival to the wait that it released, one per wait that really blocked.

    Attributes:
      edges: table `flow` (id, from 1), `source_event`, `is_unit`, `source`, `time` (end of the wait), `uuid` (track of
        the wait), `slot`; both ends of each are in the file.
    """

    edges: pl.DataFrame

    def starting_at(self, rows: np.ndarray, *, is_unit: bool) -> np.ndarray | None:
        """Returns the ids of the arrows that start at rows of the async span (`is_unit`) or instant table.

        Args:
          rows: int64[n], ascending row numbers.

        Returns:
          uint64[n, k], 0 where a row has fewer than k arrows; None if no row has any.
        """
        edges = self.edges.filter(pl.col("is_unit") == is_unit)
        if not edges.height:
            return None
        source = edges["source_event"].to_numpy()
        column = count_before(source)
        flows = np.zeros((len(rows), int(column.max()) + 1), np.uint64)
        flows[np.searchsorted(rows, source), column] = edges["flow"].to_numpy()
        return flows


def find_arrows(trace: Trace, async_rows: np.ndarray, instant_rows: np.ndarray, layout: Layout) -> Arrows:
    """Returns the arrows between the exported rows of the async span and instant tables and exported waits."""
    sources = trace.arrivals.select(
        "arrival",
        "source",
        "source_event",
        pl.col("time").alias("arrived"),
        (~pl.col("source").str.starts_with("WG")).alias("is_unit"),
    )
    waits = trace.waits.select("arrival", "track", "slot", "blocked", time=pl.col("begin") + pl.col("dur"))
    edges = (
        waits.with_columns(pl.Series("uuid", layout.tracks[waits["track"].to_numpy()], dtype=pl.Int64))
        .filter(pl.col("blocked"), pl.col("uuid") > 0)
        .join(sources, on="arrival", maintain_order="left")
    )
    event = edges["source_event"].to_numpy()
    in_file = np.where(edges["is_unit"].to_numpy(), np.isin(event, async_rows), np.isin(event, instant_rows))
    # Perfetto draws an arrow only forward in time.
    edges = edges.filter(pl.Series(in_file), pl.col("arrived") <= pl.col("time"))
    return Arrows(edges.with_columns(flow=pl.int_range(1, pl.len() + 1)))


def slice_batch(trace: Trace, layout: Layout, sites: SiteColumns, interner: Interner) -> EventBatch:
    """Returns begin and end of every span of the exported tracks, ordered so that equal times nest correctly."""
    released, releasers = _released_by(trace)
    exported = layout.tracks[trace.spans["track"].to_numpy()] > 0
    spans, released = trace.spans.filter(pl.Series(exported)), released[exported]
    begin_at, end_at = nesting_order(
        np.searchsorted(spans["span"].to_numpy(), spans["parent"].to_numpy()), spans["depth"].to_numpy()
    )
    site, slot, closed = (spans[name].to_numpy() for name in ("site", "slot", "closed"))
    first, number = distinct_rows([site, slot, closed, released])
    site, slot, closed = site[first], slot[first], closed[first]
    looks = Look(
        type=_and_end(np.full(len(first), EventType.SLICE_BEGIN), EventType.SLICE_END),
        name=_and_end(interner.names.column(sites.name.gather(site))),
        category=_and_end(interner.categories.column(sites.category.gather(site))),
        location=_and_end(interner.locations(site)),
        correlation=_and_end(slot, -1),
        int_args={"slot": _and_end(slot, -1), "unclosed": _and_end(np.where(closed, -1, 1), -1)},
        string_args={
            "barrier": _and_end(interner.arg_strings.column(sites.barrier.gather(site))),
            "released by": _and_end(interner.arg_strings.column(releasers.gather(released[first]))),
        },
    )
    begin = spans["begin"].to_numpy()

    def events(at_begin: np.ndarray, at_end: np.ndarray | int) -> np.ndarray:
        column = np.empty(2 * len(begin), np.int64)
        column[begin_at] = at_begin
        column[end_at] = at_end
        return column

    uuid = layout.tracks[spans["track"].to_numpy()]
    return EventBatch(
        time=events(begin, begin + spans["dur"].to_numpy()),
        track=events(uuid, uuid),
        looks=looks,
        look=events(number, len(first)),
        int_args={"phase": events(spans["phase"].to_numpy(), -1)},
    )


def _released_by(trace: Trace) -> tuple[np.ndarray, pl.Series]:
    """Returns for each span what released it, as a row of a column of names; the first is "", for no blocked wait."""
    blocked = trace.waits.filter("blocked")
    names = pl.concat([pl.Series([""], dtype=pl.String), blocked["released_by"].unique().sort()]).unique(
        maintain_order=True
    )
    released = np.zeros(trace.spans.height, np.int64)
    released[blocked["span"].to_numpy()] = blocked["released_by"].cast(pl.Enum(names)).to_physical().to_numpy()
    return released, names


def _and_end(values: np.ndarray, otherwise: int = 0) -> np.ndarray:
    """Adds the look of an event that only ends something."""
    return np.append(values, otherwise)


def nesting_order(parent: np.ndarray, depth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns the positions of all begins and all ends if nested spans are written depth first.

    Sorting by time alone cannot tell whether, at one moment, a span ends before or after another begins.

    Args:
      parent: int64[n], row of the enclosing span; any value where `depth` is 0.
      depth: int32[n], number of enclosing spans. Rows are ordered by begin, outer spans first.
    """
    num = len(depth)
    size = np.ones(num, np.int64)  # spans in the subtree of each, itself included
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero(depth == level)
        np.add.at(size, parent[rows], size[rows])
    row = np.arange(num)
    # Before a span begins, all earlier rows have begun, and all of them but its ancestors have ended.
    return 2 * row - depth, 2 * (row + size) - depth - 1


def lost_batch(trace: Trace, layout: Layout, interner: Interner) -> EventBatch:
    """Returns a slice `not recorded` on each exported track whose buffer was full, from its last event to its end."""
    tracks = trace.tracks.filter(pl.Series(layout.tracks > 0), pl.col("dropped") > 0)
    num = tracks.height
    uuid = layout.tracks[tracks["track"].to_numpy()]
    dropped, ends = tracks["dropped"].to_numpy(), np.full(num, -1)
    looks = Look(
        type=np.array([EventType.SLICE_BEGIN, EventType.SLICE_END]),
        name=np.array([interner.names.number("not recorded"), 0]),
        category=np.array([interner.categories.number("unknown"), 0]),
        int_args={"sufficient profile_space": np.array([trace.sufficient_profile_space, -1])},
    )
    return EventBatch(
        time=np.stack([tracks["last"].to_numpy(), tracks["end"].to_numpy()], 1).reshape(-1),
        track=np.repeat(uuid, 2),
        looks=looks,
        look=np.tile([0, 1], num),
        int_args={"events dropped": np.stack([dropped, ends], 1).reshape(-1)},
    )


def async_rows(trace: Trace, layout: Layout) -> pl.DataFrame:
    """Returns the async spans of exported SMs with the `uuid` of their lane, in the order of the table."""
    return trace.async_spans.join(layout.lanes, on=["unit", "sm", "lane"], maintain_order="left")


def async_batch(rows: pl.DataFrame, arrows: Arrows, interner: Interner) -> EventBatch:
    """Returns begin and end of asynchronous work; arrows to the waits that it released start at the begin."""
    num = rows.height
    # Lane by lane, an end is written before the next begin at the same time.
    rows = rows.with_columns(row=pl.int_range(pl.len())).sort("uuid", "begin", maintain_order=True)
    order = rows["row"].to_numpy()
    begin = rows["begin"].to_numpy()
    (rows,) = with_shared_key([rows], ["unit", "site", "name", "slot", "warpgroup", "bytes", "flops", "provenance"])
    first, number = distinct_rows([rows["key"].to_numpy()])
    kinds = rows[first]
    site, slot = kinds["site"].to_numpy(), kinds["slot"].to_numpy()
    category = kinds["unit"].replace_strict(_UNIT_CATEGORY, default="", return_dtype=pl.String)
    amounts = {name: kinds[name].to_numpy() for name in ("bytes", "flops")}
    looks = Look(
        type=_and_end(np.full(len(first), EventType.SLICE_BEGIN), EventType.SLICE_END),
        name=_and_end(interner.names.column(kinds["name"])),
        category=_and_end(interner.categories.column(category)),
        location=_and_end(interner.locations(site)),
        correlation=_and_end(slot, -1),
        int_args={
            "issued by warpgroup": _and_end(kinds["warpgroup"].to_numpy(), -1),
            "slot": _and_end(slot, -1),
            **{name: _and_end(np.where(amount > 0, amount, -1), -1) for name, amount in amounts.items()},
            "inferred": _and_end(np.where((kinds["provenance"] == "inferred").to_numpy(), 1, -1), -1),
        },
    )

    def events(at_begin: np.ndarray, at_end: np.ndarray | int) -> np.ndarray:
        return np.stack([at_begin, np.broadcast_to(at_end, num)], 1).reshape(-1)

    flows = arrows.starting_at(np.sort(rows["async_span"].to_numpy()), is_unit=True)
    if flows is not None:
        flows = flows[order]
        flows = np.stack([flows, np.zeros_like(flows)], 1).reshape(2 * num, -1)
    return EventBatch(
        time=events(begin, begin + rows["dur"].to_numpy()),
        track=np.repeat(rows["uuid"].to_numpy(), 2),
        looks=looks,
        look=events(number, len(first)),
        flows=flows,
        int_args={"cta": events(rows["cta"].to_numpy(), -1)},
    )


def instant_rows(trace: Trace, layout: Layout) -> pl.DataFrame:
    """Returns the instants of exported tracks."""
    return trace.instants.filter(pl.Series(layout.tracks[trace.instants["track"].to_numpy()] > 0))


def instant_batch(
    rows: pl.DataFrame, layout: Layout, arrows: Arrows, sites: SiteColumns, interner: Interner
) -> EventBatch:
    """Returns the recorded instants; arrows to the waits that they released start here."""
    first, number = distinct_rows([rows[name].to_numpy() for name in ("site", "slot")])
    site, slot = rows["site"].to_numpy()[first], rows["slot"].to_numpy()[first]
    looks = Look(
        type=np.full(len(first), EventType.INSTANT),
        name=interner.names.column(sites.name.gather(site)),
        category=interner.categories.column(sites.kind.gather(site)),
        location=interner.locations(site),
        correlation=slot,
        int_args={"slot": slot},
        string_args={"barrier": interner.arg_strings.column(sites.barrier.gather(site))},
    )
    return EventBatch(
        time=rows["time"].to_numpy(),
        track=layout.tracks[rows["track"].to_numpy()],
        looks=looks,
        look=number,
        flows=arrows.starting_at(rows["instant"].to_numpy(), is_unit=False),
        int_args={"phase": rows["phase"].to_numpy()},
    )


def release_batch(arrows: Arrows, interner: Interner) -> EventBatch:
    """Returns an instant at the end of every blocked wait: where the arrow from the arrival points.

    An arrow to the wait itself would be drawn backwards, because the wait began before the arrival.
    """
    (edges,) = with_shared_key([arrows.edges], ["slot", "source"])
    first, number = distinct_rows([edges["key"].to_numpy()])
    kinds = edges[first]
    looks = Look(
        type=np.full(len(first), EventType.INSTANT),
        name=np.full(len(first), interner.names.number("released")),
        category=np.full(len(first), interner.categories.number("release")),
        correlation=kinds["slot"].to_numpy(),
        string_args={"by": interner.arg_strings.column(kinds["source"])},
    )
    return EventBatch(
        time=edges["time"].to_numpy(),
        track=edges["uuid"].to_numpy(),
        looks=looks,
        look=number,
        ended_flow=edges["flow"].to_numpy(),
    )


def counter_batch(trace: Trace, layout: Layout) -> EventBatch:
    """Returns the counter values of exported SMs."""
    rows = trace.counters.join(layout.counters, on=["counter", "sm", "cta"], maintain_order="left")
    return EventBatch(
        time=rows["time"].to_numpy(),
        track=rows["uuid"].to_numpy(),
        looks=Look(type=np.array([EventType.COUNTER])),
        look=np.zeros(rows.height, np.int64),
        value=rows["value"].to_numpy(),
    )
