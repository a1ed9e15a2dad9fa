"""Gives every cycle in which a tensor core had nothing in flight one cause.

Who explains a bubble is the track that ends it, by issuing the next MMA: whatever that track was doing is what the
tensor core waited for. If it was blocked on data, the blame moves on to the load and to the track that issued it.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import polars as pl

from mgpu.sites import Category, SiteKind
from profiler.analysis.causes import Cause, Detail
from profiler.analysis.leaves import Leaves, cut_into_leaves
from profiler.analysis.mma_activity import MmaActivity
from profiler.analysis.pieces import NONE, cut, cut_by_leaves, join_pieces, make_pieces
from profiler.analysis.wait_causes import WaitCauses, find_wait_causes, slot_waits, wait_row_of_span
from profiler.grouping import combined_key, stable_order
from profiler.trace import Trace

CAUSES = list(Cause)
DETAILS = list(Detail)


def _code(cause: Cause, detail: Detail = Detail.NONE) -> tuple[int, int]:
    return CAUSES.index(cause), DETAILS.index(detail)


# What a piece is called if its track was in a span of this kind. Barrier waits are looked at more closely.
_OF_KIND = {
    SiteKind.SCOPE: _code(Cause.EPILOGUE, Detail.REGISTER_WORK),
    SiteKind.BARRIER_WAIT: _code(Cause.SKEW, Detail.WARPGROUP),
    SiteKind.MMA_WAIT: _code(Cause.DEPENDENCY, Detail.OWN_RESULT),
    SiteKind.STORE_WAIT: _code(Cause.STORE_WAIT, Detail.STORE),
    SiteKind.SET_REGISTERS: _code(Cause.SKEW, Detail.SYNC),
    SiteKind.SYNC: _code(Cause.SKEW, Detail.SYNC),
}
_OTHER_KIND = _code(Cause.DEPENDENCY, Detail.ISSUE)
_BETWEEN = _code(Cause.EPILOGUE, Detail.REGISTER_WORK)
_BEFORE = _code(Cause.SKEW, Detail.NOT_STARTED)
_AFTER = _code(Cause.SKEW, Detail.EXITED)


@dataclasses.dataclass(frozen=True)
class Attribution:
    """What the rules look things up in: the leaves of all tracks, the waits' causes, the CTAs' lifetimes.

    Attributes:
      leaves, waits: see there.
      code_of_span: (spans + 3, 2) int64: cause and detail by the span's kind; the last rows are AFTER, BEFORE, BETWEEN.
      hides_recording: bool[spans + 3]: blocked, so that storing an event in it delays nothing.
      wait_of_span, slot_wait_of_span: int64[spans + 3]: row of the wait, any or only those for a slot.
      cta_begin, cta_end: int64, indexed by CTA.
    """

    trace: Trace
    leaves: Leaves
    waits: WaitCauses
    code_of_span: np.ndarray
    hides_recording: np.ndarray
    wait_of_span: np.ndarray
    slot_wait_of_span: np.ndarray
    cta_begin: np.ndarray
    cta_end: np.ndarray

    @classmethod
    def of(cls, trace: Trace) -> Attribution:
        """Prepares the look-ups for a trace."""
        leaves = cut_into_leaves(trace)
        waits = find_wait_causes(trace)
        codes, hides = _span_codes(trace)
        wait_of_span = np.concatenate([wait_row_of_span(trace), np.full(3, NONE)])
        unblocked = np.isin(wait_of_span, np.flatnonzero(~trace.waits["blocked"].to_numpy()))
        codes[unblocked], hides[unblocked] = _OTHER_KIND, False
        slot_wait_of_span = slot_waits(trace, waits.waits_for_data)
        return cls(trace, leaves, waits, codes, hides, wait_of_span, slot_wait_of_span, *_cta_lifetimes(trace))

    def explain_gaps(self, mma: MmaActivity, sm: np.ndarray, begin: np.ndarray, end: np.ndarray) -> np.ndarray:
        """Returns the pieces of stretches between two uses of the tensor core."""
        following = _rows_at(mma.sm, mma.begin, sm, end)
        preceding = _row_of_last_end(mma, sm, begin)
        starts_cta = _first_of_cta(mma)
        pieces = make_pieces(sm, begin, end)
        pieces["cta"], pieces["next_site"] = mma.cta[following], mma.site[following]
        pieces["gap"] = np.arange(len(pieces))
        pieces = cut(pieces, self.cta_begin[pieces["cta"]])
        preceding, following = preceding[pieces["gap"]], following[pieces["gap"]]
        drains = pieces["end"] <= self.cta_begin[pieces["cta"]]
        fills = ~drains & starts_cta[following]
        pieces["track"] = np.where(drains, mma.track[preceding], mma.track[following])
        pieces["cause"] = np.select([drains, fills], [CAUSES.index(Cause.DRAIN), CAUSES.index(Cause.FILL)], NONE)
        return join_pieces(self._explain(pieces))

    def explain_before(self, mma: MmaActivity, window_end: int) -> np.ndarray:
        """Returns the pieces from the launch's first moment to each SM's first use of its tensor core."""
        rows = np.flatnonzero(np.diff(mma.sm, prepend=NONE) != 0)
        first = mma.begin[rows]
        pieces = make_pieces(mma.sm[rows], np.zeros_like(first), np.minimum(first, window_end))
        rows = rows[first > 0]
        pieces["cta"], pieces["next_site"], pieces["track"] = mma.cta[rows], mma.site[rows], mma.track[rows]
        pieces = cut(pieces, self.cta_begin[pieces["cta"]])
        absent = pieces["end"] <= self.cta_begin[pieces["cta"]]
        pieces["cause"] = np.where(absent, CAUSES.index(Cause.SCHEDULING), CAUSES.index(Cause.FILL))
        pieces["detail"] = np.where(absent, DETAILS.index(Detail.RAMP), NONE)
        return join_pieces(self._explain(pieces))

    def explain_after(self, mma: MmaActivity, window_end: int) -> np.ndarray:
        """Returns the pieces from each SM's last use of its tensor core to the end of the window."""
        sms = np.unique(mma.sm)
        busy = mma.in_flight()
        last = busy.end[np.append(np.flatnonzero(np.diff(busy.group)), len(busy.group) - 1)] if len(sms) else sms
        pieces = make_pieces(sms, last, np.full(len(sms), window_end, np.int64))
        rows = _row_of_last_end(mma, pieces["sm"], pieces["begin"])
        pieces["cta"], pieces["track"] = mma.cta[rows], mma.track[rows]
        # Another CTA of the SM may still run without using the tensor core: the SM is idle only when all have left.
        sm_end = np.full(int(sms.max(initial=0)) + 1, 0, np.int64)
        np.maximum.at(sm_end, mma.sm, self.cta_end[mma.cta])
        pieces = cut(pieces, sm_end[pieces["sm"]])
        absent = pieces["begin"] >= sm_end[pieces["sm"]]
        pieces["cause"] = np.where(absent, CAUSES.index(Cause.SCHEDULING), CAUSES.index(Cause.DRAIN))
        pieces["detail"] = np.where(absent, DETAILS.index(Detail.TAIL), NONE)
        return join_pieces(self._explain(pieces))

    def _explain(self, pieces: np.ndarray) -> np.ndarray:
        """Cuts pieces by what their track was doing and fills in what is still open of cause and detail."""
        pieces = cut_by_leaves(pieces, self.leaves, pieces["track"])
        pieces = self._cut_recording(pieces)
        span = self.leaves.span[pieces["leaf"]]
        pieces["wait"] = self.wait_of_span[span]
        code = self.code_of_span[span]
        open_cause, open_detail = pieces["cause"] == NONE, pieces["detail"] == NONE
        pieces["cause"] = np.where(open_cause, code[:, 0], pieces["cause"])
        pieces["detail"] = np.where(open_detail, code[:, 1], pieces["detail"])
        wait = pieces["wait"]
        for_data = (wait != NONE) & _at(self.waits.waits_for_data, wait) & self.hides_recording[span]
        filling = pieces["cause"] == CAUSES.index(Cause.FILL)
        pieces["detail"][for_data & filling & open_detail] = DETAILS.index(Detail.FIRST_DATA)
        self._blame_slots(pieces, open_cause & ~for_data)
        data = open_cause & for_data
        return np.concatenate([pieces[~data], self._explain_data(pieces[data])])

    def _cut_recording(self, pieces: np.ndarray) -> np.ndarray:
        """Splits off the cycles in which the track stored events, where that delayed it and no cause is given yet."""
        leaf = pieces["leaf"]
        delays = (pieces["cause"] == NONE) & ~self.hides_recording[self.leaves.span[leaf]]
        stored = np.where(delays, self.leaves.begin[leaf] + self.leaves.recording[leaf], 0)
        pieces = cut(pieces, stored)
        leaf = pieces["leaf"]
        delays = (pieces["cause"] == NONE) & ~self.hides_recording[self.leaves.span[leaf]]
        storing = delays & (pieces["end"] <= self.leaves.begin[leaf] + self.leaves.recording[leaf])
        pieces["cause"][storing], pieces["detail"][storing] = _code(Cause.RECORDING)
        return pieces

    def _blame_slots(self, pieces: np.ndarray, candidates: np.ndarray) -> None:
        """A track that loads for itself and waits for a warpgroup waits for a slot."""
        loads = (self.trace.tracks["role"] == "memory+compute").to_numpy()
        blocked = candidates & (pieces["wait"] != NONE) & (pieces["cause"] == CAUSES.index(Cause.SKEW))
        _set_code(pieces, blocked & loads[pieces["track"]], _code(Cause.SLOT_NOT_FREE, Detail.BACK_PRESSURE))
        by = (self.trace.waits["released_by_role"] == "tensor_core").to_numpy()
        _set_code(pieces, blocked & _at(by, pieces["wait"]), _code(Cause.DEPENDENCY, Detail.OWN_RESULT))

    def _explain_data(self, pieces: np.ndarray) -> np.ndarray:
        """Explains pieces in which the track was blocked on data."""
        issued = _at(self.waits.load_issued, pieces["wait"])
        pieces = cut(pieces, issued)
        wait = pieces["wait"]
        pieces["root_track"] = _at(self.waits.issuer, wait)
        pieces["root_site"] = _at(self.waits.load_site, wait)
        issued = _at(self.waits.load_issued, wait)
        early = (issued != NONE) & (pieces["end"] <= issued) & (pieces["root_track"] != NONE)
        return np.concatenate([self._explain_flight(pieces[~early]), self._explain_issue(pieces[early])])

    def _explain_flight(self, pieces: np.ndarray) -> np.ndarray:
        """Explains pieces in which the load was under way: it queued, or it was requested too late, and why."""
        wait = pieces["wait"]
        held_by = _at(self.waits.held_by, wait)
        unknown = _at(self.waits.load_cycles, wait) == NONE
        queued = self.waits.queued[wait]
        _set_code(pieces, ~unknown, _code(Cause.DATA_NOT_READY, Detail.LATENCY_BOUND))
        _set_code(pieces, unknown, _code(Cause.DATA_NOT_READY, Detail.UNKNOWN_LOAD))
        _set_code(pieces, self.waits.issuer_worked[wait], _code(Cause.DATA_NOT_READY, Detail.ISSUED_LATE))
        _set_code(pieces, queued, _code(Cause.DATA_NOT_READY, Detail.BANDWIDTH_BOUND))
        held = ~queued & (held_by != NONE)
        _set_code(pieces, held, _code(Cause.SLOT_NOT_FREE, Detail.BACK_PRESSURE))
        pieces["root_wait"] = np.where(held, held_by, NONE)
        pieces["root_site"] = np.where(held, self._site_of_wait(held_by), pieces["root_site"])
        return pieces

    def _explain_issue(self, pieces: np.ndarray) -> np.ndarray:
        """Explains pieces in which the load had not been issued, by what its issuer was doing."""
        pieces = cut_by_leaves(pieces, self.leaves, pieces["root_track"])
        held_by = self.slot_wait_of_span[self.leaves.span[pieces["leaf"]]]
        held = held_by != NONE
        _set_code(pieces, held, _code(Cause.SLOT_NOT_FREE, Detail.BACK_PRESSURE))
        _set_code(pieces, ~held, _code(Cause.DATA_NOT_READY, Detail.ISSUED_LATE))
        pieces["root_wait"] = held_by
        pieces["root_site"] = np.where(held, self._site_of_wait(held_by), pieces["root_site"])
        return pieces

    def _site_of_wait(self, wait: np.ndarray) -> np.ndarray:
        return _at(self.trace.waits["site"].to_numpy().astype(np.int64), wait)


