"""The launch as a small picture: how busy every SM was over time. The strip above the timeline."""

from __future__ import annotations

import struct

import numpy as np
import polars as pl

from dashboard.figures.sms import busy_raster
from dashboard.timeline.losses import tensor_core_intervals
from profiler import Trace

COLUMNS = 1200
MAGIC = b"MGO1"
_HEADER = struct.Struct("<4sII")


def encode_overview(trace: Trace) -> bytes:
    """Packs the picture for the browser: "MGO1", rows and columns (u32, little endian), then a byte each, row by row.

    A row is an SM, a column 1/1200 of the launch, a byte the share of it (0 to 255) in which the SM's tensor core had
    an MMA in flight. In a launch without MMAs it is the share in which a CTA was there.
    """
    intervals = tensor_core_intervals(trace)
    if intervals.is_empty():
        intervals = _occupied(trace)
    columns = {name: intervals[name].to_numpy().astype(np.int64) for name in ("sm", "begin", "end")}
    raster = busy_raster(columns["sm"], columns["begin"], columns["end"], max(trace.end, 1), COLUMNS)
    pixels = np.clip(np.round(raster * 255), 0, 255).astype(np.uint8)
    return _HEADER.pack(MAGIC, *pixels.shape) + pixels.tobytes()


def _occupied(trace: Trace) -> pl.DataFrame:
    """Returns `sm, begin, end` of the stretches with at least one CTA, cut so that none overlap."""
    ctas = trace.ctas.sort("sm", "begin", "cta")
    taken = pl.col("end").cum_max().shift(1).over("sm").fill_null(0)
    return ctas.with_columns(begin=pl.max_horizontal("begin", taken)).filter(pl.col("begin") < pl.col("end"))
