"""L2 and HBM: latencies, sharing, LRU, and bytes that never exceed the bandwidth."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu.devices import load_device
from mgpu.errors import OutOfBoundsError
from mgpu.sim import l2_blocks
from mgpu.sim.memory_system import Box, MemorySystem

H100 = load_device("h100")
# Round numbers for timelines by hand: 1000 B/cycle from HBM, 2000 and 4000 B/cycle from L2, no queueing at the slices.
PLAIN = H100.override(
    clock_hz=1_000_000_000,
    hbm_bandwidth=1_000_000_000_000,
    l2_bandwidth=2_000_000_000_000,
    l2_shared_bandwidth=4_000_000_000_000,
    l2_write_bandwidth=2_000_000_000_000,
    l2_queueing_fraction=0,
    l2_latency_cycles=200,
    dram_latency_cycles=600,
    l2_sharing_window_cycles=1000,
    l2_bytes=1_000_000,
    l2_uneven_fraction=0,
    l2_partitions=1,
)


def tile(buffer: int, row: int, column_bytes: int, pitch_bytes: int = 8192) -> Box:
    """A box of 64 rows of 128 bytes: 8 KiB."""
    return Box(buffer, row * pitch_bytes + column_bytes, 64, 128, pitch_bytes)


def make_memory(nbytes: int = 1 << 22) -> tuple[MemorySystem, int]:
    memory = MemorySystem(PLAIN)
    return memory, memory.add_buffer(nbytes, 8192)


def test_a_miss_takes_dram_latency_and_bandwidth_then_the_same_box_hits():
    memory, buffer = make_memory()
    # 8192 bytes at 1000 B/cycle: 8.192 cycles at HBM, then the latency.
    assert memory.read(0, 0, tile(buffer, 0, 0)) == 9 + 600
    # 4.096 cycles at L2.
    assert memory.read(5000, 0, tile(buffer, 0, 0)) == 5000 + 5 + 200
    assert (memory.counters.hbm_read_bytes, memory.counters.l2_read_bytes) == (8192, 16384)
    assert (memory.counters.l2_hits, memory.counters.l2_misses) == (1, 1)


def test_neighbours_share_a_fetch_that_is_on_its_way():
    memory, buffer = make_memory()
    first = memory.read(0, 0, tile(buffer, 0, 0))
    second = memory.read(10, 1, tile(buffer, 0, 0))
    assert first == second == 609
    assert memory.counters.hbm_read_bytes == 8192
    assert memory.counters.l2_shared_bytes == 8192


def test_shared_lines_leave_l2_at_the_higher_rate():
    memory, buffer = make_memory(64 * 8192)
    memory.warm(buffer)
    times = [memory.read(0, sm, tile(buffer, 0, 0)) for sm in range(4)]
    # 4.096 cycles for the first reader, 2.048 for each that follows.
    assert times == [205, 207, 209, 211]
    much_later = 5000
    assert memory.read(much_later, 4, tile(buffer, 0, 0)) == much_later + 205


def test_one_sm_alone_never_shares():
    memory, buffer = make_memory()
    for time in range(10):
        memory.read(time, 7, tile(buffer, 0, 0))
    assert memory.counters.l2_shared_bytes == 0


def test_boxes_that_tile_a_matrix_do_not_hit_each_other():
    memory, buffer = make_memory()
    for row in range(0, 512, 64):
        for column in range(0, 8192, 128):
            memory.read(0, 0, tile(buffer, row, column))
    assert memory.counters.hbm_read_bytes == 512 * 8192
    assert memory.counters.l2_hits == 0


def test_a_larger_box_hits_what_smaller_ones_brought_in():
    memory, buffer = make_memory()
    memory.read(0, 0, tile(buffer, 0, 0))
    memory.read(0, 0, tile(buffer, 64, 0))
    memory.read(10_000, 0, Box(buffer, 0, 128, 128, 8192))
    assert memory.counters.hbm_read_bytes == 2 * 8192


def test_a_smaller_box_splits_the_blocks_of_a_larger_one():
    memory, buffer = make_memory()
    memory.read(0, 0, Box(buffer, 0, 128, 512, 8192))
    assert memory.counters.hbm_read_bytes == 128 * 512
    memory.read(10_000, 0, Box(buffer, 16 * 8192 + 128, 16, 128, 8192))
    assert memory.counters.hbm_read_bytes == 128 * 512
    memory.read(10_000, 0, Box(buffer, 128 * 8192, 16, 128, 8192))
    assert memory.counters.hbm_read_bytes == 128 * 512 + 16 * 128


def test_contiguous_boxes_and_rows_of_a_matrix_see_each_other():
    memory, buffer = make_memory()
    memory.read(0, 0, Box(buffer, 0, 8, 8192, 8192))
    memory.read(5000, 0, Box(buffer, 0, 1, 8 * 8192, 8 * 8192))
    assert memory.counters.hbm_read_bytes == 8 * 8192


def test_least_recently_used_blocks_leave_first():
    memory, buffer = make_memory()
    boxes = [tile(buffer, 0, column) for column in range(0, 8192, 128)]  # 512 KiB
    others = [tile(buffer, 64, column) for column in range(0, 8192, 128)]  # 512 KiB more: over 1 MB in all
    for box in boxes + others:
        memory.read(0, 0, box)
    memory.read(0, 0, others[0])
    assert memory.counters.l2_hits == 1
    memory.read(0, 0, boxes[0])
    assert memory.counters.l2_hits == 1, "the oldest block is gone"
    memory.read(0, 0, boxes[-1])
    assert memory.counters.l2_hits == 2, "younger ones are not"


def test_writes_reach_hbm_once_while_a_block_stays_dirty():
    memory, buffer = make_memory()
    assert memory.write(0, 0, tile(buffer, 0, 0)) == 5
    memory.write(100, 0, tile(buffer, 0, 0))
    assert memory.counters.hbm_write_bytes == 8192
    assert memory.counters.l2_write_bytes == 2 * 8192
    memory.read(200, 1, tile(buffer, 0, 0))
    assert memory.counters.hbm_read_bytes == 0, "what was written is in L2"


def test_a_read_block_that_is_written_becomes_dirty():
    memory, buffer = make_memory()
    memory.read(0, 0, tile(buffer, 0, 0))
    memory.write(1000, 0, tile(buffer, 0, 0))
    assert memory.counters.hbm_write_bytes == 8192


def test_bytes_in_flight_delay_a_later_box():
    memory = MemorySystem(PLAIN.override(l2_queueing_fraction=0.5))
    buffer = memory.add_buffer(1 << 20, 8192)
    memory.warm(buffer)
    # A quarter of a MiB of boxes is in flight: half of it goes first, at 4000 B/cycle.
    in_flight = [memory.read(0, 0, tile(buffer, 0, column)) for column in range(0, 4096, 128)]
    delayed = memory.read(0, 1, tile(buffer, 64, 0))
    assert delayed == 200 + max(32 * 8192 // 2 // 4000, -(-33 * 8192 // 2000))
    settled = max(in_flight) + 1000
    assert memory.read(settled, 1, tile(buffer, 64, 4096)) == settled + 205


def test_bytes_on_their_way_from_hbm_delay_a_later_box_unless_they_pass():
    # 900 cycles at 1000 B/cycle hold 900,000 bytes. Of the 81,920 that have not arrived yet, 45,000 pass or none does.
    for passing, bytes_ahead in ((0, 81_920), (0.05, 81_920 - 45_000)):
        numbers = {"hbm_queueing_fraction": 0.5, "hbm_passing_fraction": passing, "tma_latency_dram_cycles": 900}
        memory = MemorySystem(PLAIN.override(**numbers))
        buffer = memory.add_buffer(1 << 22, 8192)
        for number in range(10):
            memory.read(0, number, tile(buffer, 0, 128 * number))
        # HBM itself is idle at 300, but half of the bytes ahead go first.
        assert memory.read(300, 0, tile(buffer, 64, 0)) == 300 + bytes_ahead // 2 // 1000 + 600
        # All have arrived by 2000.
        assert memory.read(2000, 0, tile(buffer, 128, 0)) == 2000 + 9 + 600


def test_tma_and_plain_loads_have_their_own_latencies():
    memory, buffer = make_memory(64 * 8192)
    memory.warm(buffer)
    plain = memory.read(0, 0, tile(buffer, 0, 0))
    by_tma = memory.read(5000, 0, tile(buffer, 0, 0), by_tma=True) - 5000
    assert by_tma - plain == PLAIN.tma_latency_l2_cycles - PLAIN.l2_latency_cycles


def test_warming_is_not_traffic():
    memory, buffer = make_memory()
    memory.warm(buffer)
    assert memory.counters.l2_misses == memory.counters.hbm_read_bytes == 0


def test_a_buffer_larger_than_l2_cannot_be_warm_as_a_whole():
    memory, buffer = make_memory()
    memory.warm(buffer)  # 4 MiB into 1 MB
    memory.read(0, 0, tile(buffer, 0, 0))
    memory.read(0, 0, tile(buffer, 448, 0))
    assert (memory.counters.l2_hits, memory.counters.l2_misses) == (1, 1)


@pytest.mark.parametrize("box", [Box(0, -1, 1, 8, 8), Box(0, 0, 9, 128, 128), Box(0, 1000, 1, 128, 128)])
def test_a_box_outside_its_buffer_is_refused(box: Box):
    memory, _ = make_memory(1024)
    with pytest.raises(OutOfBoundsError, match=r"buffer has 1024 bytes\. Clip"):
        memory.read(0, 0, box)


BOXES = st.lists(
    st.tuples(
        st.integers(0, 300), st.integers(0, 3), st.integers(0, 7), st.integers(0, 15), st.booleans(), st.integers(0, 3)
    ),
    min_size=1,
    max_size=60,
)


@settings(max_examples=60)
@given(BOXES)
def test_bandwidth_is_conserved(requests: list[tuple[int, int, int, int, bool, int]]):
    """From any request on, what leaves L2 or HBM up to a time is at most rate x time."""
    memory, buffer = make_memory(512 * 8192)
    now, misses, everything = 0, [], []
    for gap, sm, row, column, is_write, size in requests:
        now += gap
        rows = 16 << size
        box = Box(buffer, (row * 64 % (512 - rows)) * 8192 + column * 128, rows, 128, 8192)
        fetched = memory.counters.hbm_read_bytes
        done = memory.write(now, sm, box) if is_write else memory.read(now, sm, box)
        everything.append((now, done - (0 if is_write else 200), rows * 128))
        if memory.counters.hbm_read_bytes > fetched:
            misses.append((now, done - 600, memory.counters.hbm_read_bytes - fetched))
    for served, rate in ((misses, 1000), (everything, 4000)):
        for first, (begin, _, _) in enumerate(served):
            total, last = 0, 0
            for _, end, nbytes in served[first:]:
                total, last = total + nbytes, max(last, end)
                assert total <= rate * (last - begin)


@settings(max_examples=40)
@given(st.lists(st.integers(0, 31), min_size=1, max_size=200), st.integers(1, 20))
def test_l2_agrees_with_a_literal_model_of_its_rule(order: list[int], capacity_boxes: int):
    """A box hits if fewer bytes than the capacity were brought in since its last touch."""
    memory = MemorySystem(PLAIN.override(l2_bytes=capacity_boxes * 8192))
    buffer = memory.add_buffer(64 * 8192, 8192)
    last_touch, brought_in, expected, hits = {}, 0, [], []
    for column in order:
        is_hit = column in last_touch and brought_in - last_touch[column] < capacity_boxes
        brought_in += not is_hit
        last_touch[column] = brought_in
        expected.append(is_hit)
        before = memory.counters.l2_hits
        memory.read(0, 0, tile(buffer, 0, column * 128))
        hits.append(memory.counters.l2_hits > before)
    assert hits == expected


@settings(max_examples=40)
@given(st.lists(st.integers(0, 31), min_size=1, max_size=200), st.integers(1, 20))
def test_whatever_true_lru_keeps_hits_here_too(order: list[int], capacity_boxes: int):
    memory = MemorySystem(PLAIN.override(l2_bytes=capacity_boxes * 8192))
    buffer = memory.add_buffer(64 * 8192, 8192)
    recent: list[int] = []
    for column in order:
        in_true_lru = column in recent[-capacity_boxes:]
        recent = [other for other in recent if other != column] + [column]
        before = memory.counters.l2_hits
        memory.read(0, 0, tile(buffer, 0, column * 128))
        if in_true_lru:
            assert memory.counters.l2_hits > before


def test_what_sms_of_both_sides_read_takes_room_in_both_partitions_of_l2():
    two, one = MemorySystem(PLAIN.override(l2_partitions=2)), MemorySystem(PLAIN)
    for memory, misses_again in ((two, True), (one, False)):
        buffer = memory.add_buffer(1 << 22, 8192)
        # 75 tiles are 614 400 bytes: they fit into 1 MB once, but not twice.
        tiles = [tile(buffer, 64 * (index // 64), 128 * (index % 64)) for index in range(75)]
        for box in tiles:
            memory.read(0, 0, box)
            memory.read(0, 1, box)
        misses = memory.counters.l2_misses
        memory.read(0, 0, tiles[0])
        assert (memory.counters.l2_misses > misses) == misses_again


def test_reads_go_to_hbm_ahead_of_writes_that_wait():
    memory, buffer = make_memory()
    for row in range(0, 256, 64):
        memory.write(0, 0, tile(buffer, row, 0))
    # 32 KiB wait to be written back, 33 cycles of HBM: the read does not wait for them.
    assert memory.read(0, 1, tile(buffer, 256, 0)) == 9 + 600
    assert memory.counters.hbm_log.tolist() == [9, 8192]
    memory.finish(20)
    # 8.192 cycles of the read; what fits into the 11.808 until the end, then the rest.
    assert memory.counters.hbm_log.tolist() == [9, 8192, 20, -11808, 41, -(4 * 8192 - 11808)]


def test_reads_wait_when_l2_is_full_of_what_has_to_be_written():
    memory = MemorySystem(PLAIN.override(l2_bytes=16384))
    buffer = memory.add_buffer(1 << 22, 8192)
    for row in range(0, 256, 64):
        memory.write(0, 0, tile(buffer, row, 0))
    # 16 KiB of 32 have to leave first.
    assert memory.read(0, 1, tile(buffer, 256, 0)) == 25 + 600


def test_writes_and_reads_take_different_ways_through_the_crossbar():
    memory, buffer = make_memory(64 * 8192)
    memory.warm(buffer)
    for column in range(0, 1280, 128):
        memory.write(0, 0, tile(buffer, 0, column))
    assert memory.read(0, 1, tile(buffer, 0, 4096)) == 205


@pytest.mark.parametrize(
    ("working_set_mb", "refetched"), [(33.9, 0.0), (38.1, 0.025), (40.9, 0.42), (45.0, 0.70), (49.4, 0.93), (54.3, 1)]
)
def test_blocks_that_all_sms_read_again_and_again_leave_an_h100_as_measured(working_set_mb, refetched):
    """gpu-benches, gpu-l2-cache/h100_pcie.txt: chunks in turn, over and over.

    Measured is time, here as the share of chunks that came from HBM: between 6.88 TB/s with all of them in L2 and
    1.97 TB/s with none.
    """
    memory = MemorySystem(H100)
    chunk = 128 * 1024
    chunks = round(working_set_mb * 1e6) // chunk
    buffer = memory.add_buffer(chunks * chunk, 1024)
    before = 0
    for turn in range(6):
        before = memory.counters.hbm_read_bytes
        for index in range(chunks):
            memory.read(10_000 * turn, index % 132, Box(buffer, index * chunk, 1, chunk, 0))
    share = (memory.counters.hbm_read_bytes - before) / (chunks * chunk)
    assert share == pytest.approx(refetched, abs=0.16)


def test_a_write_that_fills_sectors_in_parts_takes_the_time_of_what_it_moves():
    memory, buffer = make_memory()
    assert memory.write(0, 0, tile(buffer, 0, 0), moved_bytes=20_000) == 10  # at 2000 B/cycle
    assert memory.counters.l2_write_bytes == 8192


ROWS, IS_WRITE = st.sampled_from([8, 8, 64]), st.sampled_from([False, False, False, True])
REQUESTS = st.tuples(st.integers(0, 60), st.integers(0, 5), st.integers(0, 12), ROWS, IS_WRITE)


@given(st.lists(REQUESTS, min_size=30, max_size=200))
def test_boxes_that_remember_their_blocks_give_the_times_of_new_ones(requests):
    """A small L2, so that blocks leave it, and boxes of several heights, so that blocks are split on the way."""
    device = H100.override(l2_bytes=1 << 18)
    remembering, forgetting = MemorySystem(device), MemorySystem(device)
    for memory in (remembering, forgetting):
        memory.add_buffer(1 << 20, 1024)
    now = 0
    for gap, sm, place, rows, is_write in requests:
        now += gap
        offset = place * 128 % 1024 + place // 8 * 128 * 1024
        known, fresh = remembering.boxes[0, rows, 128, 1024][offset], Box(0, offset, rows, 128, 1024)
        if is_write:
            assert remembering.write(now, sm, known) == forgetting.write(now, sm, fresh)
        else:
            assert remembering.read(now, sm, known) == forgetting.read(now, sm, fresh)
    assert remembering.counters == forgetting.counters


def test_boxes_of_an_extent_are_bounded(monkeypatch):
    monkeypatch.setattr(l2_blocks, "MAX_KNOWN_BOXES", 10)
    memory = MemorySystem(H100)
    buffer = memory.add_buffer(1 << 20, 1024)
    for row in range(100):
        memory.read(row, 0, memory.boxes[buffer, 8, 128, 1024][row * 1024])
    assert len(memory.boxes[buffer, 8, 128, 1024]) <= 10
