from __future__ import annotations

from dashboard.store import LoadedLaunch
from dashboard.views.answers import costliest_barrier, first_changes


def test_barrier_that_left_the_tensor_core_idle_longest_is_named(ring: LoadedLaunch, attention: LoadedLaunch) -> None:
    for launch in (ring, attention):
        named = costliest_barrier(launch.report)
        assert named is not None
        rows = launch.report.barrier_waits.barriers.to_dicts()
        assert named["uncovered_cycles"] == max(row["uncovered_cycles"] for row in rows) > 0


def test_first_change_is_that_of_the_verdict(matmul: LoadedLaunch, attention: LoadedLaunch) -> None:
    for report in (matmul.report, attention.report):
        changes = first_changes(report)
        assert changes[0] == report.advice.items[0]
        assert len(changes) == 1 or (changes[0].basis, changes[1].basis) == ("at most", "replay")
        assert all(change.remedy in report.verdict for change in changes)
