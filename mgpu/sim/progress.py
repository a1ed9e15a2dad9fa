"""Shows on a terminal how far a long simulation has come: CTAs done, simulated time, remaining time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from mgpu.sim.engine import Engine

MIN_CTAS = 264
"""Smaller launches are over before a display would be read: two CTAs for each SM of an H100."""


@contextlib.contextmanager
def show_progress(name: str, num_ctas: int, engine: Engine, clock_hz: float) -> Iterator[Callable[[], None]]:
    """Shows progress on stderr while the block runs; shows nothing if stderr is not a terminal.

    Args:
      name: of the kernel.
      num_ctas: CTAs of the launch.
      engine: its clock, read whenever the display is drawn.
      clock_hz: of the simulated device.

    Yields:
      A function to be called whenever a CTA is done.
    """
    console = Console(file=sys.stderr)
    if num_ctas < MIN_CTAS or not console.is_terminal:
        yield _ignore
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("CTAs,"),
        _SimulatedTime(engine, clock_hz),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, refresh_per_second=4) as progress:
        task = progress.add_task(f"simulating {name}", total=num_ctas)
        yield lambda: progress.advance(task)


def _ignore() -> None:
    """Stands for the display where there is none."""


class _SimulatedTime(ProgressColumn):
    """The simulated time so far, in microseconds."""

    def __init__(self, engine: Engine, clock_hz: float) -> None:
        super().__init__()
        self._engine = engine
        self._clock_hz = clock_hz

    def render(self, task: Task) -> Text:
        """Returns the text of the column."""
        return Text(f"{self._engine.now / self._clock_hz * 1e6:,.0f} us simulated,")
