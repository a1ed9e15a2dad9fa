"""From the words that a launch returned to its Capture.

A CTA's words hold its tracks one after another: warpgroup by warpgroup, warp by warp. A track (`track_words`) is a
count, the SM, the two anchors, then `capacity` events of two words, then spill places whose contents mean nothing.
"""

from __future__ import annotations

import numpy as np

from mgpu.capture import (
    ARRIVAL_DTYPE,
    CTA_DTYPE,
    EVENT_BYTES,
    TRACK_DTYPE,
    UNIT_SPAN_DTYPE,
    Capture,
    CaptureHeader,
    tool_version,
)
from mgpu.devices import Device
from mgpu.errors import CaptureError
from mgpu.frontend.program import KernelProgram
from mgpu.gpu.placement import buffer_bytes, smem_bytes
from mgpu.gpu.ptx import HEADER_BYTES, RUN_EVENTS
from mgpu.gpu.recorder import RecordFormat
from mgpu.gpu.target import words_type
from mgpu.passes.sites import SitePlan
from mgpu.units import WARPS_PER_WARPGROUP

# A rate outside this range is an artefact of a launch shorter than a tick of the global timer.
_PLAUSIBLE_HZ = (2e8, 4e9)


def track_words(capacity: int) -> np.dtype:
    """Returns the layout of one track in the words that a launch returns."""
    layout = np.dtype(
        [
            ("count", "<u4"),
            ("sm", "<u4"),
            ("clock_begin", "<u8"),
            ("clock_end", "<u8"),
            ("ns_begin", "<u8"),
            ("ns_end", "<u8"),
            ("reserved", "<u8"),
            ("events", "<u4", (capacity, 2)),
            ("spill", "<u4", (RUN_EVENTS, EVENT_BYTES // 4)),
        ]
    )
    fields = layout.fields or {}
    assert fields["events"][1] == HEADER_BYTES
    return layout


def read_capture(
    program: KernelProgram,
    plan: SitePlan,
    layout: RecordFormat,
    device: Device,
    words: np.ndarray,
    launch_number: int,
) -> Capture:
    """Makes the capture of a finished launch.

    Args:
      program: what ran.
      plan: its sites.
      layout: how its events were stored.
      device: table of the GPU that ran it.
      words: uint32[recorded CTAs, layout.gmem_words], as the launch returned them.
      launch_number: which launch of the kernel, from 1.

    Raises:
      CaptureError: the words are not those of such a launch.
    """
    expected = words_type(layout, program.launch).shape
    if words.shape != expected or words.dtype != np.uint32:
        raise CaptureError(
            f"recorded words of {program.name} are {words.dtype}{list(words.shape)}, expected uint32{list(expected)}: "
            "they belong to another launch."
        )
    raw = np.ascontiguousarray(words).view(track_words(layout.capacity))
    tracks = _tracks(raw, layout, program.launch.num_ctas)
    stored = np.minimum(tracks["count"], layout.capacity)
    is_stored = np.arange(layout.capacity) < stored[:, None]
    ctas = _ctas(tracks, program.launch.cluster_size)
    return Capture(
        header=_header(program, plan, layout, device, tracks, ctas, launch_number),
        tracks=tracks,
        words=raw["events"].reshape(-1, layout.capacity, 2)[is_stored],
        ctas=ctas,
        unit_spans=np.zeros(0, UNIT_SPAN_DTYPE),
        arrivals=np.zeros(0, ARRIVAL_DTYPE),
    )


def _tracks(raw: np.ndarray, layout: RecordFormat, num_ctas: int) -> np.ndarray:
    tracks = np.zeros(raw.shape, TRACK_DTYPE)
    tracks["cta"] = np.array(layout.window.recorded_ctas(num_ctas))[:, None]
    tracks["warpgroup"] = np.repeat(layout.warpgroups, WARPS_PER_WARPGROUP if layout.per_warp else 1)
    tracks["warp"] = np.tile(np.arange(WARPS_PER_WARPGROUP), len(layout.warpgroups)) if layout.per_warp else -1
    for name in ("count", "sm", "clock_begin", "clock_end", "ns_begin", "ns_end"):
        tracks[name] = raw[name]
    return tracks.reshape(-1)


def _ctas(tracks: np.ndarray, cluster_size: int) -> np.ndarray:
    """Returns where and when each CTA ran: from its first track's begin to its last track's end."""
    by_cta = tracks.reshape(len(np.unique(tracks["cta"])), -1)
    ctas = np.zeros(len(by_cta), CTA_DTYPE)
    ctas["cta"] = by_cta["cta"][:, 0]
    ctas["cluster"] = ctas["cta"] // cluster_size
    ctas["sm"] = by_cta["sm"][:, 0]
    ctas["begin"] = by_cta["clock_begin"].min(axis=1)
    ctas["end"] = by_cta["clock_end"].max(axis=1)
    return ctas


def clock_rate(tracks: np.ndarray, nominal_hz: float) -> float:
    """Returns the SM clock in Hz that the anchors of the tracks tell, or `nominal_hz` if the launch was too short."""
    cycles = float((tracks["clock_end"] - tracks["clock_begin"]).sum())
    ns = float((tracks["ns_end"] - tracks["ns_begin"]).sum())
    measured = cycles * 1e9 / ns if ns else 0.0
    return measured if _PLAUSIBLE_HZ[0] <= measured <= _PLAUSIBLE_HZ[1] else nominal_hz


def most_concurrent_ctas(ctas: np.ndarray) -> int:
    """Returns the most CTAs that ran on one SM at the same time; CTAs of an SM share its clock."""
    most = 1
    for sm in np.unique(ctas["sm"]):
        here = ctas[ctas["sm"] == sm]
        times = np.concatenate([here["begin"], here["end"]])
        steps = np.repeat([1, -1], len(here))
        # At equal times an end comes before a begin.
        most = max(most, int(np.cumsum(steps[np.lexsort((steps, times))]).max()))
    return most


def _header(
    program: KernelProgram,
    plan: SitePlan,
    layout: RecordFormat,
    device: Device,
    tracks: np.ndarray,
    ctas: np.ndarray,
    launch_number: int,
) -> CaptureHeader:
    launch = program.launch
    clock_hz = clock_rate(tracks, device.clock_hz)
    return CaptureHeader(
        kernel=program.name,
        launch=launch_number,
        provenance="measured",
        device=device.name,
        clock_hz=clock_hz,
        num_sms=device.num_sms,
        grid=launch.grid,
        grid_names=launch.grid_names,
        cluster=launch.cluster,
        num_warpgroups=launch.num_threads,
        trace_scope=layout.trace_scope.value,
        capacity=layout.capacity,
        profile_smem_bytes=buffer_bytes(layout) if layout.in_smem else 0,
        record_cycles=device.record_event_cycles,
        smem_bytes=smem_bytes(program),
        ctas_per_sm=most_concurrent_ctas(ctas),
        peaks={
            "tensor_flops": float(device.wgmma_flops_per_cycle),
            "tma_bytes": float(device.tma_bytes_per_cycle),
            "hbm_bytes": device.hbm_bandwidth / clock_hz / device.num_sms,
        },
        sites=plan.sites,
        barriers=plan.barriers,
        tool=tool_version(),
        notes=layout.window.notes(launch.num_ctas, launch.num_threads),
    )
