import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from profiler.activity import assign_lanes
from profiler.build import build_trace
from support.captures import ring_capture

interval = st.tuples(st.integers(0, 2), st.integers(0, 40), st.integers(0, 15))


@given(st.lists(interval, max_size=60))
def test_lanes_never_overlap_and_are_as_few_as_possible(intervals) -> None:
    intervals.sort(key=lambda row: row[:2])
    group, begin, dur = np.array(intervals, np.int64).reshape(-1, 3).T
    end = begin + dur
    lanes = assign_lanes(group, begin, end)
    busy: dict[tuple[int, int], int] = {}
    for g, b, e, lane in zip(group, begin, end, lanes):
        assert busy.get((g, lane), b) <= b
        busy[g, lane] = max(e, b + 1)
    for g in np.unique(group):
        mine = group == g
        most = max(((begin[mine] <= t) & (np.maximum(end, begin + 1)[mine] > t)).sum() for t in begin[mine])
        assert lanes[mine].max() + 1 == most


def test_loads_of_a_ring_take_a_lane_per_slot() -> None:
    spans = build_trace(ring_capture(num_ctas=1, stages=3, tma_cycles=5000)).async_spans
    loads = spans.filter(spans["unit"] == "tma_load")
    assert loads["lane"].to_list() == loads["slot"].to_list() == [0, 1, 2, 0, 1, 2]
    assert loads["name"].unique().to_list() == ["copy_gmem_to_smem a"]
    tensor_core = spans.filter(spans["unit"] == "tensor_core")
    assert tensor_core["lane"].unique().to_list() == [0]
    assert tensor_core["begin"].head(2).to_list() == [5024, 5124]
