"""The runner of the tests that need a GPU, on tests that pass, fail, hang, crash and lose the GPU."""

from __future__ import annotations

import json

import pytest

from support.gpu_suite import main, run_suite

TESTS = """
import ctypes, os

def test_passes(): pass

def test_fails(): assert 1 == 2

def test_hangs():
    lock = ctypes.create_string_buffer(64)
    libc = ctypes.CDLL(None)
    libc.pthread_mutex_lock(lock)
    libc.pthread_mutex_lock(lock)  # waits where no signal is heard, as for a kernel

def test_loses_the_gpu(): raise RuntimeError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered")

def test_crashes(): os._exit(134)

def test_is_last(): pass
"""
OPTIONS = ["-q", "-p", "pytest_timeout", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir"]


@pytest.fixture
def suite(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    path = tmp_path / "suite" / "test_suite.py"
    path.parent.mkdir()
    path.write_text(TESTS)

    def arguments(names=""):
        return [str(path), *OPTIONS, str(path.parent), *(["-k", names] if names else [])]

    return tmp_path / "build" / "results.json", arguments


def outcomes(found):
    return {name.rpartition("::")[2]: test["outcome"] for name, test in found["tests"].items()}


def test_no_test_takes_another_along(suite):
    results, arguments = suite
    found = run_suite(results, arguments(), test_s=3.0)
    assert outcomes(found) == {
        "test_passes": "passed",
        "test_fails": "failed",
        "test_hangs": "did not end",
        "test_loses_the_gpu": "failed",
        "test_crashes": "did not end",
        "test_is_last": "passed",
    }
    assert found["finished"]
    assert found == json.loads(results.read_text())


def test_the_time_for_all_tests_ends(suite):
    results, arguments = suite
    found = run_suite(results, arguments("hangs or last"), test_s=600.0, total_s=5.0)
    assert not found["finished"]
    assert "test_is_last" not in outcomes(found)


def test_what_the_user_sees(suite, capfd):
    results, arguments = suite
    assert main([str(results), *arguments("passes")]) == 0
    assert "test-gpu: 1 passed. Written to" in capfd.readouterr().out
    assert main([str(results), *arguments("fails or last")]) == 1
    assert "test-gpu: 1 failed, 1 passed. Written to" in capfd.readouterr().out


def test_a_mistake_in_the_arguments_is_no_success(suite):
    results, arguments = suite
    assert main([str(results), "--no-such-option", *arguments()]) == 1
    assert main([str(results), *arguments("no_such_test")]) == 1
