"""The activity log of a launch: what each asynchronous unit did, and every arrival on a barrier.

Rows are logged while the simulation runs and become the tables `UNIT_SPAN_DTYPE` and `ARRIVAL_DTYPE` of
`mgpu.capture`. They wait in a list, one row's numbers after the other, which is the quickest way to keep them; now and
then these are packed, since numbers in a list take much room.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mgpu.capture import ARRIVAL_DTYPE, UNIT_SPAN_DTYPE
from mgpu.sim.engine import Engine

_PACKED_AT = 1 << 16  # numbers in a list

_SPAN_ROW = ("unit", "site", "slot", "begin", "end", "bytes", "flops")
_ARRIVAL_ROW = ("phase", "time", "completes")


class Activity:
    """Append-only log of one launch."""

    __slots__ = ("_arrivals", "_issuers", "_packed_arrivals", "_packed_spans", "_places", "_sources", "_spans")

    def __init__(self) -> None:
        self._spans: list[int] = []  # number of the issuer, then the columns `_SPAN_ROW`
        self._packed_spans = array("q")
        self._issuers: list[tuple[int, int, int]] = []  # sm, cta, warpgroup
        self._arrivals: list[Any] = []  # number of the place, source, then the columns `_ARRIVAL_ROW`
        self._packed_arrivals = array("q")  # with the number of the source
        self._places: list[tuple[int, int, int, int]] = []  # barrier, slot, cta, sm
        self._sources: dict[tuple[int, ...], int] = {}

    def arrival_log(
        self, engine: Engine, barrier: int, slot: int, cta: int, sm: int
    ) -> Callable[[object, Any, int, bool], None]:
        """Returns a function (mbarrier, source, phase, completes) that logs arrivals on one slot of a barrier.

        `source` is (source, site) or, for who arrives from another CTA, (source, site, source_cta).
        """
        rows, place = self._arrivals, len(self._places)
        self._places.append((barrier, slot, cta, sm))
        extend = rows.extend

        def log(_mbarrier: object, source: Any, phase: int, completes: bool) -> None:
            extend((place, source, phase, engine.now, completes))
            if len(rows) > _PACKED_AT:
                self._pack_arrivals()

        return log

    def unit_log(self, sm: int, cta: int, warpgroup: int) -> Callable[[int, int, int, int, int, int, int], None]:
        """Returns a function (unit, site, slot, begin, end, nbytes, flops) that logs what one warpgroup issues.

        Its arguments are the columns of `UNIT_SPAN_DTYPE`; `unit` is an index into `mgpu.capture.UNITS`, `site` where
        the operation was issued (-1 if that place is no site), `slot` that of the barrier which it completes (-1 if
        none).
        """
        rows, issuer = self._spans, len(self._issuers)
        self._issuers.append((sm, cta, warpgroup))
        extend = rows.extend

        def log(unit: int, site: int, slot: int, begin: int, end: int, nbytes: int, flops: int) -> None:
            extend((issuer, unit, site, slot, begin, end, nbytes, flops))
            if len(rows) > _PACKED_AT:
                self._pack_spans()

        return log

    def _pack_arrivals(self) -> None:
        rows, sources = self._arrivals, self._sources
        width = 2 + len(_ARRIVAL_ROW)
        rows[1::width] = [sources.setdefault(source, len(sources)) for source in rows[1::width]]
        self._packed_arrivals.fromlist(rows)
        rows.clear()

    def _pack_spans(self) -> None:
        self._packed_spans.fromlist(self._spans)
        self._spans.clear()

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the unit spans sorted by (unit, sm, begin, ...) and the arrivals sorted by (time, cta, barrier, ...).

        All columns take part in the order, so the result does not depend on the order of logging.
        """
        self._pack_spans()
        issuer, *row = _columns(self._packed_spans, 1 + len(_SPAN_ROW))
        spans = _named(_SPAN_ROW, row) | _named(("sm", "cta", "warpgroup"), _table(self._issuers, 3)[issuer].T)
        self._pack_arrivals()
        place, source, *row = _columns(self._packed_arrivals, 2 + len(_ARRIVAL_ROW))
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
