"""Barriers: phases, parity, transaction bytes, wake-up times, misuse."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu.devices import load_device
from mgpu.errors import BarrierError
from mgpu.sim.engine import Engine
from mgpu.sim.mbarrier import MAX_COUNT, CtaBarrier, Mbarrier

DEVICE = load_device("h100")
HOP = DEVICE.mbarrier_hop_cycles


def test_a_waiter_goes_on_one_hop_after_the_last_arrival():
    engine, log = Engine(), []
    barrier = Mbarrier(engine, DEVICE, 2, "full[0]")

    def consumer():
        if not barrier.wait(waiter, 0):
            yield None
        log.append(engine.now)
        assert barrier.wait(waiter, 0), "the phase stays complete until the next one is"

    waiter = engine.start(consumer(), "consumer")
    engine.call_at(10, barrier.arrive, "WG1")
    engine.call_at(100, barrier.arrive, "WG2")
    engine.run()
    assert log == [100 + HOP]
    assert (barrier.phase, barrier.pending) == (1, 2)


@pytest.mark.parametrize("arrives_at", [10, 99, 101, 150])
def test_a_wait_announced_ahead_is_as_long_as_one_at_its_time(arrives_at: int):
    """Who asks at cycle 0 for a wait at cycle 100 goes on when who asks at cycle 100 does."""

    def goes_on(asks_at: int) -> int:
        engine, log = Engine(), []
        barrier = Mbarrier(engine, DEVICE, 1, "full[0]")

        def consumer():
            yield asks_at
            if barrier.wait(waiter, 0, 100 - asks_at):
                yield 100 - asks_at
            else:
                yield None
            log.append(engine.now)

        engine.call_at(arrives_at, barrier.arrive, "WG1")
        waiter = engine.start(consumer(), "consumer")
        engine.run()
        return log[0]

    expected = 100 if arrives_at < 100 else arrives_at + HOP
    assert goes_on(0) == goes_on(100) == goes_on(50) == expected


def test_a_phase_needs_its_bytes_and_its_arrivals():
    barrier = Mbarrier(Engine(), DEVICE, 1, "full[0]")
    barrier.expect_tx(1024)
    barrier.arrive("producer")
    assert (barrier.phase, barrier.pending, barrier.tx_bytes) == (0, 0, 1024)
    barrier.complete_tx(1000, "tma")
    assert barrier.phase == 0
    barrier.complete_tx(24, "tma")
    assert (barrier.phase, barrier.pending, barrier.tx_bytes) == (1, 1, 0)


def test_bytes_may_land_before_they_are_announced():
    barrier = Mbarrier(Engine(), DEVICE, 1, "full[0]")
    barrier.complete_tx(512, "tma")
    barrier.expect_tx(512)
    assert barrier.phase == 0
    barrier.arrive("producer")
    assert barrier.phase == 1


def test_parity_is_that_of_the_hardware():
    engine = Engine()
    barrier = Mbarrier(engine, DEVICE, 1, "b")
    process = engine.start((None for _ in ()), "p")
    answers = []
    for _ in range(4):
        answers.append((barrier.wait(process, 0), barrier.wait(process, 1)))
        barrier._waiters.clear()
        barrier.arrive("a")
    assert answers == [(False, True), (True, False)] * 2


@given(st.integers(1, 5), st.lists(st.integers(1, 5), max_size=40))
def test_phases_are_the_whole_part_of_arrivals_over_count(count: int, arrivals: list[int]):
    log = []
    barrier = Mbarrier(Engine(), DEVICE, count, "b", lambda *arrival: log.append(arrival[1:]))
    total = 0
    for number in arrivals:
        number = min(number, barrier.pending)
        barrier.arrive("a", number)
        total += number
        assert (barrier.phase, barrier.pending) == (total // count, count - total % count)
    assert [phase for _, phase, _ in log] == sorted(phase for _, phase, _ in log)
    assert sum(completes for _, _, completes in log) == barrier.phase


def test_every_arrival_is_logged_with_the_phase_before_it():
    log = []
    barrier = Mbarrier(Engine(), DEVICE, 2, "b", lambda *arrival: log.append(arrival))
    barrier.arrive("WG0")
    barrier.expect_tx(8)
    barrier.arrive("WG1")
    barrier.complete_tx(8, "tma")
    barrier.arrive("WG0")
    assert log == [
        (barrier, "WG0", 0, False),
        (barrier, "WG1", 0, False),
        (barrier, "tma", 0, True),
        (barrier, "WG0", 1, False),
    ]


def test_too_many_arrivals_are_an_error():
    barrier = Mbarrier(Engine(), DEVICE, 1, "full[3]")
    barrier.expect_tx(16)
    barrier.arrive("WG0")
    with pytest.raises(BarrierError, match=r"full\[3\]: WG1 arrives at .*phase 0 has taken 1 of its 1"):
        barrier.arrive("WG1")
    with pytest.raises(BarrierError, match="taken 0 of its 2 arrivals"):
        Mbarrier(Engine(), DEVICE, 2, "b").arrive("WG1", count=3)


def test_counts_beyond_the_hardware_are_errors():
    with pytest.raises(BarrierError, match="num_arrivals is 0"):
        Mbarrier(Engine(), DEVICE, 0, "b")
    barrier = Mbarrier(Engine(), DEVICE, 1, "b")
    barrier.expect_tx(MAX_COUNT)
    with pytest.raises(BarrierError, match="Split the copy over two barriers"):
        barrier.expect_tx(1)


def test_a_deadlocked_waiter_says_what_is_missing():
    engine = Engine()
    barrier = Mbarrier(engine, DEVICE, 3, "full[2]")

    def consumer():
        if not barrier.wait(waiter, 0):
            yield None

    waiter = engine.start(consumer(), "WG1")
    engine.call_at(5, barrier.arrive, "WG0")
    engine.call_at(5, barrier.expect_tx, 64)
    engine.run()
    (stuck,) = engine.unfinished()
    assert str(stuck.waiting_on) == "full[2] phase 0 parity 0 (1 of 3 arrivals, 64 bytes outstanding)"


@pytest.mark.parametrize(("parties", "cycles"), [(1, 21), (2, 29)])
def test_a_cta_barrier_costs_what_was_measured(parties: int, cycles: int):
    """21.3 cycles with 128 threads, 29.3 with 256 (GH200 EXP-11)."""
    engine, log = Engine(), []
    barrier = CtaBarrier(engine, DEVICE, parties, "sync")
    processes = []

    def warpgroup(index: int):
        for _ in range(2):
            yield 100 * index
            if not barrier.arrive_and_wait(processes[index]):
                yield None
            log.append((index, engine.now))

    for index in range(parties):
        processes.append(engine.start(warpgroup(index), f"WG{index}"))
    engine.run()
    last = 100 * (parties - 1)
    rounds = [last + cycles, 2 * (last + cycles)]
    assert log == [(index, time) for time in rounds for index in range(parties)]


def test_a_cta_barrier_that_misses_a_party_says_so():
    engine = Engine()
    barrier = CtaBarrier(engine, DEVICE, 2, "sync")

    def warpgroup():
        barrier.arrive_and_wait(process)
        yield None

    process = engine.start(warpgroup(), "WG0")
    engine.run()
    assert str(engine.unfinished()[0].waiting_on) == "sync (1 of 2 warpgroups)"
