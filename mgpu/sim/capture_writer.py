"""Makes the Capture of a simulated launch from what its recorders and activity log hold."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from mgpu.capture import HBM_DTYPE, HBM_STRETCH_CYCLES, TRACK_DTYPE, Capture, CaptureHeader, tool_version
from mgpu.params import TraceScope
from mgpu.sim.activity import Activity
from mgpu.sim.memory_system import MemoryCounters
from mgpu.sim.recorder import Recorder
from mgpu.units import WARPS_PER_WARPGROUP

if TYPE_CHECKING:
    from mgpu.sim.simulation import PreparedKernel


class FinishedTrack(NamedTuple):
    """What is kept of a warpgroup that has finished.

    Attributes:
      cta, sm, warpgroup: where it ran, and its number in the CTA.
      recorder: its event buffer, or None if nothing of it is recorded.
      begin, end: cycles of its first and last moment.
    """

    cta: int
    sm: int
    warpgroup: int
    recorder: Recorder | None
    begin: int
    end: int


def make_capture(
    kernel: PreparedKernel,
    launch_number: int,
    ctas_per_sm: int,
    ctas: np.ndarray,
    finished: Iterable[FinishedTrack],
    activity: Activity,
    traffic: MemoryCounters,
) -> Capture:
    """Returns the capture of a finished launch.

    Args:
      kernel: what ran.
      launch_number: which launch of it.
      ctas_per_sm: CTAs that fit on an SM at once.
      ctas: table of `CTA_DTYPE`.
      finished: all warpgroups of the launch.
      activity: its activity log.
      traffic: what its memory system moved.
    """
    window = kernel.program.params.profile_window
    recorded = (one for one in finished if window.records(one.cta, one.warpgroup))
    ordered = sorted(recorded, key=lambda one: (one.cta, one.warpgroup))
    # Warps that run in step share a recorder, so under WARP scope each writes what the warpgroup does.
    per_warp = kernel.program.params.profile_trace_scope is TraceScope.WARP
    warps: Sequence[int] = range(WARPS_PER_WARPGROUP) if per_warp else (-1,)
    recorders = [one.recorder.track(warp) if one.recorder else None for one in ordered for warp in warps]
    words = array("q")
    for recorder in recorders:
        if recorder is not None:
            words.extend(recorder.words)
    unit_spans, arrivals = (_of_recorded_ctas(kernel, table) for table in activity.to_arrays())
    return Capture(
        header=_header(kernel, launch_number, ctas_per_sm, traffic),
        tracks=_tracks(ordered, warps, recorders, kernel.device.clock_hz),
        words=np.array(words, np.int64).astype(np.uint32).reshape(-1, 2),  # clocks keep their low 32 bits
        ctas=ctas,
        unit_spans=unit_spans,
        arrivals=arrivals,
        hbm=_hbm_by_stretch(traffic),
    )


def _hbm_by_stretch(traffic: MemoryCounters) -> np.ndarray:
    """Sums up what HBM moved in stretches of equal length."""
    done, moved = np.array(traffic.hbm_log, np.int64).reshape(-1, 2).T
    stretches, number = np.unique(done // HBM_STRETCH_CYCLES, return_inverse=True)
    table = np.zeros(len(stretches), HBM_DTYPE)
    table["begin"] = stretches * HBM_STRETCH_CYCLES
    for name, part in (("read_bytes", moved > 0), ("write_bytes", moved < 0)):
        # Sums of bytes stay below 2**53, so the float64 that bincount adds in is exact.
        table[name] = np.bincount(number.reshape(-1)[part], np.abs(moved[part]), len(stretches))
    return table


def _of_recorded_ctas(kernel: PreparedKernel, table: np.ndarray) -> np.ndarray:
    ctas = kernel.program.params.profile_window.ctas
    return table if ctas is None else table[np.isin(table["cta"], ctas)]


def _tracks(
    ordered: Sequence[FinishedTrack], warps: Sequence[int], recorders: Sequence[Recorder | None], clock_hz: float
) -> np.ndarray:
    """Returns the table of tracks, one for each warpgroup and warp, in the order of `recorders`."""
    whole = np.array([(one.cta, one.sm, one.warpgroup, one.begin, one.end) for one in ordered], np.int64).reshape(-1, 5)
    table = np.empty(len(recorders), TRACK_DTYPE)
    names = ("cta", "sm", "warpgroup", "clock_begin", "clock_end")
    for name, column in zip(names, whole.repeat(len(warps), 0).T, strict=True):
        table[name] = column
    table["warp"] = np.tile(warps, len(ordered))
    table["count"] = [0 if recorder is None else recorder.count for recorder in recorders]
    for name in ("begin", "end"):
        table[f"ns_{name}"] = np.rint(table[f"clock_{name}"] * 1e9 / clock_hz)
    return table


def _header(kernel: PreparedKernel, launch_number: int, ctas_per_sm: int, traffic: MemoryCounters) -> CaptureHeader:
    program, device, budget = kernel.program, kernel.device, kernel.budget
    launch, params = program.launch, program.params
    return CaptureHeader(
        kernel=program.name,
        launch=launch_number,
        provenance="simulated",
        device=device.name,
        clock_hz=device.clock_hz,
        clock_rule="power-capped" if device.is_power_capped else "",
        num_sms=kernel.num_sms,
        grid=launch.grid,
        grid_names=launch.grid_names,
        cluster=launch.cluster,
        num_warpgroups=launch.num_threads,
        trace_scope=params.profile_trace_scope.value,
        capacity=params.profile_space,
        profile_smem_bytes=budget.profile_bytes if budget.profile_in_smem else 0,
        record_cycles=kernel.record_cycles or 0,
        smem_bytes=budget.smem_bytes,
        ctas_per_sm=ctas_per_sm,
        peaks={
            "tensor_flops": float(device.wgmma_flops_per_cycle),
            "tma_bytes": float(device.tma_bytes_per_cycle),
            "hbm_bytes": device.hbm_bandwidth / device.clock_hz / device.num_sms,
        },
        sites=kernel.plan.sites,
        barriers=kernel.plan.barriers,
        tool=tool_version(),
        notes=params.profile_window.notes(launch.num_ctas, launch.num_threads),
        traffic_bytes={
            "hbm_read": traffic.hbm_read_bytes,
            "hbm_write": traffic.hbm_write_bytes,
            "l2_read": traffic.l2_read_bytes,
            "l2_write": traffic.l2_write_bytes,
        },
    )
