"""The activity log becomes sorted tables, whatever the order of logging."""

from hypothesis import given
from hypothesis import strategies as st

from mgpu.capture import ARRIVAL_DTYPE, UNIT_SPAN_DTYPE
from mgpu.sim.activity import Activity


def test_rows_come_back_in_their_columns():
    activity = Activity()
    activity.unit_span(2, 131, 70_000, 1, -1, 3, 10, 1 << 40, 4096, 1 << 45)
    activity.arrival(4, 2, 9, 5, 7, 1234, -1, 6, -1, True)
    unit_spans, arrivals = activity.to_arrays()
    assert unit_spans.dtype == UNIT_SPAN_DTYPE
    assert arrivals.dtype == ARRIVAL_DTYPE
    assert unit_spans.tolist() == [(2, 131, 70_000, 1, -1, 3, 10, 1 << 40, 4096, 1 << 45)]
    assert arrivals.tolist() == [(4, 2, 9, 5, 7, 1234, -1, 6, -1, True)]


def test_an_empty_log_gives_empty_tables():
    unit_spans, arrivals = Activity().to_arrays()
    assert unit_spans.shape == arrivals.shape == (0,)


ROWS = st.lists(st.tuples(*[st.integers(0, 3)] * 8), max_size=30)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_logging_does_not_matter(rows: list[tuple[int, ...]], random):
    tables = []
    for _ in range(2):
        activity = Activity()
        for row in rows:
            activity.unit_span(*row, nbytes=1, flops=2)
            activity.arrival(*row, site=-1, completes=bool(row[0] & 1))
        tables.append(activity.to_arrays())
        rows = random.sample(rows, len(rows))
    for first, second in zip(*tables, strict=True):
        assert first.tobytes() == second.tobytes()
    unit_spans, arrivals = tables[0]
    assert unit_spans["unit"].tolist() == sorted(unit_spans["unit"].tolist())
    assert arrivals["time"].tolist() == sorted(arrivals["time"].tolist())
