"""The activity log becomes sorted tables, whatever the order of logging."""

from hypothesis import given
from hypothesis import strategies as st

from mgpu.capture import ARRIVAL_DTYPE, UNIT_SPAN_DTYPE
from mgpu.sim.activity import Activity
from mgpu.sim.engine import Engine


def log_arrival(
    activity: Activity, barrier: int, slot: int, phase: int, cta: int, sm: int, time: int, source: tuple[int, ...]
) -> None:
    engine = Engine()
    engine.now = time
    activity.arrival_log(engine, barrier, slot, cta, sm)(None, source, phase, bool(phase & 1))


def test_rows_come_back_in_their_columns():
    activity = Activity()
    activity.unit_log(131, 70_000, 1)(2, -1, 3, 10, 1 << 40, 4096, 1 << 45)
    log_arrival(activity, 4, 2, 9, 5, 7, 1234, (-1, -1, 6))
    log_arrival(activity, 4, 2, 10, 5, 7, 1235, (1, 8))
    unit_spans, arrivals = activity.to_arrays()
    assert unit_spans.dtype == UNIT_SPAN_DTYPE
    assert arrivals.dtype == ARRIVAL_DTYPE
    assert unit_spans.tolist() == [(2, 131, 70_000, 1, -1, 3, 10, 1 << 40, 4096, 1 << 45)]
    # Who arrives from within the CTA does not name it.
    assert arrivals.tolist() == [(4, 2, 9, 5, 7, 1234, -1, 6, -1, True), (4, 2, 10, 5, 7, 1235, 1, 5, 8, False)]


def test_one_log_tells_kinds_apart():
    activity = Activity()
    log = activity.unit_log(0, 0, 0)
    rows = [(0, 1, slot, begin, begin + 5, nbytes, 0) for begin, (slot, nbytes) in enumerate([(0, 8), (1, 8), (1, 16)])]
    for row in rows * 2:
        log(*row)
    (spans, _) = activity.to_arrays()
    expected = sorted(rows * 2, key=lambda row: row[3])
    assert spans[["unit", "site", "slot", "begin", "end", "bytes", "flops"]].tolist() == expected


def test_an_empty_log_gives_empty_tables():
    unit_spans, arrivals = Activity().to_arrays()
    assert unit_spans.shape == arrivals.shape == (0,)


ROWS = st.lists(st.tuples(*[st.integers(0, 3)] * 8), max_size=30)


@given(ROWS, st.randoms(use_true_random=False))
def test_the_order_of_logging_does_not_matter(rows: list[tuple[int, ...]], random):
    tables = []
    for _ in range(2):
        activity = Activity()
        logs = {}
        for unit, sm, cta, warpgroup, site, slot, begin, end in rows:
            log = logs.setdefault((sm, cta, warpgroup), activity.unit_log(sm, cta, warpgroup))
            log(unit, site, slot, begin, end, 1, 2)
            log_arrival(activity, unit, sm, cta, warpgroup, site, slot, (begin, -1, end))
        tables.append(activity.to_arrays())
        rows = random.sample(rows, len(rows))
    for first, second in zip(*tables, strict=True):
        assert first.tobytes() == second.tobytes()
    unit_spans, arrivals = tables[0]
    assert unit_spans["unit"].tolist() == sorted(unit_spans["unit"].tolist())
    assert arrivals["time"].tolist() == sorted(arrivals["time"].tolist())
