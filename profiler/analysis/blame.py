"""The blame chain of one wait, step by step, for people to read."""

from __future__ import annotations

import dataclasses

import numpy as np

from mgpu.sites import Category
from profiler.analysis.leaves import Leaves, cut_into_leaves
from profiler.analysis.wait_causes import UNKNOWN, WaitCauses, find_wait_causes, wait_row_of_span
from profiler.trace import Trace

_MAX_STEPS = 16


@dataclasses.dataclass(frozen=True)
class BlameStep:
    """One link: `track` did `what` from `begin` to `end` (cycles) at `source` (file:line); track -1 is a unit."""

    track: int
    name: str
    what: str
    begin: int
    end: int
    source: str


class BlameFinder:
    """Walks blame chains of one trace. Preparing it costs as much as a hundred chains, so make one for many waits."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._leaves: Leaves = cut_into_leaves(trace)
        self._causes: WaitCauses = find_wait_causes(trace)
        self._wait_of_span = wait_row_of_span(trace)
        self._source = {site.id: site.location for site in trace.header.sites}

    def chain(self, wait: int) -> list[BlameStep]:
        """Returns the chain of a wait (row of `Trace.waits`), from the wait itself to its root.

        A wait is followed to what released it, that to what its track had been doing when it should have released it,
        and so on while that is again a blocked wait, which is always an earlier one.
        """
        steps: list[BlameStep] = []
        row: int = wait
        while row != UNKNOWN and len(steps) < _MAX_STEPS:
            waited = self._trace.waits.row(row, named=True)
            steps.append(self._wait_step(waited))
            if not waited["blocked"]:
                break
            row = self._follow(row, waited, steps)
        return steps

    def _wait_step(self, wait: dict[str, int | str]) -> BlameStep:
        begin = int(wait["begin"])
        what = f"waited on {wait['barrier']}[{wait['slot']}] phase {wait['phase']}"
        return self._step(int(wait["track"]), what, begin, begin + int(wait["dur"]), int(wait["site"]))

    def _follow(self, row: int, wait: dict[str, int | str], steps: list[BlameStep]) -> int:
        """Appends what released the wait; returns the blocked wait behind that, or `UNKNOWN` at the root."""
        causes = self._causes
        issued = int(causes.load_issued[row])
        if causes.waits_for_data[row] and issued != UNKNOWN:
            cycles = int(causes.load_cycles[row])
            what = "TMA load" + (" (queued)" if causes.queued[row] else "")
            end = issued + cycles if cycles != UNKNOWN else int(wait["begin"]) + int(wait["dur"])
            steps.append(BlameStep(-1, "TMA", what, issued, end, self._source.get(int(causes.load_site[row]), "")))
            if causes.queued[row]:
                return UNKNOWN
            if causes.held_by[row] != UNKNOWN:
                return int(causes.held_by[row])
            since = int(wait["begin"])
            return self._activity(int(causes.issuer[row]), issued, since, steps) if issued > since else UNKNOWN
        if int(wait["arrival"]) == UNKNOWN:
            return UNKNOWN
        track = int(self._trace.arrivals["source_track"][int(wait["arrival"])])
        return (
            UNKNOWN if track == UNKNOWN else self._activity(track, int(wait["released_at"]), int(wait["begin"]), steps)
        )

    def _activity(self, track: int, released: int, since: int, steps: list[BlameStep]) -> int:
        """Appends what `track` did longest from `since` to its release; returns that as a wait if it was one."""
        if track == UNKNOWN:
            return UNKNOWN
        first, last = self._leaves.find(np.array([track, track]), np.array([since, max(since, released - 1)]))
        rows = np.arange(first, last + 1)
        lengths = np.minimum(self._leaves.end[rows], released) - np.maximum(self._leaves.begin[rows], since)
        leaf = int(rows[::-1][lengths[::-1].argmax()])
        span = int(self._leaves.span[leaf])
        begin, end = int(self._leaves.begin[leaf]), int(self._leaves.end[leaf])
        if span < 0:
            steps.append(self._step(track, "ran unrecorded code", begin, end, UNKNOWN))
            return UNKNOWN
        wait = int(self._wait_of_span[span])
        if wait != UNKNOWN:
            return wait
        name, category, site = (self._trace.spans[column][span] for column in ("name", "category", "site"))
        verb = "waited in" if category == str(Category.WAIT) else "was busy in"
        steps.append(self._step(track, f"{verb} {name}", begin, end, int(site)))
        return UNKNOWN

    def _step(self, track: int, what: str, begin: int, end: int, site: int) -> BlameStep:
        return BlameStep(track, str(self._trace.tracks["name"][track]), what, begin, end, self._source.get(site, ""))


def blame_chain(trace: Trace, wait: int) -> list[BlameStep]:
    """Returns why a wait (row of `Trace.waits`) took so long, from the wait itself to the root."""
    return BlameFinder(trace).chain(wait)
