"""The activity log of a launch: what each asynchronous unit did, and every arrival on a barrier.

Rows are logged while the simulation runs and become the tables `UNIT_SPAN_DTYPE` and `ARRIVAL_DTYPE` of
`mgpu.capture`. Few kinds of rows differ in more than their times, so a row is three numbers: its kind and two others.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgpu.capture import ARRIVAL_DTYPE, UNIT_SPAN_DTYPE
from mgpu.sim.engine import Engine


class _Rows:
    """Rows of a table, each as the number of its kind and the two columns in which rows of a kind differ.

    Args:
      dtype: of the table.
      kind: names of the columns that make the kind.
      varying: names of the two others.
    """

    __slots__ = ("_columns", "_dtype", "kinds", "numbers")

    def __init__(self, dtype: np.dtype, kind: Sequence[str], varying: Sequence[str]) -> None:
        self._dtype = dtype
        self._columns = kind, varying
        self.kinds: list[tuple[int, ...]] = []
        self.numbers = array("q")  # kind and varying columns of each row

    def to_table(self, order: Sequence[str]) -> np.ndarray:
        """Returns the table sorted by the columns `order`, then by all others."""
        kind_names, varying_names = self._columns
        kinds = np.array(self.kinds, np.int64).reshape(-1, len(kind_names))
        kind, *varying = np.array(self.numbers, np.int64).reshape(-1, 3).T
        columns = dict(zip(kind_names, kinds[kind].T, strict=True)) | dict(zip(varying_names, varying, strict=True))
        names = self._dtype.names or ()
        keys = [columns[name] for name in order] + [columns[name] for name in names if name not in order]
        rank = np.lexsort(keys[::-1])
        table = np.empty(len(kind), self._dtype)
        for name in names:
            table[name] = columns[name][rank]
        return table


class Activity:
    """Append-only log of one launch."""

    __slots__ = ("_arrivals", "_unit_spans")

    def __init__(self) -> None:
        spans = ("unit", "sm", "cta", "warpgroup", "site", "slot", "bytes", "flops")
        self._unit_spans = _Rows(UNIT_SPAN_DTYPE, spans, ("begin", "end"))
        arrivals = ("barrier", "slot", "cta", "sm", "source", "source_cta", "site", "completes")
        self._arrivals = _Rows(ARRIVAL_DTYPE, arrivals, ("phase", "time"))

    def arrival_log(
        self, engine: Engine, barrier: int, slot: int, cta: int, sm: int
    ) -> Callable[[object, Any, int, bool], None]:
        """Returns a function (mbarrier, source, phase, completes) that logs arrivals on one slot of a barrier.

        `source` is (source, site) or, for who arrives from another CTA, (source, site, source_cta).
        """
        kinds, put = self._arrivals.kinds, self._arrivals.numbers.append
        known: dict[tuple[Any, bool], int] = {}

        def log(_mbarrier: object, source: Any, phase: int, completes: bool) -> None:
            kind = known.get((source, completes))
            if kind is None:
                who, site, source_cta = source if len(source) == 3 else (*source, cta)
                kind = known[source, completes] = len(kinds)
                kinds.append((barrier, slot, cta, sm, who, source_cta, site, completes))
            put(kind)
            put(phase)
            put(engine.now)

        return log

    def unit_log(self, sm: int, cta: int, warpgroup: int) -> Callable[[int, int, int, int, int, int, int], None]:
        """Returns a function (unit, site, slot, begin, end, nbytes, flops) that logs what one warpgroup issues.

        Its arguments are the columns of `UNIT_SPAN_DTYPE`; `unit` is an index into `mgpu.capture.UNITS`, `site` where
        the operation was issued (-1 if that place is no site), `slot` that of the barrier which it completes (-1 if
        none).
        """
        kinds, put = self._unit_spans.kinds, self._unit_spans.numbers.append
        known: dict[tuple[int, ...], int] = {}

        def log(unit: int, site: int, slot: int, begin: int, end: int, nbytes: int, flops: int) -> None:
            kind = known.get((unit, site, slot, nbytes, flops))
            if kind is None:
                kind = known[unit, site, slot, nbytes, flops] = len(kinds)
                kinds.append((unit, sm, cta, warpgroup, site, slot, nbytes, flops))
            put(kind)
            put(begin)
            put(end)

        return log

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the unit spans sorted by (unit, sm, begin, ...) and the arrivals sorted by (time, cta, barrier, ...).

        All columns take part in the order, so the result does not depend on the order of logging.
        """
        unit_spans = self._unit_spans.to_table(("unit", "sm", "begin"))
        arrivals = self._arrivals.to_table(("time", "cta", "barrier", "slot", "phase", "completes"))
        return unit_spans, arrivals
