from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.dashboard import section
from benchmarks.dashboard.__main__ import summarise


def test_figures_replace_the_earlier_section_and_nothing_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    monkeypatch.setattr(section, "PAGE", page)
    monkeypatch.setattr(section, "RESULTS", results)
    page.write_text("# Head\n\ntext\n")
    assert section.dashboard_section() == ""
    for slower in (1, 2):
        zooms = [{"ms": slower * ms, "boxes": ms, "stands_for": 9 * ms} for ms in (30, 75, 60, 90, 45)]
        times = dict.fromkeys(("first_open_s", "open_s", "complete_s", "verdict_s"), 1.234)
        results.write_text(json.dumps(summarise({"spans": 1000, "zooms": zooms, "times": times})))
        section.rewrite_section()
        text = page.read_text()
        assert text.startswith("# Head\n\ntext\n\n## The dashboard's timeline\n")
        assert text.count(section.HEADING) == 1
        assert f"| zoom, median of 5 | {60 * slower} ms | 150 ms | {0.4 * slower:.2f} |" in text
    assert "At most 90 boxes" in page.read_text()
