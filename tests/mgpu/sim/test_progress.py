"""Progress of a simulation: a terminal is told CTAs, simulated time and the part that is done; others nothing.

Who runs one that takes minutes is warned, wherever the output goes.
"""

import contextlib
import io
import re
import time
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mgpu
from mgpu.errors import LongRunWarning
from mgpu.sim import progress, simulation
from mgpu.sim.memory_system import MemorySystem
from mgpu.sim.progress import DELAY_S, HowFar, LongRunWatch, format_duration, show_progress

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
    assert re.search(r"simulating matmul .* 50% 60/132 CTAs, 345 us simulated, 0 s left", text)


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


@pytest.mark.parametrize(("fraction", "left", "events"), [(0.0, None, None), (0.25, 30.0, 4000), (1.0, 0.0, 1000)])
def test_the_rest_goes_on_as_so_far(fraction, left, events):
    so_far = HowFar(0, 4, fraction, 0.0, events=1000)
    assert so_far.remaining_s(10.0) == left
    assert so_far.total_events() == events


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (40, "40 s"), (99, "99 s"), (420, "7 min"), (12600, "3.5 h"), (4e7, "11,111.1 h")],
)
def test_durations_in_words(seconds, text):
    assert format_duration(seconds) == text


def long_run_warnings(times, fraction_per_s, **options):
    """Returns what is said of a run that does so much of its work in each second and is looked at at these times."""
    now = [0.0]

    def measure():
        return HowFar(int(now[0]), 1_000_000, fraction_per_s * now[0], 0.0, events=int(1e6 * now[0]))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        options = {"max_events": 10**9, "numerics": True} | options
        watch = LongRunWatch("k.py:3 (body) kernel body", measure, **options, clock=lambda: now[0])
        for now[0] in times:
            watch()
    assert all(each.category is LongRunWarning for each in caught)
    return [str(each.message) for each in caught]


def test_a_run_of_minutes_is_warned_of_once():
    (text,) = long_run_warnings([1, 4, 5, 6, 50, 500], 0.0005)
    assert text.startswith(
        "k.py:3 (body) kernel body: this simulation will take about 33 min more: 0.25% of the work is"
    )
    assert "done after 5 s, 5 of 1,000,000 CTAs and 5,000,000 of about 2,000,000,000 events." in text
    assert "It would end with an error at max_events=1,000,000,000." in text
    assert "Shorter: a smaller problem, or a part of the grid" in text
    assert "InterpretGPUParams(numerics=False), which simulates time alone; Ctrl-C" in text


def test_only_what_helps_is_proposed():
    (text,) = long_run_warnings([5], 0.0005, max_events=10**10, numerics=False)
    assert "numerics" not in text
    assert "error at max_events" not in text


@pytest.mark.parametrize(
    ("times", "fraction_per_s", "count"),
    [([1, 4.9], 0.001, 0), ([5, 10, 20], 0.01, 0), ([5, 10], 0.0, 0), ([5], 1 / 126, 1), ([5], 1 / 124, 0)],
)
def test_a_run_that_is_over_soon_or_has_just_begun_is_not_warned_of(times, fraction_per_s, count):
    """One that takes 126 s has 121 s left after 5 s."""
    assert len(long_run_warnings(times, fraction_per_s)) == count


@pytest.mark.parametrize("jitted", [False, True])
def test_each_launch_warns_once(monkeypatch, jitted):
    """With thresholds of nothing, the first look finds a long run."""
    monkeypatch.setattr(progress, "FIRST_ESTIMATE_S", 0.0)
    monkeypatch.setattr(progress, "LONG_S", 0.0)

    def body(x, out):
        def turn(_, total):
            return total + x[0]

        out[lax.axis_index("i")] = lax.fori_loop(0, x[1], turn, jnp.int32(0))

    kernel = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((600,), jnp.int32), grid=(600,), grid_names=("i",))
    x = jnp.array([2, 40], jnp.int32)
    run = jax.jit(kernel) if jitted else kernel
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            np.testing.assert_array_equal(run(x), 80)
        (warning,) = [each for each in caught if each.category is LongRunWarning]
        numbers = re.search(
            r"test_progress\.py:\d+ .*kernel body: .* (\S+) of 600 CTAs and (\S+) of about (\S+) events",
            str(warning.message),
        )
        assert numbers is not None
        ctas, events, total = (int(number.replace(",", "")) for number in numbers.groups())
        assert 0 <= ctas < 600
        assert events > 1024
        assert total > events
