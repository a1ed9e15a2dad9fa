"""The event engine: literal timelines, total order, misuse."""

import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu.errors import SimulationError
from mgpu.sim.engine import _RING, Engine, ProcessGenerator

SEEDS = [None, 0, 1, 12345]


def test_processes_interleave_by_time():
    engine, log = Engine(), []

    def walker(name: str, step: int):
        for _ in range(3):
            yield step
            log.append((engine.now, name))

    engine.start(walker("slow", 5), "slow")
    engine.start(walker("fast", 2), "fast", at=1)
    engine.run()
    assert log == [(3, "fast"), (5, "slow"), (5, "fast"), (7, "fast"), (10, "slow"), (15, "slow")]
    assert engine.now == 15
    assert engine.unfinished() == []


def test_the_clock_moves_before_a_callback_runs():
    engine, log = Engine(), []
    engine.call_at(7, lambda: log.append(engine.now))
    engine.call_at(3, log.append, "three")
    engine.run()
    assert log == ["three", 7]


def test_a_parked_process_continues_when_woken():
    engine, log = Engine(), []

    def sleeper():
        log.append(("parks", engine.now))
        yield None
        log.append(("goes on", engine.now))

    process = engine.start(sleeper(), "sleeper")
    process.on_exit = lambda: log.append(("exits", engine.now))
    engine.call_at(10, lambda: engine.wake(process, 17))
    engine.run()
    assert log == [("parks", 0), ("goes on", 17), ("exits", 17)]
    assert process.done
    assert process.waiting_on is None


def test_equal_times_keep_the_order_of_scheduling_without_a_seed():
    engine, log = Engine(), []
    for number in range(50):
        engine.call_at(4, log.append, number)
    engine.run()
    assert log == list(range(50))


def test_a_seed_shuffles_equal_times_reproducibly():
    def order(seed: int | None) -> list[int]:
        engine, log = Engine(seed=seed), []
        for number in range(50):
            engine.call_at(4, log.append, number)
        engine.run()
        return log

    assert order(1) == order(1)
    assert sorted(order(1)) == list(range(50))
    assert len({tuple(order(seed)) for seed in SEEDS}) == len(SEEDS)


@given(st.lists(st.lists(st.integers(0, 5), max_size=6), min_size=1, max_size=6), st.sampled_from(SEEDS))
def test_every_process_sees_its_own_delays_and_time_never_goes_back(delays: list[list[int]], seed: int | None):
    engine, seen, global_order = Engine(seed=seed), {}, []

    def walker(name: int, steps: list[int]):
        for step in steps:
            seen.setdefault(name, []).append(engine.now)
            global_order.append(engine.now)
            yield step
        seen.setdefault(name, []).append(engine.now)
        global_order.append(engine.now)

    for name, steps in enumerate(delays):
        engine.start(walker(name, steps), str(name))
    engine.run()
    for name, steps in enumerate(delays):
        assert seen[name] == [sum(steps[:count]) for count in range(len(steps) + 1)]
    assert global_order == sorted(global_order)
    assert engine.events == sum(len(steps) + 1 for steps in delays)


DELAYS = st.one_of(st.integers(0, 5), st.integers(0, 5).map(lambda rest: _RING - 2 + rest), st.integers(0, 5 * _RING))


@given(st.lists(st.lists(DELAYS, max_size=6), min_size=2, max_size=5))
def test_near_and_far_events_keep_the_total_order(delays: list[list[int]]):
    """The reference sorts (time, sequence number) literally, one event at a time."""
    engine, log = Engine(), []

    def walker(name: int, steps: list[int]):
        for step in steps:
            log.append((engine.now, name))
            yield step
        log.append((engine.now, name))

    for name, steps in enumerate(delays):
        engine.start(walker(name, steps), str(name))
    engine.run()

    queue = [(0, name, name, 0) for name in range(len(delays))]
    sequence, expected = len(delays), []
    while queue:
        queue.sort()
        time, _, name, index = queue.pop(0)
        expected.append((time, name))
        if index < len(delays[name]):
            queue.append((time + delays[name][index], sequence, name, index + 1))
            sequence += 1
    assert log == expected


