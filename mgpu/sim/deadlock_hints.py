"""What is probably wrong, seen from the barrier that nobody completes: the last lines of a deadlock's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mgpu.sim.mbarrier import Mbarrier
from mgpu.sim.semaphore import Semaphore

GENERAL = "Look for a missing arrival, a num_arrivals that is too large, or waits and arrivals in another order."


_AS_MANY = "make as many waits as arrivals."

Waits = Mapping[str, tuple[int, int]]
"""For each slot of a barrier, such as "full[1]": phases completed so far, and how often somebody has waited there."""


def needs_all_ctas(num_running: int, num_outside: int) -> str:
    """Returns what to do about CTAs that wait for others which cannot begin.

    Args:
      num_running: CTAs that have begun and not exited: all that have room.
      num_outside: CTAs that have not begun.
    """
    return (
        f"{num_running:,} CTAs run side by side, the grid has {num_outside:,} more, and those that run wait for more "
        f"signals than they send: the others begin only when these exit. Launch {num_running:,} CTAs or fewer and let "
        "each loop over its share of the work, make CTAs smaller (SMEM, warpgroups) so that more have room, or do "
        "what comes after the barrier in a second kernel."
    )


def find_semaphore_hint(semaphore: Semaphore, value: int) -> str:
    """Returns what to look at first where somebody waits for a value of a semaphore; "" if nothing stands out."""
    if semaphore.taken and semaphore.count + semaphore.taken >= value:
        return (
            f"Waits have taken {semaphore.taken} from {semaphore.label}: semaphore_wait takes the value that it waited "
            "for. Where several wait for the same signals, as at a barrier of all CTAs, wait with decrement=False, and "
            "in each round for so much more; else signal once for each wait."
        )
    return ""


def find_hint(
    barrier: Mbarrier, have_finished: Sequence[bool], *, by_copies: bool, by_waiter: bool, waits: Waits
) -> str:
    """Returns what to look at first; "" if nothing stands out.

    Args:
      barrier: what somebody waits on.
      have_finished: for each place of the kernel that arrives on it, whether its warpgroup has ended; the others wait,
        too.
      by_copies: whether these are copies only.
      by_waiter: whether only the one who waits issues them.
      waits: of the one who waits; empty if nobody has counted.
    """
    name, arrived = barrier.label.partition("[")[0], barrier.num_arrivals - barrier.pending
    completed, waited = waits.get(barrier.label, (0, 0))
    if not have_finished:
        return f"Nothing arrives on {name}: add barrier_arrive({name}), or give {name} to the copy that is waited for."
    if barrier.tx_bytes < 0:
        return (
            f"Bytes of a peer's copy have landed on {barrier.label}, but this CTA has issued none: a copy with "
            "collective_axes has to be issued by all CTAs along these axes."
        )
    if barrier.tx_bytes > 0 and not barrier.pending:
        return (
            f"{barrier.label} has its arrivals, but not all bytes: a copy with collective_axes has to be issued by all "
            "CTAs along these axes, each of which brings its share."
        )
    if 0 < arrived < barrier.num_arrivals:
        return (
            f"{barrier.label} got {arrived} of {barrier.num_arrivals} arrivals: lower num_arrivals, or let everybody "
            "arrive who is counted in it (a copy counts as one; on a ClusterBarrier, each CTA along its axes)."
        )
    if completed - waited >= 2:
        return (
            f"{barrier.label} was completed {_times(completed)}, but the one who waits there has waited "
            f"{_times(waited)} before: a phase is missed when the next one completes before it is waited for. Let "
            f"those who arrive on {name} wait in between until the last phase was seen. If they do, somebody arrives "
            "too often for one use of a slot, or num_arrivals is smaller than the number of those who arrive."
        )
    if by_waiter and not any(have_finished):
        return (
            f"Nobody but the one who waits arrives on {name}, and not on {barrier.label} in this phase: see whether "
            "copy and wait name the same slot, and which of them comes first."
        )
    if barrier.phase == 0 and not any(have_finished) and not by_copies:
        return (
            f"Nobody who arrives on {name} gets that far before {barrier.label} completes for the first time. If it "
            "tells that a slot is free, slots are free in the beginning: wait only before a slot is used again, and "
            "arrive after each use."
        )
    return _find_hint_of_order(barrier, name, waits) or _find_hint_of_count(barrier, name, have_finished, waits)


def _find_hint_of_order(barrier: Mbarrier, name: str, waits: Waits) -> str:
    passed_by = [label for label, (phases, seen) in waits.items() if _is_slot(label, name) and 0 < seen < phases]
    if passed_by:
        return (
            f"{passed_by[0]} has completed a phase that the one who waits on {barrier.label} has not waited for: "
            f"those who arrive on {name} and those who wait do not take its slots in the same order. Count slots from "
            "the first step of the kernel on, on both sides: what begins each tile at slot 0 gets out of step unless "
            "the tiles have a multiple of num_barriers steps."
        )
    return ""


def _find_hint_of_count(barrier: Mbarrier, name: str, have_finished: Sequence[bool], waits: Waits) -> str:
    if not all(have_finished):
        return ""
    if not barrier.phase:
        return f"{barrier.label} was never completed, and all who arrive on {name} have ended: {_AS_MANY}"
    missed = (
        " If it was completed twice between two waits, the first one was missed: let those who arrive wait for the "
        "waiter in between."
    )
    text = f"{barrier.label} was completed {_times(barrier.phase)} and is waited for once more: {_AS_MANY}"
    return text if waits else text + missed


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _is_slot(label: str, name: str) -> bool:
    return label.partition("[")[0] == name
