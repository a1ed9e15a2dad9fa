"""Pairs begin and end events into nested spans.

A track is a stack machine: an end closes the innermost open begin. With the nesting level of every event known from a
running sum, the events of one level alternate between begin and end. So flawless tracks are paired level by level, and
tracks that were cut off by one stable sort by level, all tracks at once. Tracks on which that fails (an end without a
begin, or of another site) are paired one event at a time instead: an end then closes the innermost open begin of *its*
site, or is dropped if there is none.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mgpu.sites import Edge
from profiler.decode import Events
from profiler.defects import Defect, count_per_track


@dataclasses.dataclass(frozen=True)
class Pairing:
    """Spans as indices into `Events`, in the order of their begin events (so: by track, then begin, outer first).

    Attributes:
      begin, end: int[spans], event indices; the end of an unclosed span is the event at which it was cut.
      parent: int[spans], row of the enclosing span, -1 if none.
      depth: int32[spans], number of enclosing spans.
      closed: bool[spans], False if the end was never recorded.
      instants: int64[instants], event indices.
      defects: orphan ends and unclosed begins, per track.
    """

    begin: np.ndarray
    end: np.ndarray
    parent: np.ndarray
    depth: np.ndarray
    closed: np.ndarray
    instants: np.ndarray
    defects: tuple[Defect, ...]


@dataclasses.dataclass(frozen=True)
class _Spans:
    """Spans of some tracks; `parent` is still the event index of the enclosing begin, -1 if none."""

    begin: np.ndarray
    end: np.ndarray
    parent: np.ndarray
    depth: np.ndarray
    closed: np.ndarray


# Deeper nesting than any kernel has is left to the sort, whose time does not grow with the depth.
_MAX_LEVELS = 64
_STEP = np.array([1, -1, 0], np.int8)  # of the number of open spans, by `Edge`


def pair_events(events: Events) -> Pairing:
    """Returns the spans and instants of all tracks."""
    return _pair_flawless(events) or _pair_any(events)


def _pair_flawless(events: Events) -> Pairing | None:
    """Pairs tracks on which every begin has its end; None if there is one on which that is not so."""
    is_begin = events.edge == Edge.BEGIN
    depth_after = np.cumsum(_STEP[events.edge], dtype=np.int32)
    track_ends = np.flatnonzero(np.diff(events.track, append=-1))
    deepest = int(depth_after.max(initial=0))
    if depth_after.min(initial=0) < 0 or deepest > _MAX_LEVELS or depth_after[track_ends].any():
        return None
    begin = np.flatnonzero(is_begin).astype(np.int32)
    # One byte tells level and edge: 2 * level for begins, 2 * level + 1 for ends.
    label = (2 * depth_after + 1).astype(np.uint8)
    label[begin] -= 3
    instants = np.flatnonzero(events.edge == Edge.INSTANT)
    label[instants] = 255
    end_of, row_of, parent_of = (np.empty(len(events), np.int32) for _ in range(3))
    row_of[begin] = np.arange(len(begin))
    outer = begin
    for level in range(deepest):
        begins = np.flatnonzero(label == 2 * level)
        ends = np.flatnonzero(label == 2 * level + 1)
        if (events.site[begins] != events.site[ends]).any():
            return None
        end_of[begins] = ends
        parent_of[begins] = row_of[outer[np.searchsorted(outer, begins) - 1]] if level else -1
        outer = begins
    depth = depth_after[begin] - 1
    return Pairing(begin, end_of[begin], parent_of[begin], depth, np.ones(len(begin), bool), instants, ())


def _pair_any(events: Events) -> Pairing:
    """Pairs tracks of any kind; spans that lack an end or begin become defects."""
    stacked = np.flatnonzero(events.edge != Edge.INSTANT)
    if len(events) < 1 << 31:
        stacked = stacked.astype(np.int32)  # this is bound by memory: half the bytes, half the time
    level = _levels(events, stacked)
    broken = np.unique(events.track[stacked[level < 0]])
    if len(broken):
        nested = ~np.isin(events.track[stacked], broken)
        spans = _pair_by_level(events, stacked[nested], level[nested])
    else:
        spans = _pair_by_level(events, stacked, level)

    mismatched = events.site[spans.begin] != events.site[spans.end]
    torn = np.unique(events.track[spans.begin[mismatched & spans.closed]])
    parts = [_select(spans, ~np.isin(events.track[spans.begin], torn)) if len(torn) else spans]
    orphans: list[np.ndarray] = []
    for track in np.union1d(broken, torn):
        repaired, orphan_ends = _pair_one_by_one(events, stacked[events.track[stacked] == track])
        parts.append(repaired)
        orphans.append(orphan_ends)
    return _assemble(events, parts, np.concatenate([np.zeros(0, np.int64), *orphans]))


def _levels(events: Events, stacked: np.ndarray) -> np.ndarray:
    """Returns how many spans are open around each begin and end event; negative if an end has no begin."""
    is_begin = events.edge[stacked] == Edge.BEGIN
    depth_after = np.cumsum(np.where(is_begin, np.int8(1), np.int8(-1)), dtype=stacked.dtype)
    track = events.track[stacked]
    starts = np.flatnonzero(np.diff(track, prepend=track[:1] - 1))
    before = np.where(starts > 0, depth_after[starts - 1], 0)
    depth_after -= np.repeat(before, np.diff(starts, append=len(stacked)))
    return depth_after - is_begin


def _pair_by_level(events: Events, stacked: np.ndarray, level: np.ndarray) -> _Spans:
    """Pairs well-nested tracks: sorted by level, every begin is followed by its end."""
    if level.max(initial=0) < 1 << 16:
        level = level.astype(np.uint16)  # NumPy sorts 16-bit integers by radix, several times faster
    order = np.argsort(level, kind="stable")
    event, level = stacked[order], level[order].astype(np.int32)
    is_begin = events.edge[event] == Edge.BEGIN
    position = np.flatnonzero(is_begin)
    begin, depth = event[position], level[position]

    following = np.minimum(position + 1, max(len(event) - 1, 0))
    closed = ~is_begin[following]
    closed &= (level[following] == depth) & (events.track[event[following]] == events.track[begin])
    end = np.where(closed, event[following], _last_events(events)[events.track[begin]])

    # (level, event) grows along the sorted begins, so the innermost begin one level up is a binary search away.
    key = depth.astype(np.int64) * len(events) + begin
    parent_row = np.searchsorted(key, key - len(events), side="right") - 1
    parent = np.where(depth > 0, begin[np.maximum(parent_row, 0)], -1) if len(begin) else begin
    return _Spans(begin, end, parent, depth, closed)


def _last_events(events: Events) -> np.ndarray:
    """Returns the index of each track's last event (any edge), indexed by track."""
    last = np.zeros(1 + int(events.track.max(initial=0)), np.int64)
    ends = np.flatnonzero(np.diff(events.track, append=-1))
    last[events.track[ends]] = ends
    return last


