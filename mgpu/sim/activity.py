"""The activity log of a launch: what each asynchronous unit did, and every arrival on a barrier.

Rows are logged while the simulation runs and become the tables `UNIT_SPAN_DTYPE` and `ARRIVAL_DTYPE` of
`mgpu.capture`. They wait in an array, one row's numbers after the other. Each row comes as a list: arrays take its
numbers at once, while they are in the processor's caches, and in half the time that a tuple's would take.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mgpu.capture import ARRIVAL_DTYPE, UNIT_SPAN_DTYPE
from mgpu.sim.engine import Engine

_SPAN_ROW = ("unit", "site", "slot", "begin", "end", "bytes", "flops")
_ARRIVAL_ROW = ("phase", "time", "completes")


class Activity:
    """Append-only log of one launch."""

    __slots__ = ("_arrivals", "_issuers", "_places", "_sources", "_spans")

    def __init__(self) -> None:
        self._spans = array("q")  # number of the issuer, then the columns `_SPAN_ROW`
        self._issuers: list[tuple[int, int, int]] = []  # sm, cta, warpgroup
        self._arrivals = array("q")  # numbers of the place and of the source, then the columns `_ARRIVAL_ROW`
        self._places: list[tuple[int, int, int, int]] = []  # barrier, slot, cta, sm
        self._sources = _Numbers()

    def arrival_log(
        self, engine: Engine, barrier: int, slot: int, cta: int, sm: int
    ) -> Callable[[object, Any, int, bool], None]:
        """Returns a function (mbarrier, source, phase, completes) that logs arrivals on one slot of a barrier.

        `source` is (source, site) or, for who arrives from another CTA, (source, site, source_cta).
        """
        append, sources, place = self._arrivals.fromlist, self._sources, len(self._places)
        self._places.append((barrier, slot, cta, sm))

        def log(_mbarrier: object, source: Any, phase: int, completes: bool) -> None:
            append([place, sources[source], phase, engine.now, completes])

        return log

    def unit_log(self, sm: int, cta: int, warpgroup: int) -> Callable[[int, int, int, int, int, int, int], None]:
        """Returns a function (unit, site, slot, begin, end, nbytes, flops) that logs what one warpgroup issues.

        Its arguments are the columns of `UNIT_SPAN_DTYPE`; `unit` is an index into `mgpu.capture.UNITS`, `site` where
        the operation was issued (-1 if that place is no site), `slot` that of the barrier which it completes (-1 if
        none).
        """
        append, issuer = self._spans.fromlist, len(self._issuers)
        self._issuers.append((sm, cta, warpgroup))

        def log(unit: int, site: int, slot: int, begin: int, end: int, nbytes: int, flops: int) -> None:
            append([issuer, unit, site, slot, begin, end, nbytes, flops])

        return log

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the unit spans sorted by (unit, sm, begin, ...) and the arrivals sorted by (time, cta, barrier, ...).

        All columns take part in the order, so the result does not depend on the order of logging.
        """
        issuer, *row = _columns(self._spans, 1 + len(_SPAN_ROW))
        spans = _named(_SPAN_ROW, row) | _named(("sm", "cta", "warpgroup"), _table(self._issuers, 3)[issuer].T)
        place, source, *row = _columns(self._arrivals, 2 + len(_ARRIVAL_ROW))
        arrivals = _named(_ARRIVAL_ROW, row)
        arrivals |= _named(("barrier", "slot", "cta", "sm"), _table(self._places, 4)[place].T)
        # Who arrives from within the CTA does not name it.
        who = _table([(*each, -1)[:3] for each in self._sources], 3)[source].T
        arrivals |= _named(("source", "site", "source_cta"), who)
        arrivals["source_cta"] = np.where(arrivals["source_cta"] < 0, arrivals["cta"], arrivals["source_cta"])
        return (
            _sorted_table(UNIT_SPAN_DTYPE, spans, ("unit", "sm", "begin")),
            _sorted_table(ARRIVAL_DTYPE, arrivals, ("time", "cta", "barrier", "slot", "phase", "completes")),
        )


class _Numbers(dict[tuple[int, ...], int]):
    """Numbers keys in the order in which they are asked for first."""

    def __missing__(self, key: tuple[int, ...]) -> int:
        self[key] = number = len(self)
        return number


def _columns(numbers: array[int], width: int) -> np.ndarray:
    return np.array(numbers, np.int64).reshape(-1, width).T


def _named(names: Sequence[str], columns: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    return dict(zip(names, columns, strict=True))


def _table(rows: Sequence[tuple[int, ...]], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width)


def _sorted_table(dtype: np.dtype, columns: dict[str, np.ndarray], order: Sequence[str]) -> np.ndarray:
    """Returns a table sorted by the columns `order`, then by all others."""
    names = dtype.names or ()
    keys = [columns[name] for name in order] + [columns[name] for name in names if name not in order]
    rank = np.lexsort(keys[::-1])
    table = np.empty(len(rank), dtype)
    for name in names:
        table[name] = columns[name][rank]
    return table
