"""A window of some rows of the timeline, and its wire format."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from dashboard.timeline.index import TimelineIndex
from dashboard.timeline.merging import Boxes, merge_narrow

MAX_ROWS = 600
MAX_WIDTH = 8192
_DENSE = 200_000  # boxes of one lane in a window from which on its coarse copy is used
_HEADER = struct.Struct("<4sIQdd")
MAGIC = b"MGT1"


def visible_boxes(
    index: TimelineIndex, rows: Sequence[int], t0: float, t1: float, width: int
) -> tuple[Boxes, np.ndarray, np.ndarray, int]:
    """Finds what a window shows.

    Args:
      index: the launch.
      rows: numbers of the rows to draw.
      t0, t1: the window in cycles.
      width: pixels that it is drawn on.

    Returns:
      The boxes, the row and the depth of each, and how many boxes they stand for.
    """
    pixel_cycles = max((t1 - t0) / max(width, 1), 1e-9)
    parts, row_parts, depth_parts = [Boxes.none()], [], []
    for row in rows:
        lanes = index.lanes_with(row)
        for lane in lanes.of_row(row):
            boxes = lanes.lane(lane).window(t0, t1)
            if len(boxes) > _DENSE and lane in lanes.coarse:
                boxes = lanes.coarse[lane].window(t0, t1)
            merged = merge_narrow(boxes, t0, pixel_cycles)
            parts.append(merged)
            row_parts.append(np.full(len(merged), row, np.int64))
            depth_parts.append(np.full(len(merged), lanes.depth[lane], np.int64))
    boxes = Boxes(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in vars(parts[0])})
    empty = np.zeros(0, np.int64)
    rows_of = np.concatenate([empty, *row_parts])
    return boxes, rows_of, np.concatenate([empty, *depth_parts]), int(boxes.count.sum())


def encode_window(index: TimelineIndex, rows: Sequence[int], t0: float, t1: float, width: int) -> bytes:
    """Packs a window for the browser, little endian.

    Header: "MGT1", number of boxes n (u32), boxes that they stand for (u64), t0 and t1 (f64). Then columns of n:
    begin - t0 (f32), length (f32), id (u32), count (u32), row (u16, its place in `rows`), style (u16), phase (i16, at
    most 32767), slot (i8), depth (u8). 24 bytes a box; a float32 is exact for windows of up to 2**24 cycles.
    """
    boxes, row, depth, stands_for = visible_boxes(index, rows, t0, t1, width)
    place = np.zeros(max(rows, default=0) + 1, np.int64)
    place[list(rows)] = np.arange(len(rows))
    columns = (
        (boxes.begin - t0).astype("<f4"),
        (boxes.end - boxes.begin).astype("<f4"),
        boxes.id.astype("<u4"),
        np.minimum(boxes.count, (1 << 32) - 1).astype("<u4"),
        place[row].astype("<u2"),
        boxes.style.astype("<u2"),
        np.minimum(boxes.phase, 32767).astype("<i2"),
        np.minimum(boxes.slot, 127).astype("<i1"),
        depth.astype("<u1"),
    )
    header = _HEADER.pack(MAGIC, len(boxes), stands_for, t0, t1)
    return header + b"".join(column.tobytes() for column in columns)
