"""The steps of a GPU benchmark, done by workers that succeed, fail, crash, hang and talk."""

from __future__ import annotations

import json
import sys

import pytest

from benchmarks.gpu.steps import Results, run_steps

WORKER = """
import os, sys, time, json
from benchmarks.gpu.steps import work

def do(name):
    print("chatter of a library", flush=True)
    if name == "error":
        raise RuntimeError("RESOURCE_EXHAUSTED: out of\\n   memory")
    if name == "crash":
        sys.stderr.write("CUDA_ERROR_ILLEGAL_ADDRESS\\n")
        sys.stderr.flush()
        os._exit(134)
    if name == "hang":
        time.sleep(600)
    return {"process": os.getpid()}

work(json.loads(sys.argv[1]), do)
"""
COMMAND = [sys.executable, "-c", WORKER]


def steps(*names, limit_s=60.0, total_s=300.0, start_s=60.0):
    return list(run_steps(names, COMMAND, limit_s=limit_s, total_s=total_s, start_s=start_s))


def test_steps_share_a_worker():
    first, second = steps("a", "b")
    assert [first["step"], second["step"]] == ["a", "b"]
    assert first["process"] == second["process"]


def test_a_step_that_fails_takes_no_other_along():
    a, error, b, crash, c = steps("a", "error", "b", "crash", "c")
    assert error == {"step": "error", "error": "RuntimeError: RESOURCE_EXHAUSTED: out of memory"}
    assert crash["error"] == "the worker ended with status 134: CUDA_ERROR_ILLEGAL_ADDRESS"
    assert len({a["process"], b["process"], c["process"]}) == 3


def test_a_step_that_hangs_is_left():
    hang, after = steps("hang", "a", limit_s=4.0, start_s=0.0)
    assert hang == {"step": "hang", "error": "took over 4 s"}
    assert "process" in after


def test_the_time_for_all_steps_ends():
    found = steps("hang", "a", "b", total_s=2.0)
    assert [result["step"] for result in found] == ["hang", "a", "b"]
    assert found[0]["error"] == "the 2 s for all steps are over"
    assert {result["error"] for result in found[1:]} == {"skipped: the 2 s for all steps are over"}


def test_results_are_whole_after_every_step(tmp_path):
    path = tmp_path / "made" / "results.json"
    results = Results(path, device="none")
    assert json.loads(path.read_text()) == {"device": "none", "results": []}
    results.add({"name": "a", "measured": 1.0})
    results.set(device="one")
    assert json.loads(path.read_text()) == {"device": "one", "results": [{"name": "a", "measured": 1.0}]}
    with pytest.raises(TypeError):
        results.add({"name": object()})
    assert json.loads(path.read_text())["device"] == "one"
