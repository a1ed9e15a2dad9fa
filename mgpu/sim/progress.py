"""Tells how far a long simulation has come: CTAs done, simulated time, remaining time.

A terminal is shown a bar; who runs a simulation that will take minutes is warned once, on a terminal or not. Both go by
one estimate: the time so far and the part of the work that is done.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn

from mgpu.errors import LongRunWarning

DELAY_S = 1.0
"""Simulations that are over sooner show nothing: nobody would have read it."""

FIRST_ESTIMATE_S = 5.0
"""When a run is asked for the first time how long it will take; after that, each time it has run twice as long."""

LONG_S = 120.0
"""Remaining time above which the user is warned."""


class HowFar(NamedTuple):
    """How far a simulation has come.

    Attributes:
      ctas, num_ctas: CTAs that have exited, of how many.
      fraction: part of the work that is done, 0 to 1, with the turns of the running CTAs' outermost loops.
      simulated_us: simulated time.
      events: events so far.
    """

    ctas: int
    num_ctas: int
    fraction: float
    simulated_us: float
    events: int = 0

    def remaining_s(self, elapsed_s: float) -> float | None:
        """Returns how long the rest will take, in seconds, if it goes on as so far; None if nothing is known yet."""
        return elapsed_s * (1 - self.fraction) / self.fraction if self.fraction > 0 else None

    def total_events(self) -> int | None:
        """Returns how many events the whole run will take, likewise."""
        return round(self.events / self.fraction) if self.fraction > 0 else None


class LongRunWatch:
    """Warns once, of a run that will take minutes. To be called often while it runs.

    Args:
      where: the kernel's line and name.
      measure: says how far the run is.
      max_events: events after which it ends with an error.
      numerics: whether it computes values.
      clock: seconds.
    """

    def __init__(
        self,
        where: str,
        measure: Callable[[], HowFar],
        max_events: int,
        *,
        numerics: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._where = where
        self._measure = measure
        self._max_events = max_events
        self._numerics = numerics
        self._clock = clock
        self._begin = clock()
        self._ask_after_s = FIRST_ESTIMATE_S

    def close(self) -> None:
        """Lets go of what it measures."""
        self._ask_after_s = float("inf")
        self._measure = _nothing

    def __call__(self) -> None:
        """Warns if it is time to ask, and much is left."""
        elapsed_s = self._clock() - self._begin
        if elapsed_s < self._ask_after_s:
            return
        self._ask_after_s = 2 * elapsed_s
        so_far = self._measure()
        left_s = so_far.remaining_s(elapsed_s)
        if left_s is not None and left_s >= LONG_S:
            self._ask_after_s = float("inf")
            warnings.warn(self._text(so_far, elapsed_s, left_s), LongRunWarning, stacklevel=2)

    def _text(self, so_far: HowFar, elapsed_s: float, left_s: float) -> str:
        total = so_far.total_events() or 0
        text = (
            f"{self._where}: this simulation will take about {format_duration(left_s)} more: "
            f"{so_far.fraction:.2%} of the work is done after {format_duration(elapsed_s)}, {so_far.ctas:,} of "
            f"{so_far.num_ctas:,} CTAs and {so_far.events:,} of about {total:,} events. "
        )
        if total > self._max_events:
            text += f"It would end with an error at max_events={self._max_events:,}. "
        text += "Shorter: a smaller problem, or a part of the grid (CTAs beyond some waves run like those before)"
        if self._numerics:
            text += "; InterpretGPUParams(numerics=False), which simulates time alone"
        return f"{text}; Ctrl-C, or a smaller max_events, to stop it."


def _nothing() -> HowFar:
    return HowFar(0, 0, 0.0, 0.0)


def format_duration(seconds: float) -> str:
    """Returns a time in the unit that suits it, such as "40 s", "7 min", "3.5 h"."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:,.1f} h"


@contextlib.contextmanager
def show_progress(name: str, measure: Callable[[], HowFar], delay_s: float = DELAY_S) -> Iterator[None]:
    """Shows progress on stderr while the block runs; shows nothing if stderr is not a terminal.

    Args:
      name: of the kernel.
      measure: asked, from another thread, whenever the display is drawn.
      delay_s: how long the block runs before anything is shown, in seconds.
    """
    console = Console(file=sys.stderr)
    if not console.is_terminal:
        yield
        return
    shown: list[_Display] = []
    begin = time.monotonic()

    def show() -> None:
        shown.append(_Display(name, measure, console, begin))
        shown[0].start()

    timer = threading.Timer(delay_s, show)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        for display in shown:
            display.stop()


class _Display(Progress):
    """A progress bar that asks how far the simulation is each time it is drawn."""

    def __init__(self, name: str, measure: Callable[[], HowFar], console: Console, begin: float) -> None:
        self._measure = measure
        self._begin = begin
        self._simulation: TaskID | None = None
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[details]}"),
        )
        super().__init__(*columns, console=console, transient=True, refresh_per_second=4)
        self._simulation = self.add_task(f"simulating {name}", total=1.0, details="")

    def get_renderables(self) -> Iterable[RenderableType]:
        """Returns what is drawn."""
        if self._simulation is not None:
            now = self._measure()
            details = f"{now.ctas}/{now.num_ctas} CTAs, {now.simulated_us:,.0f} us simulated"
            left_s = now.remaining_s(time.monotonic() - self._begin)
            details += "" if left_s is None else f", {format_duration(left_s)} left"
            self.update(self._simulation, completed=now.fraction, details=details)
        yield from super().get_renderables()
