"""From event words to tables, some tracks at a time.

Arrays of a block fit a cache and are small enough for the C library to reuse; arrays of all events come from the system
page by page, which takes longer than the work on them. Blocks are independent of each other, so threads may share them.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import polars as pl

from mgpu.capture import Capture
from profiler.clock import Alignment
from profiler.decode import decode_words
from profiler.defects import Defect
from profiler.event_tables import ISSUING_KINDS, SiteColumns, instants_table, spans_table
from profiler.pairing import pair_events
from profiler.trace import INSTANTS, SPANS

BLOCK_EVENTS = 1 << 19


@dataclasses.dataclass(frozen=True)
class Block:
    """What the events of neighbouring tracks say.

    Attributes:
      spans, instants: tables with rows numbered from 0.
      last: int64[tracks], time of each track's last stored event; its begin if there is none.
      issued: bool[tracks, kinds], whether a track recorded a site of each of `ISSUING_KINDS`.
      defects: what was left out, repaired, or did not pair.
    """

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
    time = alignment.apply(events.clock, tracks["sm"][events.track]) - origin
    last = alignment.apply(tracks["clock_begin"], tracks["sm"]) - origin
    last[events.track] = time  # the last write wins, and events of a track are in time order
    issued = np.zeros((len(tracks), len(ISSUING_KINDS)), bool)
    for column, kind in enumerate(ISSUING_KINDS):
        issued[events.track[sites.is_kind(kind)[events.site]], column] = True
    pairing = pair_events(events)
    placed = dataclasses.replace(events, track=events.track + np.int32(first))
    found = (*events.defects, *pairing.defects)
    return Block(
        spans_table(placed, time, pairing, sites),
        instants_table(placed, time, pairing, sites),
        last,
        issued,
        tuple(dataclasses.replace(defect, track=defect.track + first) for defect in found),
    )


def join_blocks(blocks: Sequence[Block]) -> Block:
    """Returns the tables of all blocks, with rows numbered through."""
    spans, instants = [pl.DataFrame(schema=dict(SPANS))], [pl.DataFrame(schema=dict(INSTANTS))]
    num_spans = num_instants = 0
    for block in blocks:
        parent = pl.when(pl.col("parent") >= 0).then(pl.col("parent") + num_spans).otherwise(-1)
        spans.append(block.spans.with_columns(pl.col("span") + num_spans, parent) if num_spans else block.spans)
        instants.append(block.instants.with_columns(pl.col("instant") + num_instants))
        num_spans += block.spans.height
        num_instants += block.instants.height
    return Block(
        pl.concat(spans, rechunk=True),
        pl.concat(instants, rechunk=True),
        np.concatenate([np.zeros(0, np.int64), *(block.last for block in blocks)]),
        np.concatenate([np.zeros((0, len(ISSUING_KINDS)), bool), *(block.issued for block in blocks)]),
        tuple(defect for block in blocks for defect in block.defects),
    )
