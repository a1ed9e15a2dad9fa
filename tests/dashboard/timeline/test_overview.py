from __future__ import annotations

import dataclasses
import struct

import numpy as np

from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.timeline.overview import COLUMNS, encode_overview
from mgpu.profile_dir import save_launch
from support.captures import ring_capture


def decode(body: bytes) -> np.ndarray:
    magic, rows, columns = struct.unpack_from("<4sII", body)
    assert magic == b"MGO1"
    return np.frombuffer(body, np.uint8, offset=12).reshape(rows, columns)


def test_bytes_are_the_share_of_busy_time(ring: LoadedLaunch) -> None:
    pixels = decode(encode_overview(ring.trace))
    assert pixels.shape == (2, COLUMNS)
    # Each SM runs twelve MMAs of 100 cycles; a byte is off by half at most.
    busy_cycles = pixels.sum(1) / 255 * ring.trace.end / COLUMNS
    np.testing.assert_allclose(busy_cycles, 1200, atol=ring.trace.end / 510)
    # The first MMA begins 524 cycles after the start.
    column = 524 * COLUMNS // ring.trace.end
    assert not pixels[:, :column].any()
    assert pixels[:, column + 1].all()


def test_without_mmas_the_picture_shows_where_ctas_were(ring: LoadedLaunch) -> None:
    idle = dataclasses.replace(ring.trace, async_spans=ring.trace.async_spans.clear(), spans=ring.trace.spans.clear())
    pixels = decode(encode_overview(idle))
    ends = ring.trace.ctas.sort("sm")["end"].to_list()
    np.testing.assert_allclose(pixels.sum(1) / 255 * ring.trace.end / COLUMNS, ends, atol=ring.trace.end / 510)


def test_two_ctas_that_share_an_sm_are_not_counted_twice(tmp_path) -> None:
    save_launch(tmp_path, ring_capture(num_ctas=3, num_sms=1))
    store = LaunchStore(tmp_path)
    launch = store.find("")
    assert launch is not None
    trace = store.load(launch).trace
    overlapping = trace.ctas.with_columns(begin=trace.ctas["begin"] * 0, end=trace.ctas["end"] * 0 + trace.end)
    idle = dataclasses.replace(
        trace, async_spans=trace.async_spans.clear(), spans=trace.spans.clear(), ctas=overlapping
    )
    assert (decode(encode_overview(idle)) == 255).all()
