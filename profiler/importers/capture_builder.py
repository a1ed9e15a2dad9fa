"""Makes a Capture of named ranges, so that imported traces take the same path as recorded ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from mgpu.capture import (
    ARRIVAL_DTYPE,
    CTA_DTYPE,
    MAX_SITES,
    TRACK_DTYPE,
    UNIT_SPAN_DTYPE,
    Capture,
    CaptureHeader,
    pack_tag,
)
from mgpu.devices import list_devices, load_device
from mgpu.errors import CaptureError
from mgpu.sites import Edge, Site, SiteKind

IMPORTED = "imported"


@dataclasses.dataclass(frozen=True)
class ImportedTrack:
    """What one writer recorded.

    Attributes:
      sm, cta, warpgroup, warp: where; warp -1 is a whole warpgroup.
      begin, end: its first and last moment, cycles.
      events: (name, edge, cycles), in time order.
    """

    sm: int
    cta: int
    warpgroup: int
    warp: int
    begin: int
    end: int
    events: Sequence[tuple[str, Edge, int]]


def build_capture(
    tracks: Sequence[ImportedTrack], *, kernel: str, clock_hz: float, device: str, notes: Sequence[str], tool: str
) -> Capture:
    """Returns a capture of the tracks. Every name becomes a site of kind "scope"; nothing is known of barriers.

    Raises:
      CaptureError: there are more names than sites fit a capture, or no event at all.
    """
    tracks = sorted(tracks, key=lambda track: (track.cta, track.warpgroup, track.warp))
    names = list(dict.fromkeys(name for track in tracks for name, _, _ in track.events))
    if not names:
        raise CaptureError(f"{kernel}: the file holds no event.")
    if len(names) > MAX_SITES:
        raise CaptureError(f"{kernel}: {len(names):,} different names; a capture holds {MAX_SITES:,} sites.")
    number = {name: index for index, name in enumerate(names)}
    words = [(pack_tag(number[name], edge), time & 0xFFFFFFFF) for track in tracks for name, edge, time in track.events]
    rows = [_track_row(track, clock_hz) for track in tracks]
    sites = tuple(Site(index, name, SiteKind.SCOPE) for name, index in number.items())
    return Capture(
        header=_header(tracks, kernel, clock_hz, device, sites, tuple(notes), tool),
        tracks=np.array(rows, TRACK_DTYPE),
        words=np.array(words, np.uint32).reshape(-1, 2),
        ctas=_ctas(tracks),
        unit_spans=np.zeros(0, UNIT_SPAN_DTYPE),
        arrivals=np.zeros(0, ARRIVAL_DTYPE),
    )


def _track_row(track: ImportedTrack, clock_hz: float) -> tuple[int, ...]:
    anchors = tuple(round(cycles * 1e9 / clock_hz) for cycles in (track.begin, track.end))
    count = len(track.events)
    return (track.cta, track.sm, track.warpgroup, track.warp, count, track.begin, track.end, *anchors)


def _ctas(tracks: Sequence[ImportedTrack]) -> np.ndarray:
    by_cta: dict[int, list[ImportedTrack]] = {}
    for track in tracks:
        by_cta.setdefault(track.cta, []).append(track)
    rows = [
        (cta, cta, own[0].sm, min(track.begin for track in own), max(track.end for track in own))
        for cta, own in sorted(by_cta.items())
    ]
    return np.array(rows, CTA_DTYPE)


def _header(
    tracks: Sequence[ImportedTrack],
    kernel: str,
    clock_hz: float,
    device: str,
    sites: tuple[Site, ...],
    notes: tuple[str, ...],
    tool: str,
) -> CaptureHeader:
    known = device in list_devices()
    num_sms = load_device(device).num_sms if known else 1 + max(track.sm for track in tracks)
    return CaptureHeader(
        kernel=kernel,
        launch=1,
        provenance=IMPORTED,
        device=device or "unknown",
        clock_hz=clock_hz,
        num_sms=num_sms,
        grid=(1 + max(track.cta for track in tracks),),
        grid_names=("cta",),
        cluster=(),
        num_warpgroups=1 + max(track.warpgroup for track in tracks),
        trace_scope="warp" if any(track.warp >= 0 for track in tracks) else "warpgroup",
        capacity=max(len(track.events) for track in tracks),
        profile_smem_bytes=0,
        record_cycles=0,
        smem_bytes=0,
        ctas_per_sm=1,
        peaks={},
        sites=sites,
        barriers=(),
        tool=tool,
        notes=notes,
    )
