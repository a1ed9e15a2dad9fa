import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from mgpu.sites import Edge
from profiler.decode import Events
from profiler.pairing import pair_events

B, E, I = Edge.BEGIN, Edge.END, Edge.INSTANT


def make_events(tracks: list[list[tuple[int, Edge]]]) -> Events:
    rows = [(track, site, edge) for track, events in enumerate(tracks) for site, edge in events]
    columns = np.array(rows, np.int32).reshape(-1, 3).T
    return Events(columns[0], columns[1], columns[2], np.zeros(len(rows), np.int32), np.arange(len(rows)), ())


def spans(tracks):
    """Returns (begin, end, parent's begin, depth, closed) of every span, and the number of orphan ends."""
    pairing = pair_events(make_events(tracks))
    parents = [int(pairing.begin[p]) if p >= 0 else -1 for p in pairing.parent]
    rows = zip(pairing.begin.tolist(), pairing.end.tolist(), parents, pairing.depth.tolist(), pairing.closed.tolist())
    return list(rows), sum(d.count for d in pairing.defects if d.kind == "orphan_end")


def test_nested_spans_and_instants() -> None:
    track = [(1, B), (2, B), (9, I), (2, E), (2, B), (2, E), (1, E)]
    assert spans([track]) == ([(0, 6, -1, 0, True), (1, 3, 0, 1, True), (4, 5, 0, 1, True)], 0)
    assert pair_events(make_events([track])).instants.tolist() == [2]


def test_tracks_do_not_close_each_other() -> None:
    assert spans([[(1, B)], [(1, E), (1, B), (1, E)]]) == ([(0, 0, -1, 0, False), (2, 3, -1, 0, True)], 1)


def test_a_begin_without_end_lasts_to_the_last_event_of_its_track() -> None:
    track = [(1, B), (2, B), (2, E), (3, B), (9, I)]
    assert spans([track, [(1, B), (1, E)]])[0] == [
        (0, 4, -1, 0, False),
        (1, 2, 0, 1, True),
        (3, 4, 0, 1, False),
        (5, 6, -1, 0, True),
    ]


def test_an_end_cuts_the_spans_inside_it_that_never_ended() -> None:
    assert spans([[(1, B), (2, B), (1, E), (3, B), (3, E)]])[0] == [
        (0, 2, -1, 0, True),
        (1, 2, 0, 1, False),
        (3, 4, -1, 0, True),
    ]


def test_an_end_of_another_site_is_an_orphan() -> None:
    assert spans([[(1, B), (2, E), (1, E)]]) == ([(0, 2, -1, 0, True)], 1)


def stack_machine(tracks):
    """Pairs one event at a time, as the module's docstring says."""
    rows, orphans, index = [], 0, 0
    for events in tracks:
        open_spans, last = [], index + len(events) - 1

        def close(end, closed, open_spans=open_spans):
            begin, _ = open_spans.pop()
            rows.append((begin, end, open_spans[-1][0] if open_spans else -1, len(open_spans), closed))

        for site, edge in events:
            if edge == B:
                open_spans.append((index, site))
            elif edge == E and site in [s for _, s in open_spans]:
                while open_spans[-1][1] != site:
                    close(index, False)
                close(index, True)
            elif edge == E:
                orphans += 1
            index += 1
        while open_spans:
            close(last, False)
    return sorted(rows), orphans


event = st.tuples(st.integers(0, 2), st.sampled_from([B, E, I]))


@given(st.lists(st.lists(event, max_size=25), min_size=1, max_size=5))
def test_any_events_pair_as_on_a_stack(tracks) -> None:
    assert spans(tracks) == stack_machine(tracks)


@st.composite
def nested(draw, depth=4):
    """Well-nested events of one track."""
    events = []
    for _ in range(draw(st.integers(0, 3))):
        site = draw(st.integers(0, 5))
        inside = draw(nested(depth - 1)) if depth else []
        events += [(site, B), *inside, (site, E)] if draw(st.booleans()) else [(site, I)]
    return events


@given(st.lists(nested(), min_size=1, max_size=5))
def test_well_nested_events_pair_without_a_defect(tracks) -> None:
    found, orphans = spans(tracks)
    assert (found, orphans) == stack_machine(tracks)
    assert all(closed for *_, closed in found)
