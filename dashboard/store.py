"""Launches of a profile, loaded through the profiler and kept by content, so that a page costs only what is new."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import threading
from collections import OrderedDict
from pathlib import Path

import profiler
from dashboard.timeline.index import TimelineIndex
from dashboard.timeline.overview import encode_overview
from profiler import CaptureError, Launch, Report, Trace
from profiler.trace import CaptureHeader

MAX_LOADED = 4


@dataclasses.dataclass(frozen=True)
class LoadedLaunch:
    """One launch, analysed. What only some pages need is computed when it is first asked for."""

    name: str
    launch: Launch
    trace: Trace
    report: Report

    @functools.cached_property
    def timeline(self) -> TimelineIndex:
        """What the timeline draws, arranged for fast windows."""
        return TimelineIndex.of(self.report)

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


class LaunchStore:
    """The launches at one path. Threads of the server share it."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._loaded: OrderedDict[tuple[str, int, int], LoadedLaunch] = OrderedDict()
        self._summaries: dict[tuple[str, int, int], LaunchSummary] = {}
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

    def load(self, launch: Launch) -> LoadedLaunch:
        """Returns a launch with its trace and report.

        Raises:
          CaptureError: its files are damaged, foreign or of another version.
        """
        key = _identity(launch)
        with self._lock:  # one load at a time: a second request for the same launch waits for the first
            if key not in self._loaded:
                trace = _load_trace(launch)
                self._loaded[key] = LoadedLaunch(launch.name, launch, trace, profiler.build_report(trace))
            self._loaded.move_to_end(key)
            while len(self._loaded) > MAX_LOADED:
                self._loaded.popitem(last=False)
            return self._loaded[key]

    def summary(self, launch: Launch) -> LaunchSummary:
        """Returns what a list shows of a launch, without analysing it.

        Raises:
          CaptureError: its files are damaged, foreign or of another version.
        """
        key = _identity(launch)
        if key not in self._summaries:
            trace = _load_trace(launch)
            length = trace.to_ns(trace.end)
            self._summaries[key] = LaunchSummary(trace.header, trace.events_kept, trace.events_dropped, length)
        return self._summaries[key]

    def fingerprint(self) -> str:
        """Returns a text that changes when a launch appears, changes or goes."""
        identities = repr(sorted(map(_identity, self.launches())))
        return hashlib.sha256(identities.encode()).hexdigest()[:16]


def _identity(launch: Launch) -> tuple[str, int, int]:
    try:
        stat = launch.capture_path.stat()
    except OSError:
        return launch.name, 0, 0
    return launch.name, stat.st_mtime_ns, stat.st_size


def _load_trace(launch: Launch) -> Trace:
    try:
        return launch.load_trace()
    except OSError as error:
        raise CaptureError(f"{launch.capture_path.name}: cannot be read: {error.strerror or error}.") from error
