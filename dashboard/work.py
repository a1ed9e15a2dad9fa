"""Reading and analysing launches in the background, so that a page shows at once what is known and fills itself."""

from __future__ import annotations

import dataclasses
import enum
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from profiler import MgpuError

TRACE, TABLES = "trace", "tables"
PARTS: Mapping[str, str] = {
    TRACE: "Read the events",
    "utilisation": "Measure the use of the tensor cores",
    "bubbles": "Find the bubbles and their causes",
    "barrier_waits": "Find who waited for whom",
    "categories": "Add up the time of each role",
    "steady_state": "Find the main loop",
    "balance": "Look at waves and the tail",
    "roofline": "Compare with the device's rates",
    "critical_path": "Find the critical path",
    "what_if": "Replay with changes",
    "advice": "Rank what to try",
    TABLES: "Keep the tables, to be read faster next time",
}
"""What is done for a launch, in the order in which a page wants it: names of a report's parts, and words for people."""


class Analysed(Protocol):
    """A launch that has been read."""

    def is_known(self, part: str) -> bool:
        """True if a part costs nothing to ask for."""
        ...

    def compute(self, part: str) -> None:
        """Finds a part."""
        ...


Loaded = TypeVar("Loaded", bound=Analysed)


class State(enum.StrEnum):
    """How far a part is."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


@dataclasses.dataclass(frozen=True)
class Progress:
    """One part, for the reader: what is done, how far it is, and the seconds that it has taken so far."""

    title: str
    state: State
    seconds: float


class Analysis(Generic[Loaded]):
    """One launch on its way from a file to a report. Threads share it; a `Worker` moves it on.

    Attributes:
      loaded: the launch, None as long as it has not been read.
      errors: what went wrong, by part.
    """

    def __init__(self, load: Callable[[], Loaded]) -> None:
        self._load = load
        self.loaded: Loaded | None = None
        self.errors: dict[str, Exception] = {}
        self._began: dict[str, float] = {}
        self._took: dict[str, float] = {}

    def is_settled(self, part: str) -> bool:
        """True if a part is known, or will never be."""
        if part in self.errors or TRACE in self.errors:
            return True
        return self.loaded is not None and (part == TRACE or self.loaded.is_known(part))

    def run(self, part: str) -> None:
        """Finds a part, in the thread that asks. What goes wrong is kept in `errors`."""
        self._began[part] = time.monotonic()
        try:
            if part == TRACE:
                self.loaded = self._load()
            elif self.loaded is not None:
                self.loaded.compute(part)
        except MgpuError as error:
            self.errors[part] = error
        except Exception as error:  # a defect of an analysis must not stop the others; the console tells it in full
            traceback.print_exc()
            self.errors[part] = error
        self._took[part] = time.monotonic() - self._began[part]

    def progress(self, part: str) -> Progress:
        """Returns how far a part is."""
        if part in self.errors:
            return Progress(PARTS[part], State.FAILED, self._took[part])
        if self.is_settled(part):
            return Progress(PARTS[part], State.DONE, self._took.get(part, 0.0))
        began = self._began.get(part)
        if began is None:
            return Progress(PARTS[part], State.WAITING, 0.0)
        return Progress(PARTS[part], State.RUNNING, time.monotonic() - began)


class Worker:
    """A thread that runs parts of analyses one after another, those asked for last first."""

    def __init__(self) -> None:
        self._pending: list[tuple[Analysis, str]] = []
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def request(self, analysis: Analysis, parts: Iterable[str]) -> None:
        """Asks for parts, in this order and before everything that was asked for earlier."""
        with self._changed:
            wanted = [(analysis, part) for part in (TRACE, *parts) if not analysis.is_settled(part)]
            wanted = list(dict.fromkeys(wanted))
            if not wanted:
                return
            self._pending = [*wanted, *(one for one in self._pending if one not in wanted)]
            self._start()

    def request_last(self, analysis: Analysis, parts: Iterable[str]) -> None:
        """Asks for parts that are wanted when there is nothing else to do."""
        with self._changed:
            wanted = [(analysis, part) for part in parts if not analysis.is_settled(part)]
            self._pending = [*(one for one in self._pending if one not in wanted), *wanted]
            self._start()

    def wait(self, analysis: Analysis, parts: Iterable[str], seconds: float | None = None) -> bool:
        """Waits until parts that were asked for are settled; returns False if that takes longer."""
        names = (TRACE, *parts)
        with self._changed:
            return self._changed.wait_for(lambda: all(map(analysis.is_settled, names)), seconds)

    def forget(self, analysis: Analysis) -> None:
        """Drops what was asked for of an analysis that nobody keeps."""
        with self._changed:
            self._pending = [one for one in self._pending if one[0] is not analysis]

    def _start(self) -> None:
        if self._thread is None and self._pending:
            self._thread = threading.Thread(target=self._work, name="analyses", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._pending:
                    self._thread = None
                    return
                analysis, part = self._pending.pop(0)
            if not analysis.is_settled(part):
                analysis.run(part)
            with self._changed:
                self._changed.notify_all()
