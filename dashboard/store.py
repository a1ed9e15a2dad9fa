"""Launches of a profile, loaded through the profiler and kept by content, so that a page costs only what is new."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path

import profiler
from dashboard.timeline.index import TimelineIndex
from dashboard.timeline.overview import encode_overview
from dashboard.work import TABLES, TRACE, Analysis, Worker
from profiler import CaptureError, Launch, Report, Trace
from profiler.store import has_tables, read_header
from profiler.trace import CaptureHeader

MAX_LOADED = 4
MAX_SPANS = 12_000_000  # of all loaded launches; they take some 0.5 GiB for a million
TABLES_FROM_SPANS = 500_000  # reading tables back is then several times faster than decoding the capture

_SUMMARY_SECONDS = 0.15
_Identity = tuple[str, int, int]


@dataclasses.dataclass(frozen=True)
class LoadedLaunch:
    """One launch. Analyses run when they are first asked for, or before by a `Worker`."""

    name: str
    launch: Launch
    trace: Trace
    report: Report

    def is_known(self, part: str) -> bool:
        """True if a part of the report costs nothing to ask for; of `TABLES`, if they are on disk or not worth it."""
        if part == TABLES:
            return self.trace.spans.height < TABLES_FROM_SPANS or has_tables(self.launch)
        return self.report.is_known(part)

    def compute(self, part: str) -> None:
        """Finds a part of the report, or writes the tables."""
        if part == TABLES:
            profiler.save_tables(self.trace, self.launch.folder)
        else:
            getattr(self.report, part)

    @functools.cached_property
    def timeline(self) -> TimelineIndex:
        """What the timeline draws, arranged for fast windows."""
        return TimelineIndex.of(self.report, waits_for_bubbles=False)

    @functools.cached_property
    def overview(self) -> bytes:
        """The strip above the timeline, in the format of `encode_overview`."""
        return encode_overview(self.trace)


@dataclasses.dataclass(frozen=True)
class LaunchSummary:
    """What a list of launches shows of one: its header, events `kept` and `dropped`, and its length in ns."""

    header: CaptureHeader
    events: int
    dropped: int
    ns: float

    @classmethod
    def of(cls, trace: Trace) -> LaunchSummary:
        """Sums a launch up."""
        return cls(trace.header, trace.events_kept, trace.events_dropped, trace.to_ns(trace.end))

    def is_known(self, part: str) -> bool:
        """True: there is nothing more to find."""
        return bool(part)

    def compute(self, part: str) -> None:
        """Does nothing, for there is nothing more to find."""


class LaunchStore:
    """The launches at one path. Threads of the server share it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._worker = Worker()
        self._analyses: OrderedDict[_Identity, Analysis[LoadedLaunch]] = OrderedDict()
        self._headers: dict[_Identity, CaptureHeader] = {}
        self._summaries: dict[_Identity, Analysis[LaunchSummary]] = {}
        self._lock = threading.Lock()

    def launches(self) -> list[Launch]:
        """Returns what is there now, newest first; empty if there is nothing yet."""
        try:
            found = profiler.open_profile(self.path)
        except CaptureError:
            return []
        return sorted(found, key=lambda launch: (_identity(launch)[1], launch.name), reverse=True)

    def find(self, name: str) -> Launch | None:
        """Returns the launch of that name, the newest if `name` is empty, None if there is none.

        Names are looked up among the launches that exist, never turned into paths.
        """
        return next((launch for launch in self.launches() if name in ("", launch.name)), None)

    def request(self, launch: Launch, parts: Iterable[str], seconds: float = 0.0) -> Analysis[LoadedLaunch]:
        """Has a launch read and parts of its report found, in the background and in this order.

        Args:
          launch: the launch.
          parts: names of `dashboard.work.PARTS`.
          seconds: how long to wait for them at most.

        Returns:
          What is known so far, and how far the rest is.
        """
        key, parts = _identity(launch), tuple(parts)
        with self._lock:
            if key not in self._analyses:
                self._analyses[key] = Analysis(lambda: _load(launch))
            analysis = self._analyses[key]
            self._analyses.move_to_end(key)
            self._drop_oldest()
        self._worker.request(analysis, parts)
        self._worker.request_last(analysis, [TABLES])
        if seconds:
            self._worker.wait(analysis, parts, seconds)
        return analysis

    def load(self, launch: Launch, parts: Iterable[str] = ()) -> LoadedLaunch:
        """Returns a launch with its trace, and parts of its report found; waits as long as that takes.

        Raises:
          CaptureError: its files are damaged, foreign or of another version.
        """
        parts = tuple(parts)
        analysis = self.request(launch, parts)
        self._worker.wait(analysis, parts)
        for part in (TRACE, *parts):
            if part in analysis.errors:
                raise analysis.errors[part]
        assert analysis.loaded is not None
        return analysis.loaded

    def header(self, launch: Launch) -> CaptureHeader:
        """Returns the header of a launch, which is fast however many events it holds.

        Raises:
          CaptureError: its files are damaged, foreign or of another version.
        """
        key = _identity(launch)
        if key not in self._headers:
            self._headers[key] = read_header(launch.capture_path)
        return self._headers[key]

    def summary(self, launch: Launch) -> LaunchSummary | None:
        """Returns what a list shows of a launch, None as long as it is being read.

        Raises:
          CaptureError: its files are damaged, foreign or of another version.
        """
        key = _identity(launch)
        with self._lock:
            known = self._analyses.get(key)
            summary = self._summaries.setdefault(key, Analysis(lambda: LaunchSummary.of(_load(launch).trace)))
        if known is not None and known.loaded is not None:
            return LaunchSummary.of(known.loaded.trace)
        self._worker.request(summary, ())
        self._worker.wait(summary, (), _SUMMARY_SECONDS)
        if TRACE in summary.errors:
            raise summary.errors[TRACE]
        return summary.loaded

    def is_summarised(self, launch: Launch) -> bool:
        """True if `summary` knows the launch, or knows that it cannot be read."""
        try:
            return self.summary(launch) is not None
        except CaptureError:
            return True

    def fingerprint(self) -> str:
        """Returns a text that changes when a launch appears, changes or goes."""
        identities = repr(sorted(map(_identity, self.launches())))
        return hashlib.sha256(identities.encode()).hexdigest()[:16]

    def _drop_oldest(self) -> None:
        """Forgets launches that were not looked at for longest; two stay in any case, to be compared."""
        while len(self._analyses) > 2:
            loaded = [one.loaded for one in self._analyses.values() if one.loaded is not None]
            spans = sum(one.trace.spans.height for one in loaded)
            if len(self._analyses) <= MAX_LOADED and spans <= MAX_SPANS:
                return
            _, dropped = self._analyses.popitem(last=False)
            self._worker.forget(dropped)


def _identity(launch: Launch) -> _Identity:
    try:
        stat = launch.capture_path.stat()
    except OSError:
        return launch.name, 0, 0
    return launch.name, stat.st_mtime_ns, stat.st_size


def _load(launch: Launch) -> LoadedLaunch:
    try:
        trace = launch.load_trace()
    except OSError as error:
        raise CaptureError(f"{launch.capture_path.name}: cannot be read: {error.strerror or error}.") from error
    return LoadedLaunch(launch.name, launch, trace, profiler.build_report(trace))
