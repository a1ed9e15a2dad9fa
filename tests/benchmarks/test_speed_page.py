"""The page about speed: what is measured arrives in its tables; samples go to the activity that takes the time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.speed import page, where
from benchmarks.speed.cases import Case, measure
from mgpu.sim.engine import Engine


def test_figures_and_shares_are_in_the_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "PAGE", tmp_path / "performance.md")
    case = {"kernel": "matmul", "size": 512, "mode": "time only"}
    figures = {"seconds": 0.5, "cpu_seconds": 0.25, "events": 1000, "peak_bytes": 2**30}
    compared = {"ours": 0.02, "jax": 5.0, "ratio": 250.0, "ours_cpu": 0.01, "jax_cpu": 4.0, "ratio_cpu": 400.0}
    results: dict[str, Any] = {
        "machine": "a machine",
        "load": "Nothing else ran.",
        "rows": [{**case, **figures}],
        "profiles": [{**case, "shares": {where.EVENTS: 0.75, where.MEMORY: 0.25}}],
        "compared": [{"size": 512, **compared}],
    }
    page.write_page(results)
    text = page.PAGE.read_text()
    assert "Machine: a machine. Nothing else ran." in text
    assert "| matmul | 512 | time only | 0.5 | 0.25 | 1,000 | 4,000 | 1.00 GiB |" in text
    assert "| 512 | 0.02 | 5 | 250 | 0.01 | 4 | 400 |" in text
    assert text.index(f"| {where.EVENTS} | 75% |") < text.index(f"| {where.MEMORY} | 25% |")


def test_samples_count_for_the_activity_that_takes_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "MIN_SAMPLES", 20)

    def only_events() -> None:
        engine = Engine()

        def walk():
            for _ in range(20_000):
                yield 1

        engine.start(walk(), "one")
        engine.start(walk(), "other")
        engine.run()

    shares = where.sample(only_events)
    assert sum(shares.values()) == pytest.approx(1)
    assert max(shares, key=lambda name: shares[name]) == where.EVENTS


def test_a_case_is_measured() -> None:
    figures = measure(Case("matmul", 512, "time only"))
    assert figures["events"] > 0
    assert figures["cpu_seconds"] > 0
    assert figures["peak_bytes"] > 2**20
