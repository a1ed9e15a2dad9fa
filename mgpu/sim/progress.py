"""Shows on a terminal how far a long simulation has come: CTAs done, simulated time, remaining time."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

DELAY_S = 1.0
"""Simulations that are over sooner show nothing: nobody would have read it."""


class HowFar(NamedTuple):
    """How far a simulation has come.

    Attributes:
      ctas, num_ctas: CTAs that have exited, of how many.
      fraction: part of the work that is done, 0 to 1, with the turns of the running CTAs' outermost loops.
      simulated_us: simulated time.
    """

    ctas: int
    num_ctas: int
    fraction: float
    simulated_us: float


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

    def show() -> None:
        shown.append(_Display(name, measure, console))
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

    def __init__(self, name: str, measure: Callable[[], HowFar], console: Console) -> None:
        self._measure = measure
        self._simulation: TaskID | None = None
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[details]},"),
            TimeRemainingColumn(),
        )
        super().__init__(*columns, console=console, transient=True, refresh_per_second=4)
        self._simulation = self.add_task(f"simulating {name}", total=1.0, details="")

    def get_renderables(self) -> Iterable[RenderableType]:
        """Returns what is drawn."""
        if self._simulation is not None:
            now = self._measure()
            details = f"{now.ctas}/{now.num_ctas} CTAs, {now.simulated_us:,.0f} us simulated"
            self.update(self._simulation, completed=now.fraction, details=details)
        yield from super().get_renderables()
