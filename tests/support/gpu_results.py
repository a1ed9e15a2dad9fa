"""A pytest plugin for `make test-gpu`: the results as JSON, written after every test, so that a kill loses none.

python -m pytest -p support.gpu_results --results-json build/test-gpu/results.json

A test that has begun is in the file as "did not end" until it does. With `--results-continue`, tests that the file has
are left out. An error after which no kernel of this process can run ends the session.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

UNENDED = "did not end"

# After these a CUDA context refuses everything (CUDA driver API, CUresult: "the process must be terminated").
_LOST_CONTEXT = (
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_INVALID_ADDRESS_SPACE",
    "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_LAUNCH_TIMEOUT",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
    "CUDA_ERROR_HARDWARE_STACK_ERROR",
    "CUDA_ERROR_ASSERT",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    parser.addoption("--results-json", type=Path, default=None, help="write the results here after every test")
    parser.addoption("--results-continue", action="store_true", help="leave out tests that the file has already")


def pytest_configure(config: pytest.Config) -> None:
    """Begins or continues the file, if one is asked for."""
    path = config.getoption("--results-json")
    if path is not None:
        config.pluginmanager.register(_Recorder(path, bool(config.getoption("--results-continue"))))


class _Recorder:
    def __init__(self, path: Path, continues: bool) -> None:
        self._path = path
        self._found: dict[str, Any] = {"device": _device(), "tests": {}}
        if continues and path.exists():
            self._found = json.loads(path.read_text())
        self._found["finished"] = False
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leaves out the tests that the file has."""
        done = [item for item in items if item.nodeid in self._found["tests"]]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid not in self._found["tests"]]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Says which test runs, for whoever finds that it never ended."""
        self._found["tests"][nodeid] = {"outcome": UNENDED, "seconds": 0.0}
        self._write()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keeps the worst of a test's phases, and what its call took."""
        test = self._found["tests"][report.nodeid]
        test["seconds"] = round(test["seconds"] + report.duration, 3)
        if report.outcome != "passed":
            test["outcome"] = report.outcome
            test["reason"] = str(report.longrepr)[-2000:]
        if report.when == "teardown":
            if test["outcome"] == UNENDED:
                test["outcome"] = "passed"
            self._write()

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Ends the session behind a test that has cost this process its GPU."""
        reason = self._found["tests"][item.nodeid].get("reason", "")
        lost = next((error for error in _LOST_CONTEXT if error in reason), None)
        if lost:
            item.session.shouldstop = f"{lost}: no other kernel can run in this process"

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
