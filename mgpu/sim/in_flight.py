"""Bytes that have been asked for and have not arrived yet: what a new request queues behind."""

from __future__ import annotations

from bisect import insort


class InFlight:
    """The requests on their way through a server.

    Attributes:
      nbytes: of the requests that had not arrived when `settle` was called last.
    """

    __slots__ = ("_arrivals", "_first", "nbytes")

    def __init__(self) -> None:
        self.nbytes = 0
        self._arrivals: list[tuple[int, int]] = []  # cycle and bytes, sorted; those before `_first` have arrived
        self._first = 0

    def settle(self, now: int) -> int:
        """Returns the bytes that are on their way after cycle `now`. Calls must come in time order."""
        arrivals, first = self._arrivals, self._first
        if first < len(arrivals) and arrivals[first][0] <= now:
            while first < len(arrivals) and arrivals[first][0] <= now:
                self.nbytes -= arrivals[first][1]
                first += 1
            if first > _MOST_ARRIVED:
                del arrivals[:first]
                first = 0
            self._first = first
        return self.nbytes

    def add(self, arrives: int, nbytes: int) -> None:
        """Adds a request of so many bytes that arrives at a cycle after that of the last `settle`."""
        arrivals = self._arrivals
        if not arrivals or arrivals[-1][0] <= arrives:  # nearly always: requests seldom overtake each other
            arrivals.append((arrives, nbytes))
        else:
            insort(arrivals, (arrives, nbytes), self._first)
        self.nbytes += nbytes


_MOST_ARRIVED = 256  # that are kept in the list, since each time it is cut costs as much as its length
