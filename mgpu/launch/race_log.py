"""The races that simulated launches of this process have shown: `get_races` and `reset`."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Sequence

from mgpu.errors import RaceWarning, UnwrittenWarning
from mgpu.sim.races import Race, UnwrittenRead

MOST_KEPT = 10_000


class _Log:
    """Races of all launches, guarded for threads: launches may run side by side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._races: list[Race] = []

    def add(self, races: Sequence[Race]) -> None:
        with self._lock:
            self._races.extend(races[: MOST_KEPT - len(self._races)])

    def get(self) -> tuple[Race, ...]:
        with self._lock:
            return tuple(self._races)

    def clear(self) -> None:
        with self._lock:
            self._races.clear()


_log = _Log()


def note_races(races: Sequence[Race]) -> None:
    """Keeps the races of a launch and warns of them."""
    if races:
        _log.add(races)
        more = f"\nand {len(races) - 1} more; mgpu.get_races() lists them." if len(races) > 1 else ""
        warnings.warn(f"{races[0]}{more}", RaceWarning, stacklevel=2)


def note_unwritten(reads: Sequence[UnwrittenRead]) -> None:
    """Warns of the reads of a launch that found what nobody had written."""
    if reads:
        more = f"\nand {len(reads) - 1} more such reads." if len(reads) > 1 else ""
        warnings.warn(f"{reads[0]}{more}", UnwrittenWarning, stacklevel=2)


def get_races() -> tuple[Race, ...]:
    """Returns the races that simulated launches have shown since the last `reset`, oldest first."""
    return _log.get()


def reset() -> None:
    """Forgets the races found so far."""
    _log.clear()
