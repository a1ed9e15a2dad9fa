"""ProfileWindow: its text form, what it selects, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mgpu
from mgpu import environment
from mgpu.errors import ParamsError
from mgpu.profile_window import EVERYTHING, ProfileWindow, contiguous_runs, make_window, parse_window

numbers = st.none() | st.sets(st.integers(0, 40), min_size=1).map(sorted)
ranges = st.tuples(st.integers(0, 50), st.integers(1, 50)).map(lambda pair: range(pair[0], sum(pair)))
levels = st.none() | st.lists(st.none() | ranges | st.integers(0, 9).map(lambda n: slice(n, None)), max_size=3)


@given(numbers, numbers, levels)
def test_a_window_survives_the_environment(ctas: Any, warpgroups: Any, iterations: Any) -> None:
    window = ProfileWindow(ctas, warpgroups, iterations)
    assert parse_window(window.to_text()) == window
    assert hash(window) == hash(parse_window(window.to_text()))


@given(st.sets(st.integers(0, 60)).map(sorted))
def test_runs_cover_the_numbers(chosen: list[int]) -> None:
    runs = contiguous_runs(chosen)
    assert [number for first, end in runs for number in range(first, end)] == chosen
    assert all(b[0] > a[1] for a, b in itertools.pairwise(runs))


def test_the_environment_has_the_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    own = ProfileWindow(ctas=[1])
    assert environment.profile_window(own) is own
    monkeypatch.setenv(environment.PROFILE_WINDOW, "ctas=0-2,7 iterations=2:3,10:")
    assert environment.profile_window(own) == ProfileWindow([0, 1, 2, 7], None, (range(2, 3), slice(10, None)))


def test_what_is_selected() -> None:
    window = ProfileWindow(ctas=[3, 1], warpgroups=range(1, 3))
    assert [(cta, wg) for cta in range(4) for wg in range(3) if window.records(cta, wg)] == [
        (1, 1), (1, 2), (3, 1), (3, 2),
    ]  # fmt: skip
    assert (window.recorded_ctas(4), EVERYTHING.recorded_ctas(2)) == ((1, 3), (0, 1))
    assert EVERYTHING.notes(4, 3) == ProfileWindow(ctas=range(4)).notes(4, 3) == ()


def test_texts_of_the_command_line() -> None:
    assert make_window() is None
    assert make_window("0-1", "2", ":4") == ProfileWindow([0, 1], [2], range(4))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"ctas": []}, "ctas must name at least one"),
        ({"warpgroups": [-1]}, r"warpgroups must name at least one, from 0 on, got \[-1\]"),
        ({"iterations": range(3, 3)}, "iterations must count up by one from at least 0 and hold at least one"),
        ({"iterations": range(0, 8, 2)}, "must count up by one"),
        ({"iterations": "10:20"}, "iterations must be a range such as"),
        ({"iterations": 7}, "iterations must be a range such as"),
    ],
)
def test_windows_that_hold_nothing_are_errors(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        ProfileWindow(**fields)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cta=3", "'cta=3' is no part of a recorded window"),
        ("ctas=1 ctas=2", "'ctas=2' is no part"),
        ("ctas=3-1", "'3-1' names no ctas: expected numbers and ranges such as 0-3,8"),
        ("warpgroups=", "'' names no warpgroups"),
        ("iterations=10-20", "'10-20' names no iterations: expected FIRST:END such as 10:20"),
    ],
)
def test_other_texts_are_errors(text: str, message: str) -> None:
    with pytest.raises(ParamsError, match=message):
        parse_window(text)


def test_compiler_params_take_nothing_else() -> None:
    with pytest.raises(ParamsError, match=r"profile_window must be an mgpu.ProfileWindow, got 'ctas=0'"):
        mgpu.CompilerParams(profile_window="ctas=0")  # pyright: ignore[reportArgumentType]
