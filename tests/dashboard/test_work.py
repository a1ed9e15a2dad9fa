from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from dashboard.work import TRACE, Analysis, State, Worker
from profiler import CaptureError

WAIT_SECONDS = 20


class FakeLaunch:
    """Notes which parts were asked for; some may wait for an event, or fail."""

    def __init__(self, before: Callable[[str], object] = lambda _: None) -> None:
        self.computed: list[str] = []
        self._before = before

    def is_known(self, part: str) -> bool:
        return part in self.computed

    def compute(self, part: str) -> None:
        self._before(part)
        self.computed.append(part)


def test_parts_are_found_in_the_order_in_which_they_are_asked_for() -> None:
    launch, worker = FakeLaunch(), Worker()
    analysis = Analysis(lambda: launch)
    assert analysis.progress(TRACE).state is State.WAITING
    worker.request(analysis, ["categories", "bubbles"])
    assert worker.wait(analysis, ["categories", "bubbles"], WAIT_SECONDS)
    assert launch.computed == ["categories", "bubbles"]
    assert analysis.progress("bubbles").state is State.DONE


def test_what_is_asked_for_last_comes_first_and_nothing_twice() -> None:
    go_on = threading.Event()
    launch = FakeLaunch()

    def load() -> FakeLaunch:
        go_on.wait(WAIT_SECONDS)
        return launch

    analysis, worker = Analysis(load), Worker()
    worker.request(analysis, ["utilisation", "what_if", "bubbles"])
    worker.request_last(analysis, ["balance"])
    worker.request(analysis, ["bubbles"])
    assert not worker.wait(analysis, ["bubbles"], 0.05)
    assert analysis.progress("what_if").state is State.WAITING
    go_on.set()
    assert worker.wait(analysis, ["utilisation", "what_if", "bubbles", "balance"], WAIT_SECONDS)
    assert launch.computed == ["bubbles", "utilisation", "what_if", "balance"]


def test_a_file_that_cannot_be_read_settles_everything() -> None:
    def refuse() -> FakeLaunch:
        raise CaptureError("torn")

    analysis, worker = Analysis(refuse), Worker()
    worker.request(analysis, ["bubbles"])
    assert worker.wait(analysis, ["bubbles"], WAIT_SECONDS)
    assert analysis.loaded is None
    assert str(analysis.errors[TRACE]) == "torn"
    assert analysis.progress(TRACE).state is State.FAILED


def test_an_analysis_that_fails_leaves_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    def fail(part: str) -> None:
        if part == "bubbles":
            raise ZeroDivisionError("no SM")

    analysis, worker = Analysis(lambda: FakeLaunch(fail)), Worker()
    worker.request(analysis, ["bubbles", "categories"])
    assert worker.wait(analysis, ["bubbles", "categories"], WAIT_SECONDS)
    assert analysis.progress("bubbles").state is State.FAILED
    assert analysis.progress("categories").state is State.DONE
    assert "ZeroDivisionError: no SM" in capsys.readouterr().err


def test_what_nobody_keeps_is_not_found() -> None:
    go_on = threading.Event()
    first, second = FakeLaunch(lambda _: bool(go_on.wait(WAIT_SECONDS))), FakeLaunch()
    kept, dropped, worker = Analysis(lambda: first), Analysis(lambda: second), Worker()
    worker.request(dropped, ["bubbles"])
    assert worker.wait(dropped, ["bubbles"], WAIT_SECONDS)
    worker.request(kept, ["bubbles"])
    worker.request_last(dropped, ["what_if"])
    worker.forget(dropped)
    go_on.set()
    assert worker.wait(kept, ["bubbles"], WAIT_SECONDS)
    assert second.computed == ["bubbles"]
