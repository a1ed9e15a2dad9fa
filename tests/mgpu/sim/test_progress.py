"""Progress of a simulation: on a terminal it tells CTAs and simulated time, elsewhere nothing."""

import io
import re

import pytest

from mgpu.sim.engine import Engine
from mgpu.sim.progress import MIN_CTAS, show_progress


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def run_and_read(stream: io.StringIO, num_ctas: int, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    engine = Engine()
    with show_progress("matmul", num_ctas, engine, 1.755e9) as cta_done:
        for number in range(num_ctas):
            engine.call_at(1755 * number, cta_done)
        engine.run()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_a_terminal_is_told_ctas_and_simulated_time(monkeypatch):
    text = run_and_read(Terminal(), MIN_CTAS, monkeypatch)
    assert f"{MIN_CTAS}/{MIN_CTAS} CTAs, {MIN_CTAS - 1} us simulated" in text
    assert "simulating matmul" in text


def test_no_terminal_is_told_nothing(monkeypatch):
    assert run_and_read(io.StringIO(), MIN_CTAS, monkeypatch) == ""


def test_a_short_launch_shows_nothing(monkeypatch):
    assert run_and_read(Terminal(), MIN_CTAS - 1, monkeypatch) == ""
