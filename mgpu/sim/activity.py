"""The activity log of a launch: what each asynchronous unit did, and every arrival on a barrier.

Rows are appended while the simulation runs and become the tables `UNIT_SPAN_DTYPE` and `ARRIVAL_DTYPE` of
`mgpu.capture`.
"""

from __future__ import annotations

from array import array

import numpy as np

from mgpu.capture import ARRIVAL_DTYPE, UNIT_SPAN_DTYPE


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
