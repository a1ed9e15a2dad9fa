"""Clocks: the one place that unwraps SM clocks, lines SMs up with each other and converts cycles to ns.

Every SM has a cycle counter of its own. Warps of one SM share it, so their order is exact. Counters of different SMs
differ by a constant; the global timer, which all SMs can read, gives it, no better than the timer's own tick. What is
left over, the residual, is reported with the Trace and bounds the error of any comparison between SMs.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from mgpu.capture import Capture

WRAP_CYCLES = 1 << 32


def cycles_to_ns(cycles: float, clock_hz: float) -> float:
    """Converts a duration in SM cycles to ns."""
    return cycles * 1e9 / clock_hz


def ns_to_cycles(ns: float, clock_hz: float) -> float:
    """Converts a duration in ns to SM cycles."""
    return ns * clock_hz / 1e9


def unwrap_clocks(clocks: np.ndarray, offsets: np.ndarray, clock_begin: np.ndarray) -> np.ndarray:
    """Returns 64-bit cycle counts for the 32-bit clocks of all tracks.

    Two consecutive events of a track must be less than 2**32 cycles apart (2.4 s at 1.755 GHz); then the difference
    modulo 2**32 is the true one, however often the counter wraps over the life of the track.

    Args:
      clocks: uint32[events], the events of one track after another.
      offsets: int64[tracks + 1], where each track's events begin, and the total.
      clock_begin: int64[tracks], 64-bit counter at the begin of each track.
    """
    if not clocks.size:
        return np.zeros(0, np.int64)
    steps = np.empty(clocks.shape, np.uint32)
    np.subtract(clocks[1:], clocks[:-1], out=steps[1:])
    counts = np.diff(offsets)
    full = counts > 0
    first = offsets[:-1][full]
    # numpy wraps uint32 subtraction modulo 2**32, which is just what the counter did.
    steps[first] = clocks[first] - (clock_begin[full] & (WRAP_CYCLES - 1)).astype(np.uint32)
    cycles = np.cumsum(steps, dtype=np.int64)
    before = cycles[first] - steps[first]
    cycles += np.repeat(clock_begin[full] - before, counts[full])
    return cycles


def clamp_backward_steps(cycles: np.ndarray) -> tuple[np.ndarray, int]:
    """Repairs a track whose unwrapped clock ran past its end, because a step back looked like a step of nearly 2**32.

    Returns the cycle counts with each backward step taken as no step at all, and how many there were.
    """
    steps = np.diff(cycles, prepend=cycles[:1])
    backward = steps >= WRAP_CYCLES // 2
    repaired = cycles - np.cumsum(np.where(backward, WRAP_CYCLES, 0))
    return np.maximum.accumulate(repaired), int(backward.sum())


@dataclasses.dataclass(frozen=True)
class Alignment:
    """What to add to an SM's cycle counter so that all SMs of a launch share one time.

    Attributes:
      shift_cycles: int64, indexed by SM number.
      residual_cycles: largest distance of a track's anchor from the aligned time; 0 if the SMs share a clock.
    """

    shift_cycles: np.ndarray
    residual_cycles: int

    def apply(self, cycles: np.ndarray, sm: np.ndarray) -> np.ndarray:
        """Returns `cycles` (int64, counters of the SMs `sm`) in the common time."""
        return cycles.astype(np.int64) + self.shift_cycles[sm]


def align_sms(capture: Capture) -> Alignment:
    """Finds the alignment of a launch's SMs from the (cycle counter, global timer) anchors of its tracks.

    An SM's shift is the median over its anchors, relative to the lowest-numbered SM, which is left as it is. SMs of a
    simulated launch count one clock, so nothing is shifted.
    """
    tracks = capture.tracks
    num_sms = 1 + max(int(tracks["sm"].max(initial=0)), int(capture.ctas["sm"].max(initial=0)))
    shifts = np.zeros(num_sms, np.int64)
    if capture.header.provenance == "simulated" or not len(tracks):
        return Alignment(shifts, 0)
    sm = np.concatenate([tracks["sm"], tracks["sm"]]).astype(np.int64)
    counter = np.concatenate([tracks["clock_begin"], tracks["clock_end"]]).astype(np.int64)
    timer_ns = np.concatenate([tracks["ns_begin"], tracks["ns_end"]]).astype(np.int64)
    # Both are taken relative to a first value, because float64 cannot hold nanoseconds since boot times a clock rate.
    reference = np.flatnonzero(sm == sm.min())[0]
    timer = np.asarray(ns_to_cycles(1.0, capture.header.clock_hz) * (timer_ns - timer_ns[reference]))
    lead = timer - (counter - counter[reference])
    used = np.unique(sm)
    for number in used:
        shifts[number] = round(float(np.median(lead[sm == number])))
    shifts[used] -= shifts[used[0]]
    residual = np.abs(lead - shifts[sm] - np.median(lead[sm == used[0]]))
    return Alignment(shifts, int(np.ceil(residual.max())))
