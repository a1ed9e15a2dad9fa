"""Runs the steps of a benchmark in processes of their own, so that what fails takes nothing else along.

A worker process does one step after another and says so, a line each. An error on a GPU may leave its process useless,
and a kernel may hang: a worker that reports an error, ends or takes too long is replaced by another for the steps that
are left. The results are written after every step, so that they are there whatever happens next.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

START_S = 90.0
"""Seconds that a worker may take, beyond its first step's own, to start."""

_ERROR_LINES = 8


class Results:
    """A JSON file that is whole at every moment.

    Args:
      path: the file.
      head: what stands before the results.
    """

    def __init__(self, path: Path, **head: Any) -> None:
        self._path = path
        self.found: dict[str, Any] = {**head, "results": []}
        path.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    def add(self, result: dict[str, Any]) -> None:
        """Adds the result of a step."""
        self.found["results"].append(result)
        self._write()

    def set(self, **head: Any) -> None:
        """Sets what stands before the results."""
        self.found.update(head)
        self._write()

    def _write(self) -> None:
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(self.found, indent=1) + "\n")
        unfinished.replace(self._path)


def run_steps(
    names: Sequence[str], command: Sequence[str], *, limit_s: float, total_s: float, start_s: float = START_S
) -> Iterator[dict[str, Any]]:
    """Runs steps in workers.

    Args:
      names: the steps, in order.
      command: what starts a worker; the steps that are left are added to it as one argument, a JSON list.
      limit_s: seconds that a step may take.
      total_s: seconds for all of them; steps that do not fit are skipped.
      start_s: seconds more for a worker's first step.

    Yields:
      For each step, as it ends, {"step": its name} and either what the worker says of it or {"error": why not}.
    """
    end = time.monotonic() + total_s
    left = list(names)
    while left:
        with _worker([*command, json.dumps(left)]) as (lines, why):
            allowance = start_s
            while left:
                budget = min(limit_s + allowance, end - time.monotonic())
                try:
                    line = lines.get(timeout=max(budget, 0.0))
                except queue.Empty:
                    line = None
                name = left.pop(0)
                if line is None:
                    is_over = time.monotonic() >= end
                    reason = f"the {total_s:.0f} s for all steps are over" if is_over else f"took over {budget:.0f} s"
                    yield {"step": name, "error": reason}
                    break
                if not line:
                    yield {"step": name, "error": why()}
                    break
                result = json.loads(line)
                assert result["step"] == name, f"the worker did {result['step']}, not {name}"
                yield result
                if "error" in result:
                    break
                allowance = 0.0
        if time.monotonic() >= end:
            for name in left:
                yield {"step": name, "error": f"skipped: the {total_s:.0f} s for all steps are over"}
            return


@contextlib.contextmanager
def _worker(command: Sequence[str]) -> Iterator[tuple[queue.Queue[str], Callable[[], str]]]:
    """Starts a worker; gives its lines, "" at their end, and what says why it ended. Stops it at last."""
    lines: queue.Queue[str] = queue.Queue()
    with tempfile.TemporaryFile("w+", errors="replace") as errors:
        worker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)

        def read(stream: IO[str]) -> None:
            for line in stream:
                if line.startswith("{"):  # anything else is a library's chatter
                    lines.put(line)
            lines.put("")

        def why() -> str:
            code = worker.wait()
            errors.seek(0)
            last = [line.rstrip() for line in errors.readlines() if line.strip()][-_ERROR_LINES:]
            return f"the worker ended with status {code}: " + " | ".join(last)

        assert worker.stdout is not None
        reader = threading.Thread(target=read, args=[worker.stdout], daemon=True)
        reader.start()
        try:
            yield lines, why
        finally:
            if worker.poll() is None:
                worker.kill()
            worker.wait()
            reader.join()
            worker.stdout.close()


def work(names: Sequence[str], do: Callable[[str], dict[str, Any]]) -> None:
    """Does steps in a worker: prints what `do` returns for each, or the error, after which it stops."""
    for name in names:
        try:
            result = {"step": name} | do(name)
        except Exception as error:
            traceback.print_exc()
            text = " ".join(str(error).split())
            result = {"step": name, "error": f"{type(error).__name__}: {text[:500]}"}
        print(json.dumps(result), flush=True)
        if "error" in result:
            sys.exit(1)
