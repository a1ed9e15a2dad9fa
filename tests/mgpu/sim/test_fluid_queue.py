"""The bandwidth server: exact, in order, never above its rate."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from mgpu.sim.fluid_queue import FluidQueue, exact_ticks

REQUESTS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 100)), min_size=1, max_size=40)


def test_a_timeline_by_hand():
    queue = FluidQueue(10)
    assert queue.serve(0, 25) == 3  # 2.5 cycles
    assert queue.serve(0, 5) == 3  # exactly 3.0
    assert queue.serve(1, 1) == 4  # 3.1
    assert queue.serve(100, 10) == 101
    assert queue.free_at == 101
    assert queue.busy_cycles == 5  # 4.1
    assert queue.done_after(1) == 102


@given(st.integers(1, 50), REQUESTS)
def test_it_agrees_with_exact_fractions(rate: int, requests: list[tuple[int, int]]):
    queue, now, free = FluidQueue(rate), 0, Fraction(0)
    for gap, ticks in requests:
        now += gap
        free = max(free, Fraction(now)) + Fraction(ticks, rate)
        assert queue.serve(now, ticks) == -(-free.numerator // free.denominator)


@given(st.integers(1, 50), REQUESTS)
def test_no_window_is_served_above_the_rate(rate: int, requests: list[tuple[int, int]]):
    queue, now, served = FluidQueue(rate), 0, []
    for gap, ticks in requests:
        now += gap
        served.append((now, queue.serve(now, ticks), ticks))
    for first in range(len(served)):
        work = 0
        for begin, end, ticks in served[first:]:
            work += ticks
            assert end >= begin
            assert work <= rate * (end - served[first][0])


def test_no_drift_over_a_million_small_requests():
    queue = FluidQueue(3)
    for _ in range(1_000_000):
        queue.serve(0, 1)
    assert queue.free_at == 333_334


@given(st.lists(st.fractions(min_value=0, max_value=10), min_size=1, max_size=4))
def test_exact_ticks_represent_every_cost(costs: list[Fraction]):
    ticks_per_cycle, ticks = exact_ticks(costs)
    assert [Fraction(count, ticks_per_cycle) for count in ticks] == costs
