"""The page on replays: what it counts."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

from benchmarks import replay


def test_the_page_counts_what_is_near_and_names_the_worst() -> None:
    rows = [("one more stage in full (2 to 3)", 0.125, 0.120), ("no recording", 0.02, 0.12), ("MMAs at once", 0.5, 0.5)]
    page = replay.render({"matmul": rows})
    assert "Of 3 predictions, 2 are within 2 points of the simulated gain; the median is 0.5 points off" in page
    assert "the worst 10.0." in page
    assert "| matmul | no recording | 2.0% | 12.0% | -10.0 |" in page


def test_changes_are_of_numbers_that_the_device_has() -> None:
    device = replay.load_device(replay.DEVICE)
    for change in replay.changes():
        device.override(**change.numbers)
