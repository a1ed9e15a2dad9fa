from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboard.state import ViewState

STATES = st.builds(
    ViewState,
    launch=st.text(max_size=20),
    units=st.sampled_from(["cycles", "ns"]),
    sm=st.integers(-1, 200),
    t0=st.integers(-1, 1 << 50),
    t1=st.integers(-1, 1 << 50),
    sel=st.sampled_from(["", "span:3", "bubble:4:77"]),
    color=st.sampled_from(["kind", "slot", "phase", "line"]),
    query=st.text(max_size=20),
)


@given(STATES)
def test_a_url_restores_the_state(state: ViewState) -> None:
    assert ViewState.parse(state.query_string()) == state


@given(st.text(max_size=300))
def test_any_url_can_be_read(search: str) -> None:
    state = ViewState.parse(search)
    assert state.units in ("cycles", "ns")
    assert -1 <= state.t0 <= 1 << 60


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        ("?t0=1e3&sm=7", ViewState(t0=1000, sm=7)),
        ("?t0=-5&t1=nan&sm=inf&cta=1e300", ViewState()),
        ("?units=furlongs&color=<script>", ViewState()),
        ("?sm=1&sm=2", ViewState(sm=2)),
    ],
)
def test_what_makes_no_sense_is_left_out(search: str, expected: ViewState) -> None:
    assert ViewState.parse(search) == expected


def test_a_link_changes_some_fields_and_drops_defaults() -> None:
    state = ViewState(launch="matmul-0001", sm=3)
    assert state.query_string(sm=-1, t0=10) == "?launch=matmul-0001&t0=10"
    assert ViewState().query_string() == ""
