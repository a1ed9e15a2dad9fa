"""Makes the Capture of a simulated launch from what its recorders and activity log hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mgpu.capture import TRACK_DTYPE, Capture, CaptureHeader, tool_version
from mgpu.params import TraceScope
from mgpu.sim.activity import Activity
from mgpu.sim.memory_system import MemoryCounters
from mgpu.sim.warpgroup import Warpgroup
from mgpu.units import WARPS_PER_WARPGROUP

_NAMED = 8  # numbers that a note lists

if TYPE_CHECKING:
    from mgpu.sim.simulation import PreparedKernel


def make_capture(
    kernel: PreparedKernel,
    launch_number: int,
    ctas_per_sm: int,
    ctas: np.ndarray,
    warpgroups: Iterable[Warpgroup],
    activity: Activity,
    traffic: MemoryCounters,
) -> Capture:
    """Returns the capture of a finished launch.

    Args:
      kernel: what ran.
      launch_number: which launch of it.
      ctas_per_sm: CTAs that fit on an SM at once.
      ctas: table of `CTA_DTYPE`.
      warpgroups: all warpgroups of the launch, finished.
      activity: its activity log.
      traffic: what its memory system moved.
    """
    recorded = (one for one in warpgroups if kernel.options.records(one.cta.index, one.index))
    ordered = sorted(recorded, key=lambda warpgroup: (warpgroup.cta.index, warpgroup.index))
    # Warps that run in step share a recorder, so under WARP scope each writes what the warpgroup does.
    per_warp = kernel.program.params.profile_trace_scope is TraceScope.WARP
    warps: Sequence[int] = range(WARPS_PER_WARPGROUP) if per_warp else (-1,)
    tracks = [
        (
            warpgroup.cta.index,
            warpgroup.cta.sm.index,
            warpgroup.index,
            warp,
            warpgroup.recorder.track(warp).count if warpgroup.recorder else 0,
            warpgroup.begin,
            warpgroup.end,
            _nanoseconds(kernel, warpgroup.begin),
            _nanoseconds(kernel, warpgroup.end),
        )
        for warpgroup in ordered
        for warp in warps
    ]
    words = [
        np.array(warpgroup.recorder.track(warp).words, np.uint32).reshape(-1, 2)
        for warpgroup in ordered
        for warp in warps
        if warpgroup.recorder is not None
    ]
    unit_spans, arrivals = (_of_recorded_ctas(kernel, table) for table in activity.to_arrays())
    return Capture(
        header=_header(kernel, launch_number, ctas_per_sm, traffic),
        tracks=np.array(tracks, TRACK_DTYPE),
        words=np.concatenate(words) if words else np.zeros((0, 2), np.uint32),
        ctas=ctas,
        unit_spans=unit_spans,
        arrivals=arrivals,
    )


def _of_recorded_ctas(kernel: PreparedKernel, table: np.ndarray) -> np.ndarray:
    ctas = kernel.options.record_ctas
    return table if ctas is None else table[np.isin(table["cta"], ctas)]


def _filter_notes(kernel: PreparedKernel) -> tuple[str, ...]:
    """Says what was left out on purpose."""
    launch, options = kernel.program.launch, kernel.options
    notes = []
    for name, numbers, limit in (
        ("CTAs", options.record_ctas, launch.num_ctas),
        ("warpgroups", options.record_warpgroups, launch.num_threads),
    ):
        if numbers is not None and len(numbers) < limit:
            first = ", ".join(map(str, numbers[:_NAMED])) + (", ..." if len(numbers) > _NAMED else "")
            notes.append(
                f"only {name} {first} were recorded, {len(numbers)} of {limit}; "
                "tensor-core use and every share are of these"
            )
    return tuple(notes)


def _nanoseconds(kernel: PreparedKernel, cycles: int) -> int:
    return round(cycles * 1e9 / kernel.device.clock_hz)


def _header(kernel: PreparedKernel, launch_number: int, ctas_per_sm: int, traffic: MemoryCounters) -> CaptureHeader:
    program, device, budget = kernel.program, kernel.device, kernel.budget
    launch, params = program.launch, program.params
    return CaptureHeader(
        kernel=program.name,
        launch=launch_number,
        provenance="simulated",
        device=device.name,
        clock_hz=device.clock_hz,
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
        notes=_filter_notes(kernel),
        traffic_bytes={
            "hbm_read": traffic.hbm_read_bytes,
            "hbm_write": traffic.hbm_write_bytes,
            "l2_read": traffic.l2_read_bytes,
            "l2_write": traffic.l2_write_bytes,
        },
    )
