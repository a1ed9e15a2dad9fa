"""Imports the JSON of NVIDIA IKET (`run-iket`, CUTLASS 4.6 and newer): ranges, markers and lifetimes of warps.

NVIDIA's documentation of IKET (docs.nvidia.com/cutlass, "IKET profiling") shows `launches[]` with `kernelName`,
`ranges[]` (`rangeName`, `startTs`, `endTs`, `warpLocs[]`), `markers[]` (`markerName`, `timestamp`, `location`) and
`warpLifetimes[]` (`warpLocation`); a location has `smId`, `ctaId`, `warpId`. The files that the tool writes have
tables instead: `rangeNameIdx` and `markerNameIdx` are rows of `stringTable`, `warpLocIdxs` and `locIdx` of
`locationTable`, and `graphLaunches` holds the launches of CUDA graphs by graph. Both forms are read. A range that one
warp began and ended names that warp twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from mgpu.capture import Capture
from mgpu.errors import CaptureError
from mgpu.sites import Edge
from mgpu.units import WARPS_PER_WARPGROUP
from profiler.importers.capture_builder import ImportedTrack, build_capture

_NS = 1e9
_Warp = tuple[int, int, int]  # SM, CTA, warp

LOST = (
    "IKET's trace: time stamps are multiples of 32 ns; shorter ranges may have no length",
    "IKET's trace: no barrier, slot, phase, source line or role; what ranges mean is in their names only",
)


def import_iket(content: Mapping[str, Any], *, name: str, clock_hz: float = 0.0, device: str = "") -> Capture:
    """Returns the last launch of an IKET trace as a capture.

    Args:
      content: the parsed file.
      name: kernel name, if the file gives none.
      clock_hz: SM clock of the run; without it a cycle is taken to be 1 ns, and the capture says so.
      device: name of the device, "" if unknown.

    Raises:
      CaptureError: the file holds no launch, or a range lacks a field.
    """
    launches = _launches(content, name)
    reader = _Reader(content, name)
    launch = launches[-1]
    notes: list[str] = list(LOST)
    if len(launches) > 1:
        notes.append(f"IKET's trace: {len(launches)} launches in the file; this is the last")
    if any("payloadVal" in event for event in _events(launch)):
        notes.append("IKET's trace: payloads of ranges and markers are left out")
    if not clock_hz > 0:
        notes.append("IKET's trace: no clock was given (--clock-ghz), so cycles are ns here")
    tracks = list(reader.tracks(launch, clock_hz or _NS))
    return build_capture(
        tracks,
        kernel=reader.text(launch.get("kernelName", name)),
        clock_hz=clock_hz or _NS,
        device=device,
        notes=notes,
        tool="NVIDIA IKET",
    )


def _launches(content: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """Returns the launches of a file, those of graphs last."""
    graphs = content.get("graphLaunches", {})
    in_graphs = [launch for launches in graphs.values() for launch in launches] if isinstance(graphs, dict) else []
    launches = [*content.get("launches", []), *in_graphs]
    if not launches:
        raise CaptureError(
            f"{name}: the file holds no launch. IKET records instrumented kernels that are compiled under run-iket."
        )
    return launches


def _events(launch: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from launch.get("markers", [])
    for one in launch.get("ranges", []):
        yield from one.get("internalEvents", [])


class _Reader:
    """Looks up names and places, and collects ranges by warp."""

    def __init__(self, content: Mapping[str, Any], name: str) -> None:
        self._strings = content.get("stringTable", [])
        self._places = content.get("locationTable", [])
        self._name = name
        self._ctas: dict[str, int] = {}
        self._grid: list[int] = []

    def text(self, value: Any) -> str:
        """Returns a name: as it is, or from the string table."""
        return str(self._strings[value]) if isinstance(value, int) and self._strings else str(value)

    def _name_of(self, event: Mapping[str, Any], field: str) -> str:
        return self.text(event[f"{field}Idx"] if f"{field}Idx" in event else event[field])

    def _warps(self, event: Mapping[str, Any]) -> list[_Warp]:
        """Returns the warps that an event names, each once."""
        several, one = (
            next((event[field] for field in fields if field in event), None)
            for fields in (("warpLocIdxs", "warpLocs"), ("locIdx", "location", "warpLocation"))
        )
        return list(dict.fromkeys(self._warp(place) for place in (several if several is not None else [one])))

    def _warp(self, value: Any) -> _Warp:
        place = self._places[value] if isinstance(value, int) else value
        cta = place["ctaId"]
        if not isinstance(cta, int):  # a grid position, x first: the same numbers as the kernel's own linear index
            x, y, z = (*map(int, cta), 0, 0)[:3]
            cta = x + self._grid[0] * (y + self._grid[1] * z) if self._grid else self._number_of(x, y, z)
        return int(place["smId"]), cta, int(place["warpId"])

    def _number_of(self, *position: int) -> int:
        """Returns a CTA's number where the grid is not known: in the order in which CTAs appear."""
        return self._ctas.setdefault(str(position), len(self._ctas))

    def tracks(self, launch: Mapping[str, Any], clock_hz: float) -> Iterator[ImportedTrack]:
        """Yields a track per warp, and more where its ranges overlap without nesting."""
        dimensions = [launch.get(f"gridDim{axis}") for axis in "XYZ"]
        self._grid = [int(size) for size in dimensions if size is not None] if None not in dimensions else []
        ranges: dict[_Warp, list[tuple[int, int, str]]] = {}
        markers: dict[_Warp, list[tuple[int, str]]] = {}
        lives: dict[_Warp, tuple[int, int]] = {}
        try:
            for one in launch.get("ranges", []):
                entry = int(one["startTs"]), int(one["endTs"]), self._name_of(one, "rangeName")
                for warp in self._warps(one):
                    ranges.setdefault(warp, []).append(entry)
            for one in launch.get("markers", []):
                for warp in self._warps(one):
                    markers.setdefault(warp, []).append((int(one["timestamp"]), self._name_of(one, "markerName")))
            for one in launch.get("warpLifetimes", []):
                for warp in self._warps(one):
                    lives[warp] = int(one["startTs"]), int(one["endTs"])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise CaptureError(f"{self._name}: a range, marker or lifetime lacks a field ({error!r}).") from None
        moments = [*(time for own in ranges.values() for begin, end, _ in own for time in (begin, end))]
        moments += [time for own in markers.values() for time, _ in own]
        moments += [time for life in lives.values() for time in life]
        origin = min(moments, default=0)

        def cycles(ns: int) -> int:
            return round((ns - origin) * clock_hz / _NS)

        for warp in sorted({**ranges, **markers}):
            for number, lane in enumerate(_nesting_lanes(ranges.get(warp, []))):
                points = markers.get(warp, []) if number == 0 else []
                events = [(name, edge, cycles(time)) for time, name, edge in _in_order(lane, points)]
                if not events:
                    continue
                begin, end = (cycles(time) for time in lives.get(warp, (origin, origin)))
                if warp not in lives:
                    begin, end = events[0][2], events[-1][2]
                sm, cta, index = warp
                warpgroup, own = divmod(index, WARPS_PER_WARPGROUP)
                begin, end = min(begin, events[0][2]), max(end, events[-1][2])
                yield ImportedTrack(sm, cta, warpgroup, own, begin, end, events)


