"""Captures made by hand: a ring pipeline whose every moment follows from a few lines of arithmetic, no simulator.

One memory warpgroup (WG2) loads tiles into a ring of `stages` slots; two consumers (WG0, WG1) multiply them. Per CTA:

    memory    iteration i: wait empty[i % stages] (from the second round on), issue one TMA load (`issue_cycles`)
    TMA       a load lands `tma_cycles` after its issue began and completes full[i % stages]
    consumer  iteration i: wait full[i % stages], issue an MMA (`issue_cycles`), wait for it, arrive on empty[...]
    tensor    runs one MMA at a time, `mma_cycles` each, in the order of issue (WG0 before WG1)

A blocked wait ends `wake_cycles` after the arrival that completes its phase; one that need not block takes as long.
With the defaults (2 stages, 6 iterations, tma 500, mma 100, issue 20, wake 4, CTA starting at 1000) and two consumers
the memory warpgroup issues loads 0 and 1 at 1000 and 1020, they land at 1500 and 1520; WG0 waits 1000..1504, issues
..1524, its MMA runs 1524..1624 and WG1's 1624..1724, so empty[0] completes at 1728 (both consumers see their result
`wake_cycles` later) and the memory warpgroup, blocked since 1040, goes on at 1732.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mgpu.capture import ARRIVAL_DTYPE, CTA_DTYPE, TRACK_DTYPE, UNIT_SPAN_DTYPE, Capture, CaptureHeader, pack_tag
from mgpu.sites import BarrierInfo, Edge, Site, SiteKind

LOAD, WAIT_EMPTY, TMA, COMPUTE, WAIT_FULL, MMA, MMA_WAIT, ARRIVE = range(8)
FULL, EMPTY = 0, 1
NUM_CONSUMERS = 2
MEMORY_WARPGROUP = 2
TILE_BYTES = 16384
TILE_FLOPS = 2 * 64 * 128 * 64

SITES = (
    Site(LOAD, "load", SiteKind.SCOPE, "kernels/ring.py", 10, "ring"),
    Site(WAIT_EMPTY, "barrier_wait empty", SiteKind.BARRIER_WAIT, "kernels/ring.py", 11, "ring", "empty", scope="load"),
    Site(
        TMA,
        "copy_gmem_to_smem a",
        SiteKind.TMA_LOAD,
        "kernels/ring.py",
        12,
        "ring",
        "full",
        "a",
        TILE_BYTES,
        scope="load",
    ),
    Site(COMPUTE, "compute", SiteKind.SCOPE, "kernels/ring.py", 20, "ring"),
    Site(WAIT_FULL, "barrier_wait full", SiteKind.BARRIER_WAIT, "kernels/ring.py", 21, "ring", "full", scope="compute"),
    Site(MMA, "wgmma", SiteKind.MMA_ISSUE, "kernels/ring.py", 22, "ring", flops=TILE_FLOPS, scope="compute"),
    Site(MMA_WAIT, "wgmma_wait", SiteKind.MMA_WAIT, "kernels/ring.py", 23, "ring", scope="compute"),
    Site(
        ARRIVE, "barrier_arrive empty", SiteKind.BARRIER_ARRIVE, "kernels/ring.py", 24, "ring", "empty", scope="compute"
    ),
)


@dataclasses.dataclass(frozen=True)
class Ring:
    """Costs and shape of the pipeline; times in cycles."""

    num_ctas: int = 2
    num_sms: int = 2
    stages: int = 2
    iterations: int = 6
    tma_cycles: int = 500
    mma_cycles: int = 100
    issue_cycles: int = 20
    wake_cycles: int = 4
    start_cycles: int = 1000
    hold_cycles: int = 0
    late_cycles: int = 0


class _Recorder:
    """The event lists and activity tables of a launch while it is made."""

    def __init__(self) -> None:
        self.events: dict[tuple[int, int], list[tuple[int, int, int, int]]] = {}
        self.unit_spans: list[tuple[int, ...]] = []
        self.arrivals: list[tuple[int | bool, ...]] = []
        self.ctas: list[tuple[int, ...]] = []

    def span(self, track: tuple[int, int], site: int, begin: int, end: int, slot: int = 0) -> None:
        events = self.events.setdefault(track, [])
        events.append((site, Edge.BEGIN, slot, begin))
        events.append((site, Edge.END, slot, end))

    def add(self, track: tuple[int, int], site: int, edge: Edge, time: int, slot: int = 0) -> None:
        self.events.setdefault(track, []).append((site, edge, slot, time))


def ring_capture(
    num_ctas: int = 2,
    stages: int = 2,
    iterations: int = 6,
    *,
    num_sms: int | None = None,
    tma_cycles: int = 500,
    mma_cycles: int = 100,
    issue_cycles: int = 20,
    wake_cycles: int = 4,
    start_cycles: int = 1000,
    hold_cycles: int = 0,
    late_cycles: int = 0,
    capacity: int = 1024,
    activity: bool = True,
    trace_scope: str = "warpgroup",
    clock_hz: float = 1.755e9,
    kernel: str = "ring",
    sm_clock_offsets: tuple[int, ...] = (),
) -> Capture:
    """Returns the capture of a ring pipeline.

    Args:
      num_ctas, num_sms: CTAs and SMs; CTA i runs on SM i % num_sms, after that SM's earlier ones. Default: one each.
      stages, iterations: slots of the ring, tiles per CTA.
      tma_cycles, mma_cycles, issue_cycles, wake_cycles: costs, see the module.
      hold_cycles, late_cycles: what a consumer does besides, after its MMA: before its arrival, and after it.
      start_cycles: SM clock at which the launch begins; near 2**32 it makes the 32-bit clocks wrap.
      capacity: events that a track stores.
      activity: False leaves out unit spans and arrivals and calls the capture measured, as from a GPU.
      trace_scope: "warpgroup", or "warp": four equal tracks per warpgroup.
      sm_clock_offsets: cycles by which each SM's counter runs ahead of SM 0's; the global timer agrees on all SMs.
    """
    ring = Ring(
        num_ctas,
        num_sms or num_ctas,
        stages,
        iterations,
        tma_cycles,
        mma_cycles,
        issue_cycles,
        wake_cycles,
        start_cycles,
        hold_cycles,
        late_cycles,
    )
    recorder = _Recorder()
    free_at = [ring.start_cycles] * ring.num_sms
    for cta in range(num_ctas):
        sm = cta % ring.num_sms
        free_at[sm] = _run_cta(ring, recorder, cta, sm, free_at[sm])
    return _assemble(ring, recorder, capacity, activity, trace_scope, clock_hz, kernel, sm_clock_offsets)


def _run_cta(ring: Ring, out: _Recorder, cta: int, sm: int, start: int) -> int:
    """Records one CTA that starts at `start`; returns when its last warpgroup is done."""
    memory_time, tensor_free = start, 0
    consumer_time = [start] * NUM_CONSUMERS
    empty_at: list[int] = []
    for i in range(ring.iterations):
        slot, phase = i % ring.stages, i // ring.stages
        released = empty_at[i - ring.stages] if i >= ring.stages else None
        memory_time, landed = _load(ring, out, cta, sm, slot, memory_time, released)
        out.arrivals.append((FULL, slot, phase, cta, sm, landed, -1, cta, TMA, True))
        done = []
        for warpgroup in range(NUM_CONSUMERS):
            track = (cta, warpgroup)
            begin = consumer_time[warpgroup]
            out.add(track, COMPUTE, Edge.BEGIN, begin)
            ready = max(begin, landed) + ring.wake_cycles
            out.span(track, WAIT_FULL, begin, ready, slot)
            issued = ready + ring.issue_cycles
            out.span(track, MMA, ready, issued)
            mma_begin = max(issued, tensor_free)
            tensor_free = mma_begin + ring.mma_cycles
            out.unit_spans.append((2, sm, cta, warpgroup, MMA, -1, mma_begin, tensor_free, 0, TILE_FLOPS))
            finished = tensor_free + ring.wake_cycles
            out.span(track, MMA_WAIT, issued, finished)
            released = finished + ring.hold_cycles
            out.add(track, ARRIVE, Edge.INSTANT, released, slot)
            consumer_time[warpgroup] = released + ring.late_cycles
            out.add(track, COMPUTE, Edge.END, consumer_time[warpgroup])
            out.arrivals.append(
                (EMPTY, slot, phase, cta, sm, released, warpgroup, cta, ARRIVE, warpgroup == NUM_CONSUMERS - 1)
            )
            done.append(released)
        empty_at.append(max(done))
    end = max(memory_time, *consumer_time)
    out.ctas.append((cta, cta, sm, start, end))
    return end


def _load(
    ring: Ring, out: _Recorder, cta: int, sm: int, slot: int, begin: int, released: int | None
) -> tuple[int, int]:
    """Records one iteration of the memory warpgroup; returns when it ends and when its load lands."""
    track = (cta, MEMORY_WARPGROUP)
    out.add(track, LOAD, Edge.BEGIN, begin)
    issue = begin
    if released is not None:
        issue = max(begin, released) + ring.wake_cycles
        out.span(track, WAIT_EMPTY, begin, issue, slot)
    out.span(track, TMA, issue, issue + ring.issue_cycles, slot)
    out.add(track, LOAD, Edge.END, issue + ring.issue_cycles)
    landed = issue + ring.tma_cycles
    out.unit_spans.append((0, sm, cta, MEMORY_WARPGROUP, TMA, slot, issue, landed, TILE_BYTES, 0))
    return issue + ring.issue_cycles, landed


def _assemble(
    ring: Ring,
    recorder: _Recorder,
    capacity: int,
    activity: bool,
    trace_scope: str,
    clock_hz: float,
    kernel: str,
    sm_clock_offsets: tuple[int, ...],
) -> Capture:
    offsets = sm_clock_offsets or (0,) * ring.num_sms
    warps = (0, 1, 2, 3) if trace_scope == "warp" else (-1,)
    tracks, words = [], []
    for (cta, warpgroup), events in sorted(recorder.events.items()):
        begin = recorder.ctas[cta][3]
        end = events[-1][3]
        sm = cta % ring.num_sms
        ns = [round(cycles * 1e9 / clock_hz) for cycles in (begin, end)]
        clocks = np.array([(event[3] + offsets[sm]) & 0xFFFFFFFF for event in events[:capacity]], np.uint32)
        tags = np.array([pack_tag(site, Edge(edge), slot) for site, edge, slot, _ in events[:capacity]], np.uint32)
        for warp in warps:
            tracks.append((cta, sm, warpgroup, warp, len(events), begin + offsets[sm], end + offsets[sm], *ns))
            words.append(np.stack([tags, clocks], 1))
    ctas = [
        (cta, cluster, sm, begin + offsets[sm], end + offsets[sm]) for cta, cluster, sm, begin, end in recorder.ctas
    ]
    arrivals = sorted(recorder.arrivals, key=lambda row: row[5])
    return Capture(
        header=_header(ring, capacity, activity, trace_scope, clock_hz, kernel),
        tracks=np.array(tracks, TRACK_DTYPE),
        words=np.concatenate(words) if words else np.zeros((0, 2), np.uint32),
        ctas=np.array(ctas, CTA_DTYPE),
        unit_spans=np.array(recorder.unit_spans if activity else [], UNIT_SPAN_DTYPE),
        arrivals=np.array(arrivals if activity else [], ARRIVAL_DTYPE),
    )


def _header(ring: Ring, capacity: int, activity: bool, trace_scope: str, clock_hz: float, kernel: str) -> CaptureHeader:
    return CaptureHeader(
        kernel=kernel,
        launch=1,
        provenance="simulated" if activity else "measured",
        device="h100",
        clock_hz=clock_hz,
        num_sms=132,
        grid=(ring.num_ctas,),
        grid_names=("m",),
        cluster=(),
        num_warpgroups=NUM_CONSUMERS + 1,
        trace_scope=trace_scope,
        capacity=capacity,
        profile_smem_bytes=(NUM_CONSUMERS + 1) * capacity * 8,
        record_cycles=0,
        smem_bytes=ring.stages * TILE_BYTES,
        ctas_per_sm=1,
        peaks={"tensor_flops": 4096.0, "tma_bytes": 128.0},
        sites=SITES,
        barriers=(
            BarrierInfo(FULL, "full", ring.stages, 1),
            BarrierInfo(EMPTY, "empty", ring.stages, NUM_CONSUMERS),
        ),
        tool="test",
    )