def test_two_sleeps_in_one_keep_the_order_among_equal_times():
    """A callback for the same time runs first if it was scheduled before the second sleep would have begun."""

    def order(sleeps: list[int | tuple[int, int]], scheduled_at: int) -> list[str]:
        engine, log = Engine(), []

        def sleeper() -> ProcessGenerator:
            yield from sleeps
            log.append("sleeper")

        engine.start(sleeper(), "sleeper")
        engine.call_at(scheduled_at, engine.call_at, 10, log.append, "callback")
        engine.run()
        assert engine.now == 10
        return log

    for scheduled_at in (3, 5, 9):
        assert order([(10, 6)], scheduled_at) == order([6, 4], scheduled_at)
    assert order([(10, 6)], 5) == ["callback", "sleeper"]
    assert order([10], 5) == ["sleeper", "callback"]


def test_unfinished_processes_are_a_deadlock_report():
    engine = Engine()

    def stuck(reason: str):
        processes[reason].waiting_on = reason
        yield None

    def fine():
        yield 3

    processes = {}
    for name in ("full[0]", "empty[1]"):
        processes[name] = engine.start(stuck(name), f"waits for {name}")
    engine.start(fine(), "fine")
    engine.run()
    assert [(process.name, process.waiting_on) for process in engine.unfinished()] == [
        ("waits for full[0]", "full[0]"),
        ("waits for empty[1]", "empty[1]"),
    ]


def test_an_exception_of_a_process_propagates_as_it_is():
    engine = Engine()

    def broken():
        yield 1
        raise KeyError("mine")

    engine.start(broken(), "broken")
    with pytest.raises(KeyError, match="mine"):
        engine.run()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_runaway_is_stopped(seed: int | None):
    engine = Engine(seed=seed, max_events=100)

    def forever():
        while True:
            yield 1

    engine.start(forever(), "loop of WG0")
    with pytest.raises(SimulationError, match=r"runaway simulation: 100 events.*loop of WG0"):
        engine.run()


@pytest.mark.parametrize("seed", [None, 1])
def test_a_check_can_end_a_run_and_changes_nothing_otherwise(seed: int | None):
    def make(check: Callable[[], object] | None, order: list[tuple[int, int]]) -> Engine:
        engine = Engine(seed=seed, check=check)

        def sleeper(number: int):
            for _ in range(3000):
                yield number % 2 + 1
                order.append((number, engine.now))

        for number in range(3):
            engine.start(sleeper(number), f"{number}")
        return engine

    orders: list[list[tuple[int, int]]] = [[], [], []]
    calls = itertools.count(1)
    make(None, orders[0]).run()
    make(lambda: next(calls), orders[1]).run()
    assert next(calls) > 5
    assert orders[1] == orders[0]

    def stop():
        raise KeyboardInterrupt

    engine = make(stop, orders[2])
    with pytest.raises(KeyboardInterrupt):
        engine.run()
    assert 0 < engine.events < 9000
    assert orders[2] == orders[0][: len(orders[2])]


@pytest.mark.parametrize("value", [-1, 1.0, True, "3"])
def test_a_wrong_yield_names_the_process(value: object):
    engine = Engine()

    def wrong():
        yield value

    engine.start(wrong(), "WG1")  # pyright: ignore[reportArgumentType]
    with pytest.raises(RuntimeError, match=r"WG1.*yielded"):
        engine.run()


def test_the_past_is_refused():
    engine = Engine()

    def parks():
        yield None

    process = engine.start(parks(), "WG2", at=10)
    engine.run()
    for action in (
        lambda: engine.call_at(9, print),
        lambda: engine.start(parks(), "late", at=9),
        lambda: engine.wake(process, 9),
    ):
        with pytest.raises(RuntimeError, match="already 10"):
            action()


def test_only_a_parked_process_can_be_woken():
    engine = Engine()

    def parks():
        yield None

    process = engine.start(parks(), "WG3")
    with pytest.raises(RuntimeError, match=r"WG3.*only a parked process"):
        engine.wake(process, 0)
    engine.run()
    engine.wake(process, 1)
    with pytest.raises(RuntimeError, match=r"WG3.*only a parked process"):
        engine.wake(process, 1)
    engine.run()
    with pytest.raises(RuntimeError, match=r"WG3.*finished.*only a parked process"):
        engine.wake(process, 2)
