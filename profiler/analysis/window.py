"""The stretch of a launch about which everything is known.

A track whose event buffer was full is silent after its last stored event, and silence there is not idleness. Analyses
therefore look at the launch from its first moment to the moment at which the first such track falls silent.
"""

from __future__ import annotations

import dataclasses

import polars as pl

from profiler.trace import Trace


@dataclasses.dataclass(frozen=True)
class Window:
    """The analysed stretch of a launch, from cycle 0.

    Attributes:
      end: first cycle that is not analysed.
      launch_end: last moment of the launch, in cycles.
      events_dropped: events that did not fit their buffers.
      sufficient_profile_space: the smallest `profile_space` that would have dropped nothing.
    """

    end: int
    launch_end: int
    events_dropped: int
    sufficient_profile_space: int

    @property
    def is_whole(self) -> bool:
        """True if the whole launch is known."""
        return self.end == self.launch_end

    @property
    def note(self) -> str:
        """What was lost and how to keep it, in a sentence; "" if nothing was."""
        if not self.events_dropped:
            return ""
        return (
            f"{self.events_dropped:,} events did not fit; everything below covers the first {self.end:,} of "
            f"{self.launch_end:,} cycles. profile_space={self.sufficient_profile_space} would have kept them all."
        )


def known_window(trace: Trace) -> Window:
    """Returns the stretch in which every track's events are known."""
    silent = trace.tracks.filter(pl.col("dropped") > 0)["last"].min()
    end = min(trace.end, silent) if isinstance(silent, int) else trace.end
    return Window(max(end, 0), trace.end, trace.events_dropped, trace.sufficient_profile_space)
