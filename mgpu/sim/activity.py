"""The activity log of a launch: what each asynchronous unit did, and every arrival on a barrier.

Rows are appended while the simulation runs and become the tables `UNIT_SPAN_DTYPE` and `ARRIVAL_DTYPE` of
`mgpu.capture`.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np

from mgpu.capture import ARRIVAL_DTYPE, UNIT_SPAN_DTYPE
from mgpu.sim.engine import Engine


class Activity:
    """Append-only log of one launch."""

    __slots__ = ("_arrivals", "_unit_spans")

    def __init__(self) -> None:
        # Flat 64-bit integers: appending is cheap, and conversion is one view instead of a loop over rows.
        self._unit_spans = array("q")
        self._arrivals = array("q")

    def unit_span(
        self,
        unit: int,
        sm: int,
        cta: int,
        warpgroup: int,
        site: int,
        slot: int,
        begin: int,
        end: int,
        nbytes: int,
        flops: int,
    ) -> None:
        """Logs one operation of an asynchronous unit. The order of arguments is that of `UNIT_SPAN_DTYPE`.

        Args:
          unit: index into `mgpu.capture.UNITS`.
          sm, cta, warpgroup: where it runs and who issued it.
          site: where it was issued, -1 if that place is not a site.
          slot: slot of the barrier that it completes, -1 if none.
          begin, end: cycles; see `UNIT_SPAN_DTYPE`.
          nbytes, flops: how much it did.
        """
        self._unit_spans.extend((unit, sm, cta, warpgroup, site, slot, begin, end, nbytes, flops))

    def arrival(
        self,
        barrier: int,
        slot: int,
        phase: int,
        cta: int,
        sm: int,
        time: int,
        source: int,
        source_cta: int,
        site: int,
        completes: bool,
    ) -> None:
        """Logs one arrival. The order of arguments is that of `ARRIVAL_DTYPE`.

        Args:
          barrier: `BarrierInfo.id`.
          slot: of the barrier.
          phase: phases completed before this arrival.
          cta, sm: whose barrier it is, and where.
          time: cycle.
          source: warpgroup that arrived, or -1 - index into `UNITS`.
          source_cta: CTA of the source.
          site: that arrived or issued the asynchronous work, -1 if unknown.
          completes: True if the arrival completed the phase.
        """
        self._arrivals.extend((barrier, slot, phase, cta, sm, time, source, source_cta, site, completes))

    def arrival_log(
        self, engine: Engine, barrier: int, slot: int, cta: int, sm: int
    ) -> Callable[[object, Any, int, bool], None]:
        """Returns a function (mbarrier, source, phase, completes) that logs arrivals on one slot of a barrier.

        `source` is (source, site) or, for who arrives from another CTA, (source, site, source_cta).
        """
        append = self._arrivals.extend  # bound once: this runs for every arrival of a launch

        def log(_mbarrier: object, source: Any, phase: int, completes: bool) -> None:
            who, site, source_cta = source if len(source) == 3 else (*source, cta)
            append((barrier, slot, phase, cta, sm, engine.now, who, source_cta, site, completes))

        return log

    def unit_log(self, sm: int, cta: int, warpgroup: int) -> Callable[[int, int, int, int, int, int, int], None]:
        """Returns a function (unit, site, slot, begin, end, nbytes, flops) that logs what one warpgroup issues."""
        append = self._unit_spans.extend

        def log(unit: int, site: int, slot: int, begin: int, end: int, nbytes: int, flops: int) -> None:
            append((unit, sm, cta, warpgroup, site, slot, begin, end, nbytes, flops))

        return log

    def to_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the unit spans sorted by (unit, sm, begin, ...) and the arrivals sorted by (time, cta, barrier, ...).

        All columns take part in the order, so the result does not depend on the order of logging.
        """
        unit_spans = _to_table(self._unit_spans, UNIT_SPAN_DTYPE, ("unit", "sm", "begin"))
        arrivals = _to_table(self._arrivals, ARRIVAL_DTYPE, ("time", "cta", "barrier", "slot", "phase", "completes"))
        return unit_spans, arrivals


def _to_table(values: array[int], dtype: np.dtype, order: tuple[str, ...]) -> np.ndarray:
    names = dtype.names or ()
    rows = np.array(values, np.int64).reshape(-1, len(names))
    columns = {name: rows[:, index] for index, name in enumerate(names)}
    keys = [columns[name] for name in order] + [columns[name] for name in names if name not in order]
    rank = np.lexsort(keys[::-1])
    table = np.empty(len(rows), dtype)
    for name, column in columns.items():
        table[name] = column[rank]
    return table
