"""The event buffer of one track: stores the first `capacity` events, counts all of them."""

from __future__ import annotations

from mgpu.sim.engine import Engine
from mgpu.units import WARPS_PER_WARPGROUP


class Recorder:
    """Records events of one warpgroup, as the device's recorder does.

    Args:
      engine: gives the time.
      capacity: events that there is room for.
      per_warp: give each warp a track of its own, for programs whose warps may differ.

    Attributes:
      words: tag and clock of each stored event, alternating.
    """

    __slots__ = ("_dropped", "_engine", "_room", "_warps", "words")

    def __init__(self, engine: Engine, capacity: int, *, per_warp: bool = False) -> None:
        self._warps = [self, *(Recorder(engine, capacity) for _ in range(WARPS_PER_WARPGROUP - 1))] if per_warp else []
        self.words: list[int] = []
        self._dropped = 0
        self._engine = engine
        self._room = 2 * capacity

    def record(self, tag: int, elapsed_cycles: int = 0) -> None:
        """Stores an event, if there is room, and counts it.

        Args:
          tag: see `mgpu.capture.pack_tag`.
          elapsed_cycles: how far the caller's own time is ahead of the engine's.
        """
        words = self.words
        if len(words) < self._room:
            words += (tag, (self._engine.now + elapsed_cycles) & 0xFFFFFFFF)
        else:
            self._dropped += 1

    def record_all(self, tag: int, elapsed_cycles: int = 0) -> None:
        """Records an event of the whole warpgroup on the track of each of its warps."""
        for recorder in self._warps:
            recorder.record(tag, elapsed_cycles)

    @property
    def count(self) -> int:
        """Events that happened, stored or not."""
        return len(self.words) // 2 + self._dropped

    def of_warp(self, warp: int) -> Recorder | None:
        """Returns the recorder of one warp; None if the warpgroup has one track, which its first warp writes."""
        if self._warps:
            return self._warps[warp]
        return self if warp == 0 else None

    def track(self, warp: int) -> Recorder:
        """Returns what is written to the track of a warp, or of the whole warpgroup (-1)."""
        return self._warps[warp] if self._warps and warp >= 0 else self

    @property
    def has_warp_tracks(self) -> bool:
        """True if each warp has a track of its own."""
        return bool(self._warps)
