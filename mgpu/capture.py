"""The raw event buffer of one launch: word layout, header, file form. NumPy only; both targets fill it.

An event is two 32-bit words:

    word 0  tag      bits  0..13  site id           (at most 16384 sites)
                     bits 14..15  edge              (Edge: begin 0, end 1, instant 2)
                     bits 16..31  payload           (the barrier slot that the operation touched; 0 for others)
    word 1  clock    low 32 bits of the SM's cycle counter

A **track** is one writer: a warpgroup, or one of its warps under `TraceScope.WARP`. It stores its first `capacity`
events and counts all of them, so what did not fit is known exactly and nothing outside the buffer is written.
Each track has two anchors, at its first and last moment: the full 64-bit cycle counter and the global timer in ns.
They unwrap the 32-bit clocks and align SMs with each other.

A simulated launch also has **activity**: what each asynchronous unit did, cycle by cycle, and every arrival. It costs
the kernel nothing and no GPU can give it. A measured launch has empty activity tables.

`mgpu.profile_dir` says where captures live; `profiler.decode` turns them into events.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from mgpu.errors import CaptureError
from mgpu.sites import BarrierInfo, Edge, Site

FORMAT_VERSION = 1

SITE_BITS = 14
EDGE_BITS = 2
PAYLOAD_BITS = 16
MAX_SITES = 1 << SITE_BITS
MAX_PAYLOAD = (1 << PAYLOAD_BITS) - 1
EVENT_BYTES = 8

TRACK_DTYPE = np.dtype(
    [
        ("cta", "<u4"),  # linear CTA index in grid order, last grid axis fastest
        ("sm", "<u2"),
        ("warpgroup", "<u2"),
        ("warp", "<i2"),  # 0..3 in its warpgroup, -1 when the track is a whole warpgroup
        ("count", "<u4"),  # events that happened; min(count, capacity) are stored
        ("clock_begin", "<u8"),  # cycles
        ("clock_end", "<u8"),
        ("ns_begin", "<u8"),  # global timer
        ("ns_end", "<u8"),
    ]
)

UNITS = ("tma_load", "tma_store", "tensor_core")
UNIT_SPAN_DTYPE = np.dtype(
    [
        ("unit", "<u1"),  # index into UNITS
        ("sm", "<u2"),
        ("cta", "<u4"),
        ("warpgroup", "<u2"),  # who issued it
        ("site", "<i4"),  # where it was issued, -1 if that place is not a site
        ("slot", "<i4"),  # slot of the barrier that it completes, -1 if none
        ("begin", "<i8"),  # cycles: issued (TMA), first instruction enters the pipe (tensor core)
        ("end", "<i8"),  # cycles: data landed, last result ready
        ("bytes", "<u4"),
        ("flops", "<u8"),
    ]
)

ARRIVAL_DTYPE = np.dtype(
    [
        ("barrier", "<u2"),  # BarrierInfo.id
        ("slot", "<u2"),
        ("phase", "<u4"),  # completed phases before this arrival
        ("cta", "<u4"),  # whose barrier it is
        ("sm", "<u2"),
        ("time", "<i8"),  # cycles
        ("source", "<i2"),  # warpgroup that arrived, or -1 - index into UNITS for an asynchronous unit
        ("source_cta", "<u4"),
        ("site", "<i4"),  # site that arrived or issued the asynchronous work, -1 if unknown
        ("completes", "?"),  # True if this arrival completed the phase
    ]
)

HBM_DTYPE = np.dtype(
    [
        ("begin", "<i8"),  # cycles; a stretch is HBM_STRETCH_CYCLES long
        ("read_bytes", "<u8"),  # moved from HBM to L2 in the stretch
        ("write_bytes", "<u8"),
    ]
)
HBM_STRETCH_CYCLES = 256

# begin and end are cycles of the SM's own counter, as the clocks of its tracks are.
CTA_DTYPE = np.dtype([("cta", "<u4"), ("cluster", "<u4"), ("sm", "<u2"), ("begin", "<i8"), ("end", "<i8")])


# What reading a damaged archive may raise. RuntimeError: bits that say that it is encrypted, or in an unknown format.
DAMAGED_FILE = (
    OSError, KeyError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error
)  # fmt: skip


@functools.cache
def tool_version() -> str:
    """Returns the program and version that writes captures here, for their headers."""
    try:
        return f"mgpu {metadata.version('mgpu')}"
    except metadata.PackageNotFoundError:
        return "mgpu (run from its source tree)"


def pack_tag(site: int, edge: Edge, payload: int = 0) -> int:
    """Returns the tag word of an event. Payloads beyond 16 bits are clamped to `MAX_PAYLOAD`."""
    return site | int(edge) << SITE_BITS | min(payload, MAX_PAYLOAD) << (SITE_BITS + EDGE_BITS)


def unpack_tags(tags: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Splits tag words (u32) into site ids, edges and payloads (all int32)."""
    site = (tags & (MAX_SITES - 1)).astype(np.int32)
    edge = ((tags >> SITE_BITS) & 3).astype(np.int32)
    return site, edge, (tags >> (SITE_BITS + EDGE_BITS)).astype(np.int32)


