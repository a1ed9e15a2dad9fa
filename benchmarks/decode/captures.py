"""Captures of any size: the ring pipeline of the tests, repeated over CTAs on 132 SMs."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from mgpu.capture import Capture
from support.captures import ring_capture

NUM_SMS = 132
ITERATIONS = 256


def repeat_capture(num_events: int) -> Capture:
    """Returns a capture of at least `num_events` events: one CTA's, repeated on all SMs, wave after wave."""
    one = ring_capture(num_ctas=1, iterations=ITERATIONS, stages=4, capacity=1 << 16)
    copies = -(-num_events // len(one.words))
    cta = np.arange(copies)
    cycles = int(one.ctas["end"][0] - one.ctas["begin"][0])
    start = cta // NUM_SMS * (cycles + 100)

    def tile(table: np.ndarray, *times: str) -> np.ndarray:
        rows = np.tile(table, copies)
        owner = np.repeat(cta, len(table))
        for name in ("cta", "cluster", "source_cta"):
            if name in (table.dtype.names or ()):
                rows[name] = owner
        rows["sm"] = owner % NUM_SMS
        for name in times:
            rows[name] += start[owner].astype(rows[name].dtype)
        return rows

    words = np.tile(one.words, (copies, 1))
    words[:, 1] += np.repeat(start, len(one.words)).astype(np.uint32)
    return dataclasses.replace(
        one,
        header=dataclasses.replace(one.header, grid=(copies,)),
        tracks=tile(one.tracks, "clock_begin", "clock_end"),
        words=words,
        ctas=tile(one.ctas, "begin", "end"),
        unit_spans=tile(one.unit_spans, "begin", "end"),
        arrivals=tile(one.arrivals, "time"),
    )
