"""What each track was doing at every cycle: its timeline cut into leaves, one innermost span each.

The leaves of a track cover the launch from its first moment to its last without gap or overlap, which is why
everything that is counted on them sums to the cycle.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from profiler.grouping import stable_order
from profiler.trace import Trace

# Values of `Leaves.span` where no span is open.
BETWEEN = -1  # alive, between recorded places: the warpgroup executes code that is not a site
BEFORE = -2  # its CTA has not started it
AFTER = -3  # it has exited

_UNCHANGED = -4


@dataclasses.dataclass(frozen=True)
class Leaves:
    """Every track's timeline, cut at every event.

    Attributes:
      track, begin, end: int64; sorted by (track, begin); the leaves of a track cover [0, horizon).
      span: innermost open span (row of `Trace.spans`), or BETWEEN, BEFORE, AFTER: int64.
      recording: cycles at the start of the leaf in which the track stored the events that begin the leaf: int64.
      horizon: end of every track's last leaf.
    """

    track: np.ndarray
    begin: np.ndarray
    end: np.ndarray
    span: np.ndarray
    recording: np.ndarray
    horizon: int

    def find(self, track: np.ndarray, time: np.ndarray) -> np.ndarray:
        """Returns the row of the leaf in which each (track, time) lies. Times outside the launch count as its ends."""
        position = track * self.horizon + np.clip(time, 0, self.horizon - 1)
        return np.searchsorted(self._position, position, side="right") - 1

    @functools.cached_property
    def _position(self) -> np.ndarray:
        """Ascending: the begin of each leaf, tracks laid end to end."""
        return self.track * self.horizon + self.begin


def cut_into_leaves(trace: Trace) -> Leaves:
    """Cuts every track's timeline at its events; the same trace is cut once.

    An event's cost is charged to the cycles after its time stamp, since the clock is read before the event is stored.
    """
    return trace.derive(_cut)


def _cut(trace: Trace) -> Leaves:
    async_end = (trace.async_spans["begin"] + trace.async_spans["dur"]).max()
    horizon = max(trace.end, async_end if isinstance(async_end, int) else 0) + 1
    position, state, is_event = _boundaries(trace, horizon)
    sequence = stable_order(position)
    position, state, is_event = position[sequence], state[sequence], is_event[sequence]
    rows = np.flatnonzero(np.append(position[1:] != position[:-1], True)) if len(position) else sequence
    last_known = np.maximum.accumulate(np.where(state == _UNCHANGED, 0, np.arange(len(state))))
    span = state[last_known[rows]].astype(np.int64)
    events = np.diff(np.cumsum(is_event, dtype=np.int64)[rows], prepend=0)
    position = position[rows]
    firsts = np.arange(trace.tracks.height) * horizon  # every track begins with a leaf at time 0
    track = np.repeat(np.arange(len(firsts)), np.diff(np.searchsorted(position, firsts), append=len(position)))
    begin = position - track * horizon
    end = np.append(begin[1:], 0)
    end[np.append(track[1:] != track[:-1], True)] = horizon
    recording = np.where(span >= BETWEEN, np.minimum(events * trace.header.record_cycles, end - begin), 0)
    return Leaves(track, begin, end, span, recording, horizon)


def _boundaries(trace: Trace, horizon: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Returns (track * horizon + time, state from here on, is a stored event).

    Boundaries of one moment stand in the order in which their states follow each other: spans end, inner before outer;
    then others begin, outer before inner.
    """
    tracks, spans = trace.tracks, trace.spans
    start, stop = (tracks[name].to_numpy().astype(np.int64) for name in ("begin", "end"))
    base = np.arange(tracks.height) * horizon
    track, parent = spans["track"].to_numpy(), np.maximum(spans["parent"].to_numpy(), BETWEEN)
    # The anchors are taken just outside the first and last event; clipping keeps a damaged capture from spoiling sums.
    recorded = spans["begin"].to_numpy()
    begin = np.clip(recorded, start[track], stop[track])
    end = np.clip(recorded + spans["dur"].to_numpy(), begin, stop[track])
    closed = spans["closed"].to_numpy()
    long, short = np.flatnonzero(end > begin), np.flatnonzero(end == begin)
    long_reversed = long[::-1]  # spans that end together enclose each other, the outer one in front
    instant_track = trace.instants["track"].to_numpy()
    instant = np.clip(trace.instants["time"].to_numpy(), start[instant_track], stop[instant_track])
    short_ends = short[closed[short]]
    parts = [
        _rows(base, BEFORE, False),
        _rows(base + start, BETWEEN, False),
        _rows((base[track] + end)[long_reversed], parent[long_reversed], closed[long_reversed]),
        _rows((base[track] + begin)[long], long, True),
        _rows(base + stop, AFTER, False),
        _rows((base[track] + begin)[short], _UNCHANGED, True),
        _rows((base[track] + end)[short_ends], _UNCHANGED, True),
        _rows(base[instant_track] + instant, _UNCHANGED, True),
    ]
    position, state, is_event = (np.concatenate(column) for column in zip(*parts, strict=True))
    return position, state, is_event


def _rows(position: np.ndarray, state: np.ndarray | int, is_event: np.ndarray | bool) -> tuple[np.ndarray, ...]:
    """Returns the columns of some boundaries, in types no wider than needed: there are millions."""
    narrow = (np.asarray(state, np.int32), np.asarray(is_event, bool))  # fewer than 2**31 spans
    return (position, *(np.broadcast_to(column, position.shape) for column in narrow))
