"""The benchmark of captures: every stage does its work on a small capture, and the page tells what was measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.decode import section
from benchmarks.decode.stages import STAGES, measure

SETTING = {"events": 1000, "sms": 132, "repeats": 1, "machine": "2 cores", "load": 1.5}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_works_on_all_events(stage: str) -> None:
    found = measure(stage, 6000, 2)
    work = found["work"]
    assert found["seconds"] > 0
    if "Perfetto" in stage:  # one CTA for 6000 events: two slices in three events, and the loads and MMAs of units
        assert work["slices"] > 2000
        assert work["counters"] > 0
    else:
        assert work["events"] >= 6000


def test_the_section_stands_before_the_dashboards_and_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results.json"
    monkeypatch.setattr(section, "PAGE", page)
    monkeypatch.setattr(section, "RESULTS", results)
    page.write_text("# Head\n\ntext\n\n## The dashboard's timeline\n\nfigures\n")
    assert section.decode_section() == ""
    for slower in (1, 2):
        times = {"seconds": 0.5 * slower, "cpu_seconds": 0.8, "peak_mib": 512}
        drawn = {"slices": 1_000_000, "instants": 200_000, "flows": 7, "counters": 300_000}
        stages = [
            {"stage": "build", "work": {"events": 2_000_000}, **times},
            {"stage": "Perfetto file", "work": drawn, **times},
        ]
        results.write_text(json.dumps({"setting": SETTING, "stages": stages}))
        section.rewrite_section()
        text = page.read_text()
        assert text.startswith("# Head\n\ntext\n\n## Reading, analysing")
        assert text.endswith("## The dashboard's timeline\n\nfigures\n")
        assert text.count(section.HEADING) == 1
        assert f"| build | {0.5 * slower:.2f} | 0.80 | {4 / slower:.2f} M events | 0.50 GiB |" in text
        assert (
            f"(1.00 M slices, 0.20 M instants, 0.30 M counters) | {0.5 * slower:.2f} | 0.80 | {3 / slower:.2f} M"
            in text
        )
