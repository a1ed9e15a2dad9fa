from __future__ import annotations

import re
from pathlib import Path

import pytest

from dashboard.static import write_static
from profiler import CaptureError


def test_static_report_is_one_file_that_asks_for_nothing(matmul_profile: Path, tmp_path: Path) -> None:
    path = write_static(matmul_profile, tmp_path / "out.html", "matmul-0001")
    text = path.read_text()
    body = text[text.index("<body>") :]
    assert "matmul-0001 on h100 (simulated)" in body
    assert not re.findall(r'<(?:script|link|img|iframe)[^>]*(?:src|href)="', text)
    for section in ("overview", "timeline", "bubbles", "barriers", "pipeline", "critical-path", "source"):
        assert f'<section id="{section}">' in body
    assert body.count("Plotly.newPlot(") >= 8
    anchors = set(re.findall(r'href="#([\w-]+)"', body))
    assert anchors <= set(re.findall(r'id="([\w-]+)"', body))


def test_a_launch_that_is_not_there_is_named(ring_profile: Path, tmp_path: Path) -> None:
    with pytest.raises(CaptureError, match="holds no launch 'x'"):
        write_static(ring_profile, tmp_path / "out.html", "x")
    with pytest.raises(CaptureError, match="cannot be written"):
        write_static(ring_profile, tmp_path / "no" / "out.html")
