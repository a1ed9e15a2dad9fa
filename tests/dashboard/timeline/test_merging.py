from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dashboard.timeline.merging import Boxes, merge_narrow


def lane(*spans: tuple[int, int]) -> Boxes:
    """Makes a lane of boxes (begin, length); the id is the place."""
    begin = np.array([begin for begin, _ in spans], np.int64)
    length = np.array([length for _, length in spans], np.int64)
    number = np.arange(len(spans))
    return Boxes.single(begin=begin, end=begin + length, id=number, style=number % 3, slot=number * 0, phase=number * 0)


def test_neighbours_in_one_pixel_become_one_box_that_looks_like_the_longest() -> None:
    # Pixels of 10 cycles: the first three begin in pixel 0, the next fills pixels 1 to 4, the last is alone in 5.
    merged = merge_narrow(lane((0, 1), (2, 5), (8, 1), (10, 40), (52, 2)), 0, 10)
    assert merged.begin.tolist() == [0, 10, 52]
    assert merged.end.tolist() == [9, 50, 54]
    assert merged.id.tolist() == [1, 3, 4]
    assert merged.count.tolist() == [3, 1, 1]


def test_window_holds_every_box_that_reaches_into_it() -> None:
    boxes = lane((0, 10), (10, 10), (30, 10), (50, 10))
    assert boxes.window(20, 50).id.tolist() == [1, 2, 3]
    assert boxes.window(21, 49).id.tolist() == [2]
    assert boxes.window(41, 45).id.tolist() == []


@st.composite
def lanes(draw: st.DrawFn) -> Boxes:
    steps = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 50)), max_size=60))
    spans, time = [], 0
    for gap, length in steps:
        time += gap
        spans.append((time, length))
        time += length
    return lane(*spans)


@given(lanes(), st.floats(0.5, 200))
def test_merging_keeps_order_extent_and_count(boxes: Boxes, pixel: float) -> None:
    merged = merge_narrow(boxes, 0, pixel)
    assert int(merged.count.sum()) == len(boxes)
    if len(boxes):
        assert merged.begin[0] == boxes.begin[0]
        assert merged.end[-1] == boxes.end[-1]
    assert (np.diff(merged.begin) >= 0).all()
    assert (merged.end[:-1] <= merged.begin[1:]).all()
    wide = boxes.end - boxes.begin >= pixel
    kept = np.isin(boxes.id[wide], merged.id[merged.count == 1])
    assert kept.all()
    # A screen of n pixels never gets more than one merged box a pixel.
    narrow = merged.end - merged.begin < pixel
    starts = np.floor(merged.begin[narrow & (merged.count > 1)] / pixel)
    assert len(np.unique(starts)) == len(starts) or wide.any()


@given(lanes(), st.integers(0, 500), st.integers(1, 500))
def test_window_agrees_with_looking_at_every_box(boxes: Boxes, t0: int, length: int) -> None:
    t1 = t0 + length
    expected = [i for i in range(len(boxes)) if boxes.end[i] >= t0 and boxes.begin[i] <= t1]
    assert boxes.window(t0, t1).id.tolist() == expected
