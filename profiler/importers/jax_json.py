"""Imports the JSON that JAX's Mosaic GPU profiler writes (`<kernel>-<time>-trace.json`).

Its time stamps add the global timer at a track's start, in ns, to SM cycles since then, and call the sum ns. With the
clock rate the two can be told apart again: the first event of a track carries the timer alone. What cannot be undone is
noted: the correction for the profiler's own cost that JAX subtracts, different for each track, and everything that the
format has no room for.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from mgpu.capture import Capture
from mgpu.errors import CaptureError, ParamsError
from mgpu.sites import Edge
from profiler.importers.capture_builder import ImportedTrack, build_capture

_EDGES = {"B": Edge.BEGIN, "E": Edge.END}

LOST = (
    "JAX's trace: the cost of recording was estimated once for the grid and subtracted from every time stamp, so that "
    "tracks with more events are drawn too short, and warps of one CTA are shifted against each other",
    "JAX's trace: the shared SM clock was thrown away; tracks are aligned by the global timer, 32 ns or worse",
    "JAX's trace: times that stepped back were moved forward by a cycle, without a mark",
    "JAX's trace: no barrier, slot, phase, iteration, source line, grid index, role or count of lost events",
    "JAX's trace: the first launch of the compiled kernel only; later ones were not saved",
)


def import_jax(
    content: Mapping[str, Any], *, name: str, clock_hz: float, device: str = "", tracks_per_cta: int = 0
) -> Capture:
    """Returns a trace of JAX's profiler as a capture.

    Args:
      content: the parsed file.
      name: kernel name to give it.
      clock_hz: SM clock of the run.
      device: name of the device, "" if unknown.
      tracks_per_cta: warps or warpgroups recorded per CTA; 0 takes the largest number that keeps each CTA on one SM.

    Raises:
      ParamsError: the clock is missing.
      CaptureError: an event lacks a field, or has another phase than B or E.
    """
    if not clock_hz > 0:
        raise ParamsError(
            f"{name}: JAX's traces mix cycles and ns, and only the SM clock of the run tells them apart. Give it with "
            "--clock-ghz (an H100 SXM runs at up to 1.98; `nvidia-smi -q -d CLOCK` during the run says it)."
        )
    by_track: dict[tuple[int, int], list[tuple[str, Edge, float]]] = {}
    for row, event in enumerate(content["traceEvents"]):
        track, entry = _read_event(name, row, event)
        by_track.setdefault(track, []).append(entry)
    if not by_track:
        raise CaptureError(f"{name}: the file holds no event.")
    sms = {tid: sm for sm, tid in sorted(by_track)}
    width = tracks_per_cta or _tracks_per_cta(sms)
    start_ns = min(events[0][2] for events in by_track.values())
    tracks = [
        _make_track(sm, *divmod(tid, width), events, start_ns, clock_hz) for (sm, tid), events in by_track.items()
    ]
    notes = [*LOST, f"JAX's trace: {width} tracks per CTA" + ("" if tracks_per_cta else " (found from the SM numbers)")]
    return build_capture(
        tracks, kernel=name, clock_hz=clock_hz, device=device, notes=notes, tool="JAX Mosaic GPU profiler"
    )


def _read_event(name: str, row: int, event: Any) -> tuple[tuple[int, int], tuple[str, Edge, float]]:
    """Returns the track (SM, number) of an event, and its name, edge and time in what JAX calls ns."""
    try:
        track = int(event["pid"]) - 1, int(event["tid"]) - 1
        return track, (str(event["name"]), _EDGES[event["ph"]], float(event["ts"]) * 1e3)
    except (KeyError, TypeError, ValueError) as error:
        raise CaptureError(
            f"{name}: traceEvents[{row}] is {event!r}; expected name, ph (B or E), ts, pid and tid ({error})."
        ) from None


def _tracks_per_cta(sms: Mapping[int, int]) -> int:
    """Returns the largest number of consecutive tracks that always lie on one SM."""
    runs, previous, length = [], None, 0
    for tid in range(1 + max(sms)):
        sm = sms.get(tid, previous)
        if sm != previous and length:
            runs.append(length)
            length = 0
        previous, length = sm, length + 1
    return functools.reduce(math.gcd, [*runs, length])


def _make_track(
    sm: int, cta: int, warpgroup: int, events: Sequence[tuple[str, Edge, float]], start_ns: float, clock_hz: float
) -> ImportedTrack:
    """Tells timer and cycles apart: the first time stamp is the timer's, differences within a track are cycles."""
    first = events[0][2]
    begin = round((first - start_ns) * clock_hz / 1e9)
    timed = [(name, edge, begin + round(time - first)) for name, edge, time in events]
    return ImportedTrack(sm, cta, warpgroup, -1, begin, max(time for _, _, time in timed), timed)
