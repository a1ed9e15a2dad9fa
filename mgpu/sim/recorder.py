"""The event buffer of one track: stores the first `capacity` events, counts all of them."""

from __future__ import annotations

from array import array

from mgpu.units import WARPS_PER_WARPGROUP


class Recorder:
    """Records events of one warpgroup, as the device's recorder does.

    Args:
      capacity: events that there is room for.
      per_warp: give each warp a track of its own, for programs whose warps may differ.
    """

    __slots__ = ("_dropped", "_room", "_warps", "_words")

    def __init__(self, capacity: int, *, per_warp: bool = False) -> None:
        self._warps = [self, *(Recorder(capacity) for _ in range(WARPS_PER_WARPGROUP - 1))] if per_warp else []
        self._words = array("q")
        self._dropped = 0
        self._room = 2 * capacity

    def record(self, words: list[int]) -> None:
        """Stores events, if there is room, and counts them.

        Args:
          words: tag (`mgpu.capture.pack_tag`) and cycle of each event, alternating.
        """
        stored = self._words
        if len(stored) < self._room:
            stored.fromlist(words)  # the last ones may be too many, see `words`
        else:
            self._dropped += len(words) // 2

    def record_all(self, words: list[int]) -> None:
        """Records events of the whole warpgroup on the track of each of its warps."""
        for recorder in self._warps:
            recorder.record(words)

    @property
    def words(self) -> array[int]:
        """Tag and cycle of each stored event, alternating."""
        return self._words if len(self._words) <= self._room else self._words[: self._room]

    @property
    def count(self) -> int:
        """Events that happened, stored or not."""
        return len(self._words) // 2 + self._dropped

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
