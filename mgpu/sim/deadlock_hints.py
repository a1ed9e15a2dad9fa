"""What is probably wrong, seen from the barrier that nobody completes: the last lines of a deadlock's report."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.sim.mbarrier import Mbarrier

GENERAL = "Look for a missing arrival, a num_arrivals that is too large, or waits and arrivals in another order."


def find_hint(barrier: Mbarrier, have_finished: Sequence[bool], *, by_copies: bool, by_waiter: bool) -> str:
    """Returns what to look at first; "" if nothing stands out.

    Args:
      barrier: what somebody waits on.
      have_finished: for each place of the kernel that arrives on it, whether its warpgroup has ended; the others wait,
        too.
      by_copies: whether these are copies only.
      by_waiter: whether only the one who waits issues them.
    """
    name, arrived = barrier.label.partition("[")[0], barrier.num_arrivals - barrier.pending
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
    if by_waiter and not any(have_finished):
        return (
            f"Nobody but the one who waits arrives on {name}, and not on {barrier.label} in this phase: see whether "
            "copy and wait name the same slot, and which of them comes first."
        )
    if barrier.phase == 0 and not any(have_finished) and not by_copies:
        return (
            f"Nobody who arrives on {name} gets that far before {barrier.label} completes for the first time. If it "
            "tells that a slot is free, slots are free in the beginning: wait only before a slot is used again."
        )
    if barrier.phase and all(have_finished):
        return (
            f"{barrier.label} was completed {barrier.phase} times and is waited for once more: make as many waits as "
            "arrivals. If it was completed twice between two waits, the first one was missed: let those who arrive "
            "wait for the waiter in between."
        )
    return ""
