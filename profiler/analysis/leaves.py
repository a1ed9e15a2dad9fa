"""What each track was doing at every cycle: its timeline cut into leaves, one innermost span each.

The leaves of a track cover the launch from its first moment to its last without gap or overlap, which is why
everything that is counted on them sums to the cycle.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from profiler.grouping import combined_key
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
        return np.searchsorted(self.track * self.horizon + self.begin, position, side="right") - 1


def cut_into_leaves(trace: Trace) -> Leaves:
    """Cuts every track's timeline at its events; the same trace is cut once.

    An event's cost is charged to the cycles after its time stamp, since the clock is read before the event is stored.
    """
    return trace.derive(_cut)


def _cut(trace: Trace) -> Leaves:
    async_end = (trace.async_spans["begin"] + trace.async_spans["dur"]).max()
    horizon = max(trace.end, async_end if isinstance(async_end, int) else 0) + 1
    track, time, state, is_event = _boundaries(trace)
    last_known = np.maximum.accumulate(np.where(state == _UNCHANGED, 0, np.arange(len(state))))
    state = state[last_known]
    ends_group = np.ones(len(track), bool)
    ends_group[:-1] = (track[1:] != track[:-1]) | (time[1:] != time[:-1])
    rows = np.flatnonzero(ends_group)
    events = np.diff(np.concatenate([[0], np.cumsum(is_event, dtype=np.int64)[rows]]))
    track, begin, span = track[rows], time[rows], state[rows]
    end = np.full(len(rows), horizon, np.int64)
    same_track = track[1:] == track[:-1]
    end[:-1][same_track] = begin[1:][same_track]
    recording = np.where(span >= BETWEEN, np.minimum(events * trace.header.record_cycles, end - begin), 0)
    return Leaves(track, begin, end, span, recording, horizon)


def _boundaries(trace: Trace) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Returns (track, time, state from here on, is a stored event), in the order in which states follow each other."""
    tracks = trace.tracks
    rank, start, stop = (tracks[name].to_numpy().astype(np.int64) for name in ("track", "begin", "end"))
    spans = {name: trace.spans[name].to_numpy().astype(np.int64) for name in ("track", "begin", "dur", "depth")}
    parent = np.maximum(trace.spans["parent"].to_numpy().astype(np.int64), BETWEEN)
    # The anchors are taken just outside the first and last event; clipping keeps a damaged capture from spoiling sums.
    begin = np.clip(spans["begin"], start[spans["track"]], stop[spans["track"]])
    end = np.clip(spans["begin"] + spans["dur"], begin, stop[spans["track"]])
    long = end > begin
    row = np.arange(len(begin))
    events = np.concatenate([spans["track"], spans["track"], trace.instants["track"].to_numpy().astype(np.int64)])
    closed = np.concatenate(
        [np.ones(len(begin), bool), trace.spans["closed"].to_numpy(), np.ones(trace.instants.height, bool)]
    )
    event_time = np.concatenate([begin, end, trace.instants["time"].to_numpy().astype(np.int64)])
    columns = [  # track, time, order at equal times, depth order, state, is event
        _rows(rank, np.zeros_like(start), -2, 0, BEFORE, False),
        _rows(rank, start, -1, 0, BETWEEN, False),
        _rows(spans["track"][long], end[long], 0, -spans["depth"][long], parent[long], False),
        _rows(spans["track"][long], begin[long], 1, spans["depth"][long], row[long], False),
        _rows(rank, stop, 2, 0, AFTER, False),
        _rows(events[closed], event_time[closed], 3, 0, _UNCHANGED, True),
    ]
    parts = list(zip(*columns, strict=True))
    track, time, order, depth, state, is_event = (np.concatenate(part) for part in parts)
    del columns, parts
    # Most parts are in order already: one stable sort by one number merges them.
    sequence = np.argsort(combined_key([track, time, order, depth]), kind="stable")
    return track[sequence], time[sequence], state[sequence], is_event[sequence]


def _rows(
    track: np.ndarray, time: np.ndarray, order: int, depth: np.ndarray | int, state: np.ndarray | int, is_event: bool
) -> tuple[np.ndarray, ...]:
    """Returns the columns of some boundaries, in types no wider than needed: there are millions."""
    small = (np.asarray(order, np.int8), np.asarray(depth, np.int32), np.asarray(state), np.asarray(is_event))
    return (track, time, *(np.broadcast_to(column, track.shape) for column in small))
