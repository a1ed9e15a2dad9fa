import dataclasses

import numpy as np

from mgpu.capture import pack_tag
from mgpu.sites import Edge
from profiler.decode import decode_events
from support.captures import ARRIVE, EMPTY, LOAD, ring_capture


def test_events_of_the_memory_warpgroup_by_hand() -> None:
    events = decode_events(ring_capture(num_ctas=1, iterations=3))
    memory = events.track == 2
    # Two loads without a wait, then one that waits for slot 0: see support.captures.
    assert events.clock[memory].tolist() == [
        *(1000, 1000, 1020, 1020),
        *(1020, 1020, 1040, 1040),
        *(1040, 1040, 1732, 1732, 1752, 1752),
    ]
    assert events.payload[memory].tolist()[:8] == [0, 0, 0, 0, 0, 1, 1, 0]
    assert events.edge[memory].tolist()[:4] == [Edge.BEGIN, Edge.BEGIN, Edge.END, Edge.END]
    assert not events.defects


def test_a_wrapping_clock_changes_nothing_but_the_origin() -> None:
    plain = decode_events(ring_capture(start_cycles=1000))
    wrapped = decode_events(ring_capture(start_cycles=(7 << 32) - 600))
    np.testing.assert_array_equal(wrapped.clock - plain.clock, (7 << 32) - 1600)


def test_unknown_sites_and_bad_edges_are_counted_and_the_rest_survives() -> None:
    capture = ring_capture(num_ctas=1)
    words = capture.words.copy()
    words[3, 0] = pack_tag(4000, Edge.BEGIN)
    words[5, 0] |= 3 << 14
    events = decode_events(dataclasses.replace(capture, words=words))
    assert len(events) == len(words) - 2
    assert {(d.kind, d.track, d.count) for d in events.defects} == {("unknown_site", 0, 1), ("bad_edge", 0, 1)}


def test_dropped_events_name_the_profile_space_that_suffices() -> None:
    capture = ring_capture(num_ctas=1, capacity=20)
    dropped = [defect for defect in decode_events(capture).defects if defect.kind == "dropped"]
    assert [defect.count for defect in dropped] == [34, 34, 12]
    assert all("profile_space=54" in defect.message for defect in dropped)
    enough = ring_capture(num_ctas=1, capacity=54)
    assert not decode_events(enough).defects


def test_a_clock_that_goes_back_is_repaired_and_counted() -> None:
    capture = ring_capture(num_ctas=1)
    words = capture.words.copy()
    words[10, 1] -= 500
    events = decode_events(dataclasses.replace(capture, words=words))
    assert [(d.kind, d.track) for d in events.defects] == [("clock_backwards", 0)]
    first = events.clock[events.track == 0]
    assert (np.diff(first) >= 0).all()
    assert first[-1] == 3292


def test_the_payload_is_the_slot_of_the_barrier() -> None:
    events = decode_events(ring_capture(num_ctas=1, stages=3))
    arrivals = (events.site == ARRIVE) & (events.track == 0)
    assert events.payload[arrivals].tolist() == [0, 1, 2, 0, 1, 2]
    assert EMPTY == 1
    assert (events.payload[events.site == LOAD] == 0).all()


def test_an_empty_capture_decodes_to_nothing() -> None:
    capture = ring_capture(num_ctas=1, capacity=0)
    events = decode_events(capture)
    assert len(events) == 0
    assert sum(defect.count for defect in events.defects) == 54 + 54 + 32
