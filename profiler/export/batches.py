"""Tables of a Trace as batches of track events: slices, asynchronous work, instants, arrows and counters."""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from profiler.event_tables import SiteColumns
from profiler.export.interning import Interner
from profiler.export.layout import Layout
from profiler.export.track_events import EventBatch, EventType
from profiler.grouping import count_before
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
    spans = trace.spans.filter(pl.Series(layout.tracks[trace.spans["track"].to_numpy()] > 0))
    num = spans.height
    begin_at, end_at = nesting_order(
        np.searchsorted(spans["span"].to_numpy(), spans["parent"].to_numpy()), spans["depth"].to_numpy()
    )
    is_begin = np.zeros(2 * num, bool)
    is_begin[begin_at] = True
    begin = spans["begin"].to_numpy()
    site = spans["site"].to_numpy()
    released = spans.select("span").join(
        trace.waits.filter("blocked").select("span", "released_by"), on="span", how="left", maintain_order="left"
    )["released_by"]

    def at_begin(values: np.ndarray, otherwise: int = 0) -> np.ndarray:
        column = np.full(2 * num, otherwise, np.int64)
        column[begin_at] = values
        return column

    time = at_begin(begin)
    time[end_at] = begin + spans["dur"].to_numpy()
    track = at_begin(layout.tracks[spans["track"].to_numpy()])
    track[end_at] = track[begin_at]
    return EventBatch(
        time=time,
        type=np.where(is_begin, int(EventType.SLICE_BEGIN), int(EventType.SLICE_END)),
        track=track,
        name=at_begin(interner.names.column(spans["name"])),
        category=at_begin(interner.categories.column(spans["category"])),
        location=at_begin(interner.locations(site)),
        correlation=at_begin(spans["slot"].to_numpy(), -1),
        int_args={
            "slot": at_begin(spans["slot"].to_numpy(), -1),
            "phase": at_begin(spans["phase"].to_numpy(), -1),
            "unclosed": at_begin(np.where(spans["closed"].to_numpy(), -1, 1), -1),
        },
        string_args={
            "barrier": at_begin(interner.arg_strings.column(sites.barrier.gather(site))),
            "released by": at_begin(interner.arg_strings.column(released.fill_null(""))),
        },
    )


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
    dropped = tracks["dropped"].to_numpy()
    ends = np.full(num, -1)
    return EventBatch(
        time=np.stack([tracks["last"].to_numpy(), tracks["end"].to_numpy()], 1).reshape(-1),
        type=np.tile([int(EventType.SLICE_BEGIN), int(EventType.SLICE_END)], num),
        track=np.repeat(uuid, 2),
        name=np.tile([interner.names.number("not recorded"), 0], num),
        category=np.tile([interner.categories.number("unknown"), 0], num),
        int_args={
            "events dropped": np.stack([dropped, ends], 1).reshape(-1),
            "sufficient profile_space": np.tile([trace.sufficient_profile_space, -1], num),
        },
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
    absent = np.zeros(num, np.int64)

    def at_begin(values: np.ndarray, otherwise: int = 0) -> np.ndarray:
        return np.stack([values, absent + otherwise], 1).reshape(-1)

    flows = arrows.starting_at(np.sort(rows["async_span"].to_numpy()), is_unit=True)
    if flows is not None:
        flows = flows[order]
        flows = np.stack([flows, np.zeros_like(flows)], 1).reshape(2 * num, -1)
    category = rows["unit"].replace_strict(_UNIT_CATEGORY, default="", return_dtype=pl.String)
    inferred = np.where((rows["provenance"] == "inferred").to_numpy(), 1, -1)
    return EventBatch(
        time=np.stack([begin, begin + rows["dur"].to_numpy()], 1).reshape(-1),
        type=np.tile([int(EventType.SLICE_BEGIN), int(EventType.SLICE_END)], num),
        track=np.repeat(rows["uuid"].to_numpy(), 2),
        name=at_begin(interner.names.column(rows["name"])),
        category=at_begin(interner.categories.column(category)),
        location=at_begin(interner.locations(rows["site"].to_numpy())),
        correlation=at_begin(rows["slot"].to_numpy(), -1),
        flows=flows,
        int_args={
            "cta": at_begin(rows["cta"].to_numpy(), -1),
            "issued by warpgroup": at_begin(rows["warpgroup"].to_numpy(), -1),
            "slot": at_begin(rows["slot"].to_numpy(), -1),
            "bytes": at_begin(np.where(rows["bytes"].to_numpy() > 0, rows["bytes"].to_numpy(), -1), -1),
            "flops": at_begin(np.where(rows["flops"].to_numpy() > 0, rows["flops"].to_numpy(), -1), -1),
            "inferred": at_begin(inferred, -1),
        },
    )


def instant_rows(trace: Trace, layout: Layout) -> pl.DataFrame:
    """Returns the instants of exported tracks."""
    return trace.instants.filter(pl.Series(layout.tracks[trace.instants["track"].to_numpy()] > 0))


def instant_batch(
    rows: pl.DataFrame, layout: Layout, arrows: Arrows, sites: SiteColumns, interner: Interner
) -> EventBatch:
    """Returns the recorded instants; arrows to the waits that they released start here."""
    site = rows["site"].to_numpy()
    category = sites.kind.gather(site) if rows.height else pl.Series([], dtype=pl.String)
    return EventBatch(
        time=rows["time"].to_numpy(),
        type=np.full(rows.height, int(EventType.INSTANT)),
        track=layout.tracks[rows["track"].to_numpy()],
        name=interner.names.column(rows["name"]),
        category=interner.categories.column(category),
        location=interner.locations(site),
        correlation=rows["slot"].to_numpy(),
        flows=arrows.starting_at(rows["instant"].to_numpy(), is_unit=False),
        int_args={"slot": rows["slot"].to_numpy(), "phase": rows["phase"].to_numpy()},
        string_args={"barrier": interner.arg_strings.column(sites.barrier.gather(site))},
    )


def release_batch(arrows: Arrows, interner: Interner) -> EventBatch:
    """Returns an instant at the end of every blocked wait: where the arrow from the arrival points.

    An arrow to the wait itself would be drawn backwards, because the wait began before the arrival.
    """
    edges = arrows.edges
    return EventBatch(
        time=edges["time"].to_numpy(),
        type=np.full(edges.height, int(EventType.INSTANT)),
        track=edges["uuid"].to_numpy(),
        name=np.full(edges.height, interner.names.number("released")),
        category=np.full(edges.height, interner.categories.number("release")),
        correlation=edges["slot"].to_numpy(),
        ended_flow=edges["flow"].to_numpy(),
        string_args={"by": interner.arg_strings.column(edges["source"])},
    )


def counter_batch(trace: Trace, layout: Layout) -> EventBatch:
    """Returns the counter values of exported SMs."""
    rows = trace.counters.join(layout.counters, on=["counter", "sm", "cta"], maintain_order="left")
    return EventBatch(
        time=rows["time"].to_numpy(),
        type=np.full(rows.height, int(EventType.COUNTER)),
        track=rows["uuid"].to_numpy(),
        value=rows["value"].to_numpy(),
    )
