"""From event words to tables, some tracks at a time.

Arrays of a block fit a cache and are small enough for the C library to reuse; arrays of all events come from the system
page by page, which takes longer than the work on them. Blocks are independent of each other, so threads may share them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor

import numpy as np
import polars as pl

from mgpu.capture import Capture
from profiler.clock import Alignment
from profiler.decode import decode_words
from profiler.defects import Defect
from profiler.event_tables import (
    ISSUING_KINDS,
    SiteColumns,
    instant_columns,
    instants_table,
    span_columns,
    spans_table,
)
from profiler.pairing import pair_events
from profiler.trace import INSTANTS, SPANS

BLOCK_EVENTS = 1 << 19

# Names, kinds and numbers of rows are added to the joined columns.
_SPAN_COLUMNS = [name for name in SPANS if name not in ("span", "kind", "category", "name")]
_INSTANT_COLUMNS = [name for name in INSTANTS if name not in ("instant", "kind", "name")]


@dataclasses.dataclass(frozen=True)
class Block:
    """What the events of neighbouring tracks say.

    Attributes:
      spans, instants: columns of the tables that events tell; parents are rows of the block.
      last: int64[tracks], time of each track's last stored event; its begin if there is none.
      issued: bool[tracks, kinds], whether a track recorded a site of each of `ISSUING_KINDS`.
      defects: what was left out, repaired, or did not pair.
    """

    spans: Mapping[str, np.ndarray]
    instants: Mapping[str, np.ndarray]
    last: np.ndarray
    issued: np.ndarray
    defects: tuple[Defect, ...]


@dataclasses.dataclass(frozen=True)
class AllEvents:
    """What the events of all tracks say: tables, and the same as in a `Block`."""

    spans: pl.DataFrame
    instants: pl.DataFrame
    last: np.ndarray
    issued: np.ndarray
    defects: tuple[Defect, ...]


def cut_into_blocks(offsets: np.ndarray, num_events: int) -> list[tuple[int, int]]:
    """Returns stretches of tracks (first, one behind the last) that hold about `num_events` events each.

    Args:
      offsets: int64[tracks + 1], where each track's events begin, and the total.
      num_events: how many events a block should hold.
    """
    ends = np.searchsorted(offsets, np.arange(num_events, int(offsets[-1]), num_events))
    bounds = np.unique(np.concatenate([[0], ends, [len(offsets) - 1]])).tolist()
    return list(itertools.pairwise(bounds))


def read_block(capture: Capture, first: int, end: int, alignment: Alignment, origin: int, sites: SiteColumns) -> Block:
    """Decodes and pairs the events of the tracks from `first` up to `end`.

    Args:
      capture: the whole capture.
      first, end: rows of its track table.
      alignment: of its SMs.
      origin: time 0, in the common time of all SMs.
      sites: its sites.
    """
    offsets = capture.offsets
    tracks = capture.tracks[first:end]
    part = dataclasses.replace(capture, tracks=tracks, words=capture.words[offsets[first] : offsets[end]])
    events = decode_words(part)
    time = events.clock + (alignment.shift_cycles[tracks["sm"]] - origin)[events.track]
    last = alignment.apply(tracks["clock_begin"], tracks["sm"]) - origin
    ends = np.flatnonzero(np.diff(events.track, append=-1))
    last[events.track[ends]] = time[ends]  # events of a track are in time order
    issued = np.zeros((len(tracks), len(ISSUING_KINDS)), bool)
    for column, kind in enumerate(ISSUING_KINDS):
        issued[events.track[np.flatnonzero(sites.is_kind(kind)[events.site])], column] = True
    pairing = pair_events(events)
    placed = dataclasses.replace(events, track=events.track + np.int32(first))
    found = (*events.defects, *pairing.defects)
    return Block(
        span_columns(placed, time, pairing, sites),
        instant_columns(placed, time, pairing, sites),
        last,
        issued,
        tuple(dataclasses.replace(defect, track=defect.track + first) for defect in found),
    )


def join_blocks(blocks: Sequence[Block], sites: SiteColumns, pool: Executor) -> AllEvents:
    """Returns the tables of all blocks, with rows numbered through; columns are joined side by side in `pool`."""
    first_span = np.cumsum([0, *(len(block.spans["parent"]) for block in blocks)]).tolist()

    def join(table: str, name: str) -> np.ndarray:
        parts = [getattr(block, table)[name] for block in blocks]
        if name == "parent":
            parts = [np.where(part >= 0, part + first, -1) for part, first in zip(parts, first_span, strict=False)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    names = {"spans": _SPAN_COLUMNS, "instants": _INSTANT_COLUMNS}
    joined = {table: {name: pool.submit(join, table, name) for name in columns} for table, columns in names.items()}
    spans, instants = ({name: one.result() for name, one in joined[table].items()} for table in names)
    return AllEvents(
        spans_table(spans, sites),
        instants_table(instants, sites),
        np.concatenate([np.zeros(0, np.int64), *(block.last for block in blocks)]),
        np.concatenate([np.zeros((0, len(ISSUING_KINDS)), bool), *(block.issued for block in blocks)]),
        tuple(defect for block in blocks for defect in block.defects),
    )