def _pair_one_by_one(events: Events, stacked: np.ndarray) -> tuple[_Spans, np.ndarray]:
    """Pairs one damaged track with a stack; also returns the end events that found no begin."""
    rows: list[tuple[int, int, int, int, bool]] = []
    orphans: list[int] = []
    open_begins: list[int] = []
    last = int(_last_events(events)[events.track[stacked[0]]])

    def close(end: int, closed: bool) -> None:
        begin = open_begins.pop()
        parent = open_begins[-1] if open_begins else -1
        rows.append((begin, end, parent, len(open_begins), closed))

    for event in stacked.tolist():
        if events.edge[event] == Edge.BEGIN:
            open_begins.append(event)
        elif any(events.site[begin] == events.site[event] for begin in open_begins):
            while events.site[open_begins[-1]] != events.site[event]:
                close(event, closed=False)
            close(event, closed=True)
        else:
            orphans.append(event)
    while open_begins:
        close(last, closed=False)
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    return _Spans(columns[0], columns[1], columns[2], columns[3], columns[4].astype(bool)), np.array(orphans, np.int64)


def _select(spans: _Spans, keep: np.ndarray) -> _Spans:
    return _Spans(spans.begin[keep], spans.end[keep], spans.parent[keep], spans.depth[keep], spans.closed[keep])


def _assemble(events: Events, parts: list[_Spans], orphans: np.ndarray) -> Pairing:
    """Joins the parts, orders spans by their begin event and turns parents into row numbers."""
    unordered = np.concatenate([part.begin for part in parts])
    row = np.full(len(events) + 1, -1, unordered.dtype)  # by event; the last entry is what a parent of -1 finds
    row[unordered] = np.arange(len(unordered))
    begin = np.flatnonzero(row >= 0).astype(unordered.dtype)
    order = row[begin]
    row[begin] = np.arange(len(begin))
    parent = row[np.concatenate([part.parent for part in parts])[order]]
    closed = np.concatenate([part.closed for part in parts])[order]
    defects = count_per_track("orphan_end", events.track[orphans], "ends without a begin were left out")
    defects += count_per_track(
        "unclosed", events.track[begin[~closed]], "spans whose end was not recorded are drawn to where they were cut"
    )
    return Pairing(
        begin=begin,
        end=np.concatenate([part.end for part in parts])[order],
        parent=parent,
        depth=np.concatenate([part.depth for part in parts])[order].astype(np.int32),
        closed=closed,
        instants=np.flatnonzero(events.edge == Edge.INSTANT),
        defects=tuple(defects),
    )
