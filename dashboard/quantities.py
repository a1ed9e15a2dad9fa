"""Numbers as people read them: cycles or time, shares, bytes, counts."""

from __future__ import annotations

import dataclasses

CYCLES, NANOSECONDS = "cycles", "ns"


@dataclasses.dataclass(frozen=True)
class Units:
    """How durations are shown.

    Attributes:
      name: "cycles" or "ns".
      clock_hz: SM clock of the launch, which converts one to the other.
    """

    name: str
    clock_hz: float

    def convert(self, cycles: float) -> float:
        """Returns a duration in cycles in these units."""
        return cycles if self.name == CYCLES else cycles * 1e9 / self.clock_hz

    def number(self, cycles: float | None) -> str:
        """Formats a duration without its unit, for tables whose heading names it; a dash if unknown."""
        return "\u2013" if cycles is None else f"{self.convert(cycles):,.0f}"

    def text(self, cycles: float) -> str:
        """Formats a duration with its unit; time is scaled to ns, µs or ms."""
        if self.name == CYCLES:
            return f"{cycles:,.0f} cycles"
        return time_text(self.convert(cycles))

    def both(self, cycles: float) -> str:
        """Formats a duration in cycles and as time."""
        return f"{cycles:,.0f} cycles = {time_text(cycles * 1e9 / self.clock_hz)}"


def time_text(ns: float) -> str:
    """Formats a time given in ns with a unit that leaves one to three digits before the point."""
    for limit, factor, unit in ((1e3, 1, "ns"), (1e6, 1e3, "µs"), (1e9, 1e6, "ms")):
        if abs(ns) < limit:
            return f"{ns / factor:,.4g} {unit}"
    return f"{ns / 1e9:,.4g} s"


def share_text(share: float) -> str:
    """Formats a share (0 to 1) in percent."""
    return f"{share:.0%}" if share >= 0.1 else f"{share:.1%}" if share >= 0.001 or not share else "<0.1%"
