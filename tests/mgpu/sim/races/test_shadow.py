"""Shadow memory against a model that keeps one history for every byte."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu.sim.races.report import Access, Place
from mgpu.sim.races.shadow import Shadow, region_text

SHAPE = (4, 6, 8)


def place(view: Any) -> Place:
    return Place("write", "line", "x", 0, view=view)


def flat(array: Any) -> Any:
    return array.reshape(-1)[5:50]


def strided(array: Any) -> Any:
    return array[::2, 1:5, ::3]


def reversed_rows(array: Any) -> Any:
    return array[2, ::-1]


def as_bytes(array: Any) -> Any:
    return array.view(np.uint8)[1:3, :, 3:9]


def transposed(array: Any) -> Any:
    return array[1:3].transpose(2, 0, 1)[3:]


ODD_VIEWS = (flat, strided, reversed_rows, as_bytes, transposed)


def box(starts: tuple[int, ...], sides: tuple[int, ...]) -> Any:
    slices = tuple(slice(start, start + side) for start, side in zip(starts, sides, strict=True))
    return lambda array: array[slices]


def boxes() -> Any:
    spans = [
        st.integers(0, side - 1).flatmap(
            lambda start, side=side: st.tuples(st.just(start), st.integers(1, side - start))
        )
        for side in SHAPE
    ]
    return st.tuples(*spans).map(lambda parts: box(tuple(s for s, _ in parts), tuple(n for _, n in parts)))


@given(accesses=st.lists(st.tuples(st.sampled_from("rw"), st.one_of(boxes(), st.sampled_from(ODD_VIEWS))), max_size=25))
@settings(max_examples=150, deadline=None)
def test_shadow_remembers_for_every_byte_its_last_write_and_the_reads_since(accesses: Any) -> None:
    array = np.zeros(SHAPE, np.float32)
    model = np.zeros(array.nbytes, np.int64)  # for every byte, the number of its history
    histories: dict[int, tuple[int, frozenset[int]]] = {0: (0, frozenset())}
    shadow = Shadow(array)
    for time, (kind, view) in enumerate(accesses, start=1):
        here, access = place(view), Access(2 * time, time, place(view), 0, 0)
        numbered = np.arange(array.nbytes, dtype=np.int64)
        touched = np.zeros(SHAPE, np.float32)
        view(touched).view()[...] = np.frombuffer(b"\xff" * view(touched).itemsize, view(touched).dtype)[0]
        bytes_touched = numbered[touched.reshape(-1).view(np.uint8) != 0]
        expected = {histories[number] for number in set(model[bytes_touched].tolist())}
        found = shadow.own(here, array, ()) if kind == "r" else shadow.replace(here, array, (), access)
        got = {(s.write.time if s.write else 0, frozenset(r.time for r in s.reads.values())) for s in found}
        assert got == expected
        for state in found if kind == "r" else ():
            state.reads = {**state.reads, access.agent: access}
        for number in set(model[bytes_touched].tolist()):
            write, reads = histories[number]
            new = len(histories)
            histories[new] = (write, reads | {time}) if kind == "r" else (time, frozenset())
            model[bytes_touched[model[bytes_touched] == number]] = new


def test_tiles_are_one_unit_each() -> None:
    array = np.zeros((4096, 4096), np.float32)
    shadow = Shadow(array)
    tile = place(lambda array, row, column: array[row : row + 64, column : column + 128])
    for row, column in itertools.product(range(0, 256, 64), range(0, 512, 128)):
        shadow.own(tile, array, (row, column))
    assert shadow.num_units == 64 * 32
    shadow.own(place(lambda array: array[0:32]), array, ())
    assert shadow.num_units == 128 * 32


@pytest.mark.parametrize(
    ("view", "text"),
    [
        (lambda x: x, "x[0:4, 0:6, 0:8]"),
        (lambda x: x[1, 2:4], "x[1, 2:4, 0:8]"),
        (lambda x: x[3, 5, 7, ...], "x[3, 5, 7]"),
        (lambda x: x[1:3].transpose(2, 0, 1), "x[1:3, 0:6, 0:8]"),
        (lambda x: x[:, ::2], "[4, 3, 8] of float32"),
        (lambda x: x.view(np.int16), "[4, 6, 16] of int16"),
    ],
)
def test_region_in_words(view: Any, text: str) -> None:
    assert region_text(view(np.zeros(SHAPE, np.float32)), "x") == text


def test_arrays_of_all_ctas_share_boxes_but_not_how_they_are_divided() -> None:
    half, other, some_bytes = (
        place(lambda x: x[:8]),
        place(lambda x: x[8:]),
        place(lambda x: x.view(np.uint8)[28:36]),
    )
    boxes: Any = {}
    arrays = [np.zeros(16, np.float32) for _ in range(2)]
    shadows = [Shadow(array, boxes) for array in arrays]
    write = Access(2, 1, some_bytes, 0, 0)
    for shadow, array in zip(shadows, arrays, strict=True):
        shadow.own(half, array, ())
    shadows[1].replace(some_bytes, arrays[1], (), write)
    for shadow, array, expected in zip(shadows, arrays, [(0, 0), (1, 1)], strict=True):
        found = [sum(state.write is write for state in shadow.own(part, array, ())) for part in (half, other)]
        assert tuple(found) == expected


def test_a_shadow_forgets_where_boxes_are_but_not_what_happened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a grid of millions of CTAs, most boxes are accessed once: remembering all would fill the memory."""
    monkeypatch.setattr("mgpu.sim.races.shadow._MOST_REMEMBERED", 3)
    boxes: Any = {}
    part, array = place(lambda x, i: x[i : i + 1]), np.zeros(16, np.float32)
    memory = Shadow(array, boxes)
    writes = [Access(2, 1 + i, part, 0, 0) for i in range(16)]
    for i, write in enumerate(writes):
        memory.replace(part, array, (i,), write)
    assert len(boxes) == 3
    assert [state.write for i in range(16) for state in memory.own(part, array, (i,))] == writes
