"""Units of time and size. Every name that holds a time ends in `_cycles` or `_ns`, every size in `_bytes` or `_bits`.

Cycles are SM clock cycles and the primary unit. Conversion to nanoseconds needs a clock rate, which belongs to a run,
never to a module: see `profiler.clock`.
"""

from __future__ import annotations

from typing import NewType

Cycles = NewType("Cycles", int)
Nanoseconds = NewType("Nanoseconds", int)

POWER_CAPPED = "power_capped"
"""Instead of a clock in Hz: the one at which a run settles under the power limit."""

KIB = 1024
LANES_PER_WARP = 32
WARPS_PER_WARPGROUP = 4
LANES_PER_WARPGROUP = LANES_PER_WARP * WARPS_PER_WARPGROUP


def format_bytes(num_bytes: int) -> str:
    """Returns a size for people: `512 B`, `48.0 KiB`, `3.2 MiB`."""
    size = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{num_bytes} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def format_duration(seconds: float) -> str:
    """Returns a duration for people, in the largest unit that keeps a digit before the point: `17.3 µs`."""
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