@dataclasses.dataclass(frozen=True)
class CaptureHeader:
    """What is known about a launch besides its events.

    Attributes:
      kernel: name of the kernel.
      launch: which launch of that kernel in this process, from 1.
      provenance: "simulated", "measured", or "imported" from the trace of another tool.
      device: name in the device table, such as "h100".
      clock_hz: SM clock of the run in Hz (an input of a simulation, measured on a GPU).
      num_sms: SMs that the device has.
      grid, grid_names, cluster: shape of the launch.
      num_warpgroups: warpgroups in a CTA.
      trace_scope: "warpgroup" or "warp": what one track is.
      capacity: events that one track can store.
      profile_smem_bytes: SMEM that the event buffer took from each CTA.
      record_cycles: cycles that storing one event cost the recorded warpgroup.
      smem_bytes: SMEM of one CTA without the event buffer.
      ctas_per_sm: CTAs that fit on an SM at once.
      peaks: theoretical rates per SM and cycle, such as {"tensor_flops": 4096.0, "tma_bytes": 128.0}; may be empty.
      sites, barriers: what the numbers in the events and activity tables refer to.
      tool: version of the program that wrote the capture.
      traffic_bytes: bytes that the launch moved, by memory and direction, such as {"hbm_read": 4096}; empty if unknown.
      clock_rule: "power-capped" if a simulation settled at the clock that the power limit allows; empty otherwise.
      notes: what this capture cannot tell, in sentences: it was made from the trace of another tool, or only some CTAs
        or warpgroups were recorded.
    """

    kernel: str
    launch: int
    provenance: str
    device: str
    clock_hz: float
    num_sms: int
    grid: tuple[int, ...]
    grid_names: tuple[str, ...]
    cluster: tuple[int, ...]
    num_warpgroups: int
    trace_scope: str
    capacity: int
    profile_smem_bytes: int
    record_cycles: int
    smem_bytes: int
    ctas_per_sm: int
    peaks: Mapping[str, float]
    sites: tuple[Site, ...]
    barriers: tuple[BarrierInfo, ...]
    tool: str = ""
    traffic_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    notes: tuple[str, ...] = ()
    clock_rule: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the header as a JSON object, format version included."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        fields["peaks"] = dict(self.peaks)
        fields["traffic_bytes"] = dict(self.traffic_bytes)
        fields["sites"] = [site.to_json() for site in self.sites]
        fields["barriers"] = [vars(barrier) for barrier in self.barriers]
        return {"format_version": FORMAT_VERSION} | fields

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CaptureHeader:
        """Reads what `to_json` wrote.

        Raises:
          CaptureError: the header is of another format version, or a field is missing.
        """
        version = value.get("format_version")
        if version != FORMAT_VERSION:
            raise CaptureError(
                f"capture has format version {version}, this program reads {FORMAT_VERSION}. "
                "Open it with the version of mgpu that wrote it, or record it again."
            )
        names = {f.name for f in dataclasses.fields(cls)}
        fields = {name: value[name] for name in names if name in value}
        missing = sorted(names - fields.keys() - {"tool", "notes", "traffic_bytes", "clock_rule"})
        if missing:
            raise CaptureError(f"capture header lacks {', '.join(missing)}: the file is damaged or not a capture.")
        fields.setdefault("notes", ())
        for name in ("grid", "grid_names", "cluster", "notes"):
            fields[name] = tuple(fields[name])
        fields["sites"] = tuple(Site.from_json(site) for site in fields["sites"])
        fields["barriers"] = tuple(BarrierInfo(**barrier) for barrier in fields["barriers"])
        return cls(**fields)


