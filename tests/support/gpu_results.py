"""A pytest plugin for `make test-gpu`: the results as JSON, written after every test, so that a kill loses none.

python -m pytest -p support.gpu_results --results-json build/test-gpu/results.json
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option that names the file."""
    parser.addoption("--results-json", type=Path, default=None, help="write the results here after every test")


def pytest_configure(config: pytest.Config) -> None:
    """Begins the file, if one is asked for."""
    path = config.getoption("--results-json")
    if path is not None:
        config.pluginmanager.register(_Recorder(path))


class _Recorder:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._found: dict[str, Any] = {"device": _device(), "finished": False, "tests": {}}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the worst of a test's phases, and what its call took."""
        test = self._found["tests"].setdefault(report.nodeid, {"outcome": "passed", "seconds": 0.0})
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        if report.outcome != "passed":
            test["outcome"] = report.outcome
            test["reason"] = str(report.longrepr)[-2000:]
        if report.when == "teardown":
            self._write()

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Says that the run came to its end, by itself or at its time limit."""
        self._found |= {"finished": True, "status": int(exitstatus)}
        self._write()

    def _write(self) -> None:
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(self._found, indent=1) + "\n")
        unfinished.replace(self._path)


def _device() -> str:
    import jax

    return jax.devices()[0].device_kind
