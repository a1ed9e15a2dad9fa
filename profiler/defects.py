"""Defects: what a capture did not tell, counted per track and said in words, so that nothing is lost in silence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np
import polars as pl

from profiler.trace import DEFECTS


@dataclasses.dataclass(frozen=True)
class Defect:
    """One kind of flaw of one track (-1: of no single track), and how many events it touched."""

    kind: str
    track: int
    count: int
    message: str


def count_per_track(kind: str, tracks: np.ndarray, message: str) -> list[Defect]:
    """Returns one defect for each track that occurs in `tracks`, which has one entry per flawed event."""
    found, counts = np.unique(tracks, return_counts=True)
    return [Defect(kind, int(track), int(count), message) for track, count in zip(found, counts, strict=True)]


def defects_table(defects: Iterable[Defect]) -> pl.DataFrame:
    """Returns the defects as the `defects` table of a Trace, by track."""
    rows = sorted(defects, key=lambda defect: (defect.track, defect.kind))
    return pl.DataFrame([dataclasses.astuple(row) for row in rows], schema=dict(DEFECTS), orient="row")