def _nesting_lanes(ranges: list[tuple[int, int, str]]) -> list[list[tuple[int, int, str]]]:
    """Splits ranges into as few lists as a greedy search needs so that within each, ranges nest or do not touch."""
    lanes: list[list[tuple[int, int, str]]] = [[]]
    open_ends: list[list[int]] = [[]]  # per lane, outermost range first
    for begin, end, name in sorted(ranges, key=lambda row: (row[0], -row[1])):
        for ends in open_ends:
            while ends and ends[-1] <= begin:
                ends.pop()
        fits = [lane for lane, ends in enumerate(open_ends) if not ends or end <= ends[-1]]
        if not fits:
            lanes.append([])
            open_ends.append([])
        lane = fits[0] if fits else len(lanes) - 1
        lanes[lane].append((begin, end, name))
        open_ends[lane].append(end)
    return lanes


def _in_order(lane: list[tuple[int, int, str]], points: list[tuple[int, str]]) -> list[tuple[int, str, Edge]]:
    """Returns begins, ends and markers in an order in which they nest."""
    events: list[tuple[int, str, Edge]] = []
    open_ranges: list[tuple[int, str]] = []
    for begin, end, name in lane:
        while open_ranges and open_ranges[-1][0] <= begin:
            time, inner = open_ranges.pop()
            events.append((time, inner, Edge.END))
        events.append((begin, name, Edge.BEGIN))
        open_ranges.append((end, name))
    while open_ranges:
        time, inner = open_ranges.pop()
        events.append((time, inner, Edge.END))
    for time, name in points:
        events.append((time, name, Edge.INSTANT))
    return sorted(events, key=lambda row: row[0])
