"""The bandwidth server: exact, in order, never above its rate."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from mgpu.sim.fluid_queue import FluidQueue, ReadFirstQueue, exact_ticks

REQUESTS = st.lists(st.tuples(st.integers(0, 20), st.integers(1, 100)), min_size=1, max_size=40)


def test_a_timeline_by_hand():
    queue = FluidQueue(10)
    assert queue.serve(0, 25) == 3  # 2.5 cycles
    assert queue.serve(0, 5) == 3  # exactly 3.0
    assert queue.serve(1, 1) == 4  # 3.1
    assert queue.serve(100, 10) == 101
    assert queue.free_at == 101
    assert queue.busy_cycles == 5  # 4.1


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


def test_deferred_work_fills_the_gaps():
    queue = ReadFirstQueue(10, 1000)
    queue.defer(0, 35)
    assert queue.serve(0, 20) == 2, "a request does not wait for it"
    assert queue.take_done(4) == 20, "two cycles of gap"
    assert queue.serve(4, 10) == 5
    assert queue.take_done(100) == 15
    assert queue.serve(100, 10) == 101
    assert queue.busy_cycles == 8  # 7.5


def test_requests_wait_when_too_much_is_deferred():
    queue = ReadFirstQueue(10, 30)
    queue.defer(7, 50)
    assert queue.serve(7, 10) == 10  # 2 cycles of what is too much, then 1
    assert queue.take_done(7) == 20
    queue.do_all_deferred()
    assert queue.take_done(13) == 30
    assert queue.free_at == 13


@given(st.integers(1, 50), REQUESTS, st.integers(0, 300))
def test_deferred_work_is_done_once_and_never_above_the_rate(rate: int, requests, limit: int):
    queue, now, done, deferred = ReadFirstQueue(rate, limit), 0, 0, 0
    for number, (gap, ticks) in enumerate(requests):
        now += gap
        if number % 2:
            queue.serve(now, ticks)
        else:
            queue.defer(now, ticks)
            deferred += ticks
        done += queue.take_done(now)
    served = sum(ticks for _, ticks in requests) - deferred
    assert done <= deferred
    assert deferred - done <= limit + max(ticks for _, ticks in requests)  # the last may exceed the limit
    queue.do_all_deferred()
    assert done + queue.take_done(queue.free_at) == deferred
    assert queue.free_at * rate >= served + deferred


def test_no_drift_over_a_million_small_requests():
    queue = FluidQueue(3)
    for _ in range(1_000_000):
        queue.serve(0, 1)
    assert queue.free_at == 333_334


@given(st.lists(st.fractions(min_value=0, max_value=10), min_size=1, max_size=4))
def test_exact_ticks_represent_every_cost(costs: list[Fraction]):
    ticks_per_cycle, ticks = exact_ticks(costs)
    assert [Fraction(count, ticks_per_cycle) for count in ticks] == costs