@dataclasses.dataclass(frozen=True)
class Capture:
    """The raw record of one launch.

    Attributes:
      header: what the numbers mean.
      tracks: one row per writer (`TRACK_DTYPE`), ordered by CTA, warpgroup, warp.
      words: (events, 2) uint32: the stored events of all tracks, in track order and, within a track, in time order.
      ctas: where and when each CTA ran (`CTA_DTYPE`).
      unit_spans: activity of asynchronous units (`UNIT_SPAN_DTYPE`); empty if measured.
      arrivals: every arrival on a barrier (`ARRIVAL_DTYPE`); empty if measured.
      hbm: what HBM moved, stretch by stretch (`HBM_DTYPE`), stretches without traffic left out; empty if measured.
    """

    header: CaptureHeader
    tracks: np.ndarray
    words: np.ndarray
    ctas: np.ndarray
    unit_spans: np.ndarray
    arrivals: np.ndarray
    hbm: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0, HBM_DTYPE))

    def __post_init__(self) -> None:
        stored = int(self.stored_counts.sum())
        if self.words.shape != (stored, 2):
            raise CaptureError(
                f"capture of {self.header.kernel} holds event words of shape {self.words.shape}, but its tracks stored "
                f"{stored} events: expected ({stored}, 2). The file is damaged; record it again."
            )

    @property
    def stored_counts(self) -> np.ndarray:
        """Events stored, per track."""
        return np.minimum(self.tracks["count"].astype(np.int64), self.header.capacity)

    @property
    def dropped_counts(self) -> np.ndarray:
        """Events that did not fit, per track."""
        return self.tracks["count"].astype(np.int64) - self.stored_counts

    @property
    def offsets(self) -> np.ndarray:
        """Index of each track's first event in `words`, and the total at the end: int64[tracks + 1]."""
        return np.concatenate([[0], np.cumsum(self.stored_counts)]).astype(np.int64)

    @property
    def sufficient_profile_space(self) -> int:
        """The smallest `profile_space` with which no track would have dropped an event."""
        return int(self.tracks["count"].max(initial=0))

    def save(self, path: str | Path) -> None:
        """Writes the capture as a NumPy `.npz` whose `header` array is JSON text. Equal captures give equal bytes."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays["header"] = np.frombuffer(json.dumps(self.header.to_json(), sort_keys=True).encode(), np.uint8)
        try:
            with zipfile.ZipFile(path, "w") as archive:
                for name in sorted(arrays):
                    entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    buffer = io.BytesIO()
                    # Column by column, tags and clocks of events take 0.6 of the room and of the time.
                    np.lib.format.write_array(buffer, np.asfortranarray(arrays[name]), allow_pickle=False)
                    archive.writestr(entry, buffer.getbuffer(), compresslevel=1)
        except OSError as error:
            raise CaptureError(f"{path}: cannot write the capture: {error.strerror or error}.") from error

    @classmethod
    def load(cls, path: str | Path) -> Capture:
        """Reads a capture.

        Raises:
          CaptureError: the file is missing, truncated, foreign, or of another format version.
        """
        try:
            # np.load leaves a damaged file open when it is given a path.
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                header = json.loads(arrays["header"].tobytes())
                values = {name: arrays[name] for name in _ARRAYS if name in arrays or name not in _LATER_ARRAYS}
        except CaptureError:
            raise
        except FileNotFoundError as error:
            raise CaptureError(f"{path}: no such capture.") from error
        except DAMAGED_FILE as error:
            # NumPy's own words for a file that is no archive advise to unpickle it, which would run what is in it.
            reason = "its contents are something else" if isinstance(error, ValueError) else error
            raise CaptureError(f"{path}: not a capture, or truncated ({reason}). Record it again.") from error
        return cls(CaptureHeader.from_json(header), **values)


_ARRAYS = ("tracks", "words", "ctas", "unit_spans", "arrivals", "hbm")
_LATER_ARRAYS = ("hbm",)  # which captures of earlier versions lack
