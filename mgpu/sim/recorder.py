"""The event buffer of one track: stores the first `capacity` events, counts all of them."""

from __future__ import annotations

from mgpu.sim.engine import Engine


class Recorder:
    """Records events of one warpgroup, as the device's recorder does.

    Attributes:
      words: tag and clock of each stored event, alternating.
      count: events that happened.
    """

    __slots__ = ("_engine", "_room", "count", "words")

    def __init__(self, engine: Engine, capacity: int) -> None:
        self.words: list[int] = []
        self.count = 0
        self._engine = engine
        self._room = 2 * capacity

    def record(self, tag: int) -> None:
        """Stores an event with the current time if there is room, and counts it."""
        self.count += 1
        if len(self.words) < self._room:
            self.words.append(tag)
            self.words.append(self._engine.now & 0xFFFFFFFF)
