"""Decodes the event words of a capture: two 32-bit words become site, edge, slot and a 64-bit cycle count.

NumPy over all events at once. Words that cannot be understood are left out and counted; the rest survives.
`profiler.pairing` makes spans of the result.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mgpu.capture import Capture, unpack_tags
from mgpu.sites import Edge
from profiler.clock import clamp_backward_steps, unwrap_clocks
from profiler.defects import Defect, count_per_track


@dataclasses.dataclass(frozen=True)
class Events:
    """The understood events of a launch, one track after another, in time order within a track.

    Attributes:
      track: int32, row of the capture's track table.
      site: int32, site id.
      edge: int32, `Edge`.
      payload: int32, barrier slot of sites that touch a barrier.
      clock: int64, cycle count of the event's SM.
      defects: what was left out or repaired.
    """

    track: np.ndarray
    site: np.ndarray
    edge: np.ndarray
    payload: np.ndarray
    clock: np.ndarray
    defects: tuple[Defect, ...]

    def __len__(self) -> int:
        return len(self.track)


def decode_events(capture: Capture) -> Events:
    """Returns all events of a capture that name a known site and a valid edge, and everything that it does not tell."""
    events = decode_words(capture)
    return dataclasses.replace(events, defects=(*events.defects, *capture_defects(capture)))


def capture_defects(capture: Capture) -> list[Defect]:
    """Returns what a capture as a whole does not tell: events that were dropped, and its header's notes."""
    kind = "imported" if capture.header.provenance == "imported" else "filtered"
    return _dropped(capture) + [Defect(kind, -1, 1, note) for note in capture.header.notes]


def decode_words(capture: Capture) -> Events:
    """Returns all events of a capture that name a known site and a valid edge, and what was wrong with the words."""
    words = capture.words
    offsets = capture.offsets
    track = np.repeat(np.arange(len(capture.tracks), dtype=np.int32), np.diff(offsets))
    site, edge, payload = unpack_tags(words[:, 0])
    clock, defects = _clocks(capture, np.ascontiguousarray(words[:, 1]), offsets)

    known = np.zeros(1 + max((s.id for s in capture.header.sites), default=-1), bool)
    known[[s.id for s in capture.header.sites]] = True
    unknown_site = site >= len(known)
    unknown_site[~unknown_site] = ~known[site[~unknown_site]]
    bad_edge = edge > max(Edge)
    if not (unknown_site.any() or bad_edge.any()):
        return Events(track, site, edge, payload, clock, tuple(defects))
    defects += count_per_track(
        "unknown_site", track[unknown_site], "events of sites that the header does not list were left out"
    )
    defects += count_per_track(
        "bad_edge", track[bad_edge & ~unknown_site], "events that mark neither begin, end nor instant were left out"
    )
    keep = ~(unknown_site | bad_edge)
    return Events(track[keep], site[keep], edge[keep], payload[keep], clock[keep], tuple(defects))


def _clocks(capture: Capture, clocks: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, list[Defect]]:
    """Unwraps the clocks; a track whose clock leaves its lifetime is repaired and counted."""
    clock_begin = capture.tracks["clock_begin"].astype(np.int64)
    clock_end = capture.tracks["clock_end"].astype(np.int64)
    cycles = unwrap_clocks(clocks, offsets, clock_begin)
    defects: list[Defect] = []
    filled = np.flatnonzero(np.diff(offsets) > 0)
    for track in filled[cycles[offsets[filled + 1] - 1] > clock_end[filled]]:
        rows = slice(offsets[track], offsets[track + 1])
        first = np.concatenate([[clock_begin[track]], cycles[rows]])
        repaired, backward = clamp_backward_steps(first)
        cycles[rows] = np.minimum(repaired[1:], max(clock_end[track], clock_begin[track]))
        past_end = int((repaired[1:] > clock_end[track]).sum())
        message = "events whose clock went back, or beyond the end of their track, were moved to the nearest legal time"
        defects.append(Defect("clock_backwards", int(track), max(backward + past_end, 1), message))
    return cycles, defects


def _dropped(capture: Capture) -> list[Defect]:
    dropped = capture.dropped_counts
    return [
        Defect(
            "dropped",
            int(track),
            int(dropped[track]),
            f"{capture.header.capacity} of {int(capture.tracks['count'][track])} events kept (the first). "
            f"CompilerParams(profile_space={capture.sufficient_profile_space}) would have kept all.",
        )
        for track in np.flatnonzero(dropped)
    ]
