"""What the named barriers of a CTA tell those who wait on them."""

from __future__ import annotations

from mgpu.sim.races.clocks import Clock, Thread, join


class NamedMeetings:
    """For each barrier number, what has been told: by those who have come, and by all who came before."""

    def __init__(self) -> None:
        self._arrived: dict[int, int] = {}
        self._gathering: dict[int, Clock] = {}
        self._published: dict[int, Clock] = {}

    def arrive(self, thread: Thread, number: int, threads: int, expected: int) -> None:
        """Notes that `threads` of the `expected` threads have come."""
        thread.release(self._gathering.setdefault(number, {}))
        self._arrived[number] = self._arrived.get(number, 0) + threads
        if self._arrived[number] == expected:
            join(self._published.setdefault(number, {}), self._gathering.pop(number))
            self._arrived[number] = 0

    def waited(self, thread: Thread, number: int) -> None:
        """Notes that a thread goes on after the barrier."""
        join(thread.clock, self._published.get(number, {}))