def _span_codes(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Returns `code_of_span` and `hides_recording` as the spans' kinds alone tell them."""
    kinds = list(SiteKind)
    number = trace.spans["kind"].replace_strict({str(kind): i for i, kind in enumerate(kinds)}, return_dtype=pl.Int64)
    code = np.array([_OF_KIND.get(kind, _OTHER_KIND) for kind in kinds] + [_AFTER, _BEFORE, _BETWEEN], np.int64)
    waits = [kind.category is Category.WAIT and kind is not SiteKind.MMA_WAIT for kind in kinds]
    rows = np.concatenate([number.to_numpy(), len(kinds) + np.arange(3)])
    return code[rows], np.array([*waits, False, False, False], bool)[rows]


def _at(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Returns `values[rows]`, and -1 (or False) where the row is -1."""
    missing = False if values.dtype == bool else NONE
    return np.where(rows >= 0, np.append(values, missing)[rows], missing)


def _set_code(pieces: np.ndarray, where: np.ndarray, code: tuple[int, int]) -> None:
    pieces["cause"][where], pieces["detail"][where] = code


def _rows_at(mma_sm: np.ndarray, mma_begin: np.ndarray, sm: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns the row of the first MMA group of each SM that begins at or after `time`."""
    stride = int(max(mma_begin.max(initial=0), time.max(initial=0))) + 1
    return np.searchsorted(mma_sm * stride + mma_begin, sm * stride + time)


def _row_of_last_end(mma: MmaActivity, sm: np.ndarray, time: np.ndarray) -> np.ndarray:
    """Returns the row of the MMA group of each SM that ends last, not after `time`."""
    order = stable_order(combined_key([mma.sm, mma.end]))
    stride = int(max(mma.end.max(initial=0), time.max(initial=0))) + 1
    position = np.searchsorted((mma.sm * stride + mma.end)[order], sm * stride + time, side="right") - 1
    return order[position] if len(order) else position


def _first_of_cta(mma: MmaActivity) -> np.ndarray:
    """True for the MMA group of each CTA that begins first."""
    order = stable_order(combined_key([mma.cta, mma.begin]))
    first = np.zeros(len(mma.cta), bool)
    first[order[np.diff(mma.cta[order], prepend=NONE) != 0]] = True
    return first


def _cta_lifetimes(trace: Trace) -> tuple[np.ndarray, np.ndarray]:
    """Returns begin and end by CTA: of its record if there is one, else of its tracks."""
    size = 1 + max(
        int(table["cta"].to_numpy().max(initial=-1)) for table in (trace.tracks, trace.ctas, trace.async_spans)
    )
    begin, end = np.full(size, np.iinfo(np.int64).max), np.zeros(size, np.int64)
    for table in (trace.tracks, trace.ctas):
        cta = table["cta"].to_numpy()
        np.minimum.at(begin, cta, table["begin"].to_numpy())
        np.maximum.at(end, cta, table["end"].to_numpy())
    return begin, end
