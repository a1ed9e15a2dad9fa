"""Bytes in flight, against a literal list of requests."""

from hypothesis import given
from hypothesis import strategies as st

from mgpu.sim.in_flight import InFlight


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 400), st.integers(1, 9)), max_size=700))
def test_what_is_in_flight_is_what_has_not_arrived(requests: list[tuple[int, int, int]]):
    in_flight, now, pending = InFlight(), 0, []
    for gap, duration, nbytes in requests:
        now += gap
        pending = [(arrives, size) for arrives, size in pending if arrives > now]
        assert in_flight.settle(now) == sum(size for _, size in pending)
        in_flight.add(now + duration, nbytes)
        pending.append((now + duration, nbytes))
    assert in_flight.settle(now + 400) == 0


def test_arrived_requests_take_no_room():
    in_flight = InFlight()
    for now in range(10_000):
        in_flight.settle(now)
        in_flight.add(now + 10, 1)
    assert len(in_flight._arrivals) < 1000
