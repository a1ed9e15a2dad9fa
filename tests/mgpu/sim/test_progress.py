"""Progress of a simulation: a terminal is told CTAs, simulated time and the part that is done; others nothing."""

import contextlib
import io
import re
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mgpu
from mgpu.sim import simulation
from mgpu.sim.memory_system import MemorySystem
from mgpu.sim.progress import DELAY_S, HowFar, show_progress

HALF = HowFar(ctas=60, num_ctas=132, fraction=0.5, simulated_us=345.2)


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self) -> bool:
        return True


def run_and_read(stream: io.StringIO, monkeypatch: pytest.MonkeyPatch, delay_s: float = 0.0) -> str:
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    with show_progress("matmul", lambda: HALF, delay_s):
        end = time.monotonic() + 5
        while delay_s == 0.0 and stream.isatty() and "simulated" not in stream.getvalue() and time.monotonic() < end:
            time.sleep(0.01)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_a_terminal_is_told_how_far_it_is(monkeypatch):
    text = run_and_read(Terminal(), monkeypatch)
    assert re.search(r"simulating matmul .* 50% 60/132 CTAs, 345 us simulated, ", text)


def test_no_terminal_is_told_nothing(monkeypatch):
    assert run_and_read(io.StringIO(), monkeypatch) == ""


def test_a_short_launch_shows_nothing(monkeypatch):
    assert run_and_read(Terminal(), monkeypatch, DELAY_S) == ""


@pytest.mark.parametrize("is_static", [True, False])
def test_a_persistent_kernel_is_measured_by_its_outermost_loop(monkeypatch, is_static):
    """One of two CTAs asks at each turn; the inner loop does not count."""
    asked = []

    @contextlib.contextmanager
    def ask_when_stored(name, measure):
        write = MemorySystem.write

        def asking(memory, now, sm, *args):
            if sm == 0:
                asked.append(measure())
            return write(memory, now, sm, *args)

        monkeypatch.setattr(MemorySystem, "write", asking)
        yield

    monkeypatch.setattr(simulation, "show_progress", ask_when_stored)

    def body(turns, out):
        def turn(index, _):
            value = lax.fori_loop(0, 3, lambda _, sum: sum + turns[0].astype(jnp.float32), jnp.float32(0))
            out[lax.axis_index("cta"), index] = value

        lax.fori_loop(0, 4 if is_static else turns[0], turn, None)

    kernel = mgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((2, 4), jnp.float32), grid=(2,), grid_names=("cta",), name="persistent"
    )
    np.testing.assert_array_equal(kernel(jnp.array([4], jnp.int32)), 12)
    # The CTAs run side by side, each with half of the work.
    assert [so_far.fraction for so_far in asked] == [0, 0.25, 0.5, 0.75]
    assert {(so_far.ctas, so_far.num_ctas) for so_far in asked} == {(0, 2)}
    assert asked[-1].simulated_us > asked[0].simulated_us > 0
