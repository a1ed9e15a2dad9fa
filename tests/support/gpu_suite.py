"""Runs the tests that need a GPU in processes of their own, so that a kernel that hangs or crashes loses no other test.

python -m support.gpu_suite RESULTS [pytest arguments ...]

pytest does one test after another. A test that takes too long ends its process (a thread sees to that: a process that
waits for a kernel hears no signal), and so does an error that costs the process its GPU. Another process then does the
tests that are left, until all are done or the time is over.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.gpu_results import UNENDED

TEST_S = 60.0
TOTAL_S = 450.0  # of the eight minutes that `make test-gpu` may take
_CLEANUP_S = 15.0
_TESTS = Path(__file__).parents[1]  # where the plugin is found
_ALL_DONE = (0, 1, 5)  # exit codes of pytest: all passed, some failed, none left


def run_suite(
    results: Path, arguments: Sequence[str], *, test_s: float = TEST_S, total_s: float = TOTAL_S
) -> dict[str, Any]:
    """Runs the tests.

    Args:
      results: where the results are written as they come; what tests leave is kept in the folder of that name, by
        process.
      arguments: arguments of pytest: which tests.
      test_s: seconds that a test may take.
      total_s: seconds for all of them.

    Returns:
      What stands in `results`; "finished" says whether every test was reached.
    """
    results.unlink(missing_ok=True)
    kept = results.with_suffix("")
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(_TESTS), os.environ.get("PYTHONPATH", "")])}
    end = time.monotonic() + total_s
    num_known = -1
    for process in itertools.count(1):
        left = end - time.monotonic()
        command = [sys.executable, "-m", "pytest", "-p", "support.gpu_results", f"--results-json={results}"]
        command += ["--results-continue", f"--timeout={test_s}", "--timeout-method=thread"]
        command += [f"--session-timeout={max(left, 1.0)}", f"--basetemp={kept / str(process)}", *arguments]
        status = None
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = subprocess.run(command, check=False, env=environment, timeout=left + _CLEANUP_S).returncode
        found: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {"tests": {}}
        is_over = time.monotonic() >= end
        # A process that did not begin a single test will not begin one the next time either.
        if (found.get("finished") and status in _ALL_DONE) or is_over or len(found["tests"]) == num_known:
            found["finished"] = bool(found.get("finished")) and status in _ALL_DONE and not is_over
            results.write_text(json.dumps(found, indent=1) + "\n")
            return found
        num_known = len(found["tests"])
    raise AssertionError("counting ends nowhere")


def main(arguments: Sequence[str]) -> int:
    """Command line. Returns 0 if every test passed."""
    results = Path(arguments[0])
    found = run_suite(results, arguments[1:])
    outcomes = Counter(test["outcome"] for test in found["tests"].values())
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()) or "no test ran"
    print(f"test-gpu: {told}{'' if found['finished'] else '; not all tests were reached'}. Written to {results}")
    for name, test in found["tests"].items():
        if test["outcome"] == UNENDED:
            print(f"    {UNENDED}: {name}")
    return 0 if found["finished"] and set(outcomes) <= {"passed", "skipped"} and outcomes["passed"] else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
