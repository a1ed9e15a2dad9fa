"""The tree of tracks that a trace opens with.

    GPU 0 · H100 (simulated) · launch 1 · matmul
    ├── kernel                      one slice with everything known about the launch
    └── SM 000
        ├── TMA loads               as many lanes as loads overlap, drawn as one track
        ├── tensor core             likewise, and TMA stores
        ├── tma bytes in flight     counter
        └── CTA 0 (m=0, n=0)
            ├── full slots full     counter
            ├── WG0 compute         one track per warpgroup (or warp)
            └── WG2 memory

Order is explicit on every level, and tracks of the same name are kept apart unless they are lanes of one unit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import CounterDescriptor, TracePacket, TrackDescriptor

from profiler.export.track_events import SEQUENCE_ID
from profiler.trace import Trace

UNIT_TITLES = {"tma_load": "TMA loads", "tensor_core": "tensor core", "tma_store": "TMA stores"}


@dataclasses.dataclass(frozen=True)
class Layout:
    """The tracks of a file and where the rows of a Trace belong.

    Attributes:
      packets: the track descriptors.
      kernel: uuid of the track for the launch itself.
      tracks: uuid by track id, 0 for tracks that are left out.
      lanes: table `unit`, `sm`, `lane`, `uuid`.
      counters: table `counter`, `sm`, `cta`, `uuid`.
    """

    packets: list[TracePacket]
    kernel: int
    tracks: np.ndarray
    lanes: pl.DataFrame
    counters: pl.DataFrame


class _Tree:
    """Makes track descriptors with uuids counted from 1."""

    def __init__(self) -> None:
        self.packets: list[TracePacket] = []

    def add(self, name: str, parent: int = 0, rank: int = 0, **fields: object) -> int:
        uuid = len(self.packets) + 1
        descriptor = TrackDescriptor(
            uuid=uuid,
            name=name,
            sibling_order_rank=rank,
            child_ordering=TrackDescriptor.EXPLICIT,
            **({"sibling_merge_behavior": TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE} | fields),  # pyright: ignore[reportArgumentType]
        )
        if parent:
            descriptor.parent_uuid = parent
        self.packets.append(TracePacket(trusted_packet_sequence_id=SEQUENCE_ID, track_descriptor=descriptor))
        return uuid


def build_layout(trace: Trace, sms: Iterable[int], description: str) -> Layout:
    """Returns the track tree for some of a launch's SMs; `description` says units, clock and what is missing."""
    header = trace.header
    tree = _Tree()
    title = f"GPU 0 · {header.device.upper()} ({header.provenance}) · launch {header.launch} · {header.kernel}"
    root = tree.add(title, description=description)
    kernel = tree.add("kernel", root, -1, description=description)
    sm_uuid = {sm: tree.add(f"SM {sm:03d}", root, sm) for sm in sms}
    lanes = _add_lanes(tree, trace, sm_uuid)
    cta_uuid = _add_ctas(tree, trace, sm_uuid)
    tracks = np.zeros(trace.tracks.height, np.int64)
    own = trace.tracks.select("track", "sm", "cta", "warpgroup", "warp", "name")
    for track, sm, cta, warpgroup, warp, name in own.iter_rows():
        if sm in sm_uuid:
            tracks[track] = tree.add(name, cta_uuid[cta], warpgroup * 8 + warp + 1)
    counters = _add_counters(tree, trace, root, sm_uuid, cta_uuid)
    return Layout(tree.packets, kernel, tracks, lanes, counters)


def _add_ctas(tree: _Tree, trace: Trace, sm_uuid: dict[int, int]) -> dict[int, int]:
    """Adds a track per CTA below its SM, in the order in which they started."""
    header = trace.header
    begins = trace.tracks.group_by("cta", "sm", maintain_order=True).agg(pl.col("begin").min(), pl.col("cluster").min())
    uuids: dict[int, int] = {}
    is_clustered = max(header.cluster, default=1) > 1
    for rank, (cta, sm, _, cluster) in enumerate(begins.sort("begin", "cta").iter_rows()):
        if sm in sm_uuid:
            name = f"CTA {cta}{_grid_position(cta, header.grid, header.grid_names)}"
            uuids[cta] = tree.add(f"{name} cluster {cluster}" if is_clustered else name, sm_uuid[sm], rank)
    return uuids


def _grid_position(cta: int, grid: tuple[int, ...], names: tuple[str, ...]) -> str:
    """Returns ` (m=2, n=0)`, or nothing if the CTA number is not one of this grid."""
    if not grid or cta >= int(np.prod(grid)):
        return ""
    index = np.unravel_index(cta, grid)
    axes = names if len(names) == len(grid) else tuple(f"axis {i}" for i in range(len(grid)))
    return f" ({', '.join(f'{axis}={int(i)}' for axis, i in zip(axes, index, strict=True))})"


def _add_lanes(tree: _Tree, trace: Trace, sm_uuid: dict[int, int]) -> pl.DataFrame:
    found = trace.async_spans.select("sm", "unit", "lane").unique().sort("sm", "unit", "lane")
    rows = []
    order = list(UNIT_TITLES)
    for sm, unit, lane in found.iter_rows():
        if sm in sm_uuid:
            rank = -3000 + 1000 * order.index(unit) + min(lane, 998)
            uuid = tree.add(
                UNIT_TITLES[unit],
                sm_uuid[sm],
                rank,
                sibling_merge_behavior=TrackDescriptor.SIBLING_MERGE_BEHAVIOR_BY_SIBLING_MERGE_KEY,
                sibling_merge_key=unit,
            )
            rows.append((unit, sm, lane, uuid))
    schema = {"unit": pl.String, "sm": pl.Int32, "lane": pl.Int32, "uuid": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _add_counters(
    tree: _Tree, trace: Trace, root: int, sm_uuid: dict[int, int], cta_uuid: dict[int, int]
) -> pl.DataFrame:
    found = trace.counters.select("counter", "unit", "sm", "cta").unique(maintain_order=True)
    rows = []
    for counter, unit, sm, cta in found.iter_rows():
        parent = cta_uuid.get(cta) if cta >= 0 else sm_uuid.get(sm) if sm >= 0 else root
        if parent:
            axis = CounterDescriptor(y_axis_share_key=counter)
            if unit == "bytes":
                axis.unit = CounterDescriptor.UNIT_SIZE_BYTES
            else:
                axis.unit_name = unit
            rows.append((counter, sm, cta, tree.add(counter, parent, -1, counter=axis)))
    schema = {"counter": pl.String, "sm": pl.Int32, "cta": pl.Int32, "uuid": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")
