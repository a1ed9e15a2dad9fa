"""The TMA engine: timelines by hand, and published single-box and pipeline measurements."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu.devices import Device, load_device
from mgpu.sim.engine import Engine
from mgpu.sim.machine import Cta, CtaResources, Machine
from mgpu.sim.mbarrier import Mbarrier
from mgpu.sim.memory_system import MemorySystem
from mgpu.sim.tensor_core import TensorCore, mma_ticks
from mgpu.sim.tma import Box, Tma

H100 = load_device("h100")
# Timelines by hand: memory without queues, 300 cycles of latency, 128 B/cycle, no descriptor fetch.
PLAIN = H100.override(
    clock_hz=1_000_000_000,
    l2_bandwidth=10**18,
    l2_write_bandwidth=10**18,
    l2_shared_bandwidth=10**18,
    l2_queueing_fraction=0,
    tma_latency_l2_cycles=300,
    tma_bytes_per_cycle=128,
    tma_descriptor_fetch_cycles=0,
)


def make_tma(device: Device = PLAIN, nbytes: int = 1 << 20) -> tuple[Tma, int]:
    memory = MemorySystem(device)
    buffer = memory.add_buffer(nbytes, 4096)
    memory.warm(buffer)
    return Tma(device, memory, 0), buffer


def rows_of(buffer: int, rows: int, row_bytes: int = 128, first: int = 0) -> Box:
    return Box(buffer, first * 4096, rows, row_bytes, 4096)


def test_a_box_takes_latency_and_a_cycle_for_each_row():
    tma, buffer = make_tma()
    # One cycle for the bytes to leave L2, 300 of latency, 64 rows.
    assert tma.load(10, rows_of(buffer, 64)) == 10 + 1 + 300 + 64


def test_narrow_rows_cost_as_much_as_full_ones_and_wide_ones_more():
    times = []
    for row_bytes in (32, 128, 256):
        tma, buffer = make_tma()
        times.append(tma.load(0, rows_of(buffer, 64, row_bytes)) - 301)
    assert times == [64, 64, 128]


def test_boxes_land_in_order_and_their_latencies_overlap():
    tma, buffer = make_tma()
    landings = [tma.load(20 * index, rows_of(buffer, 64, first=64 * index)) for index in range(3)]
    assert landings == [365, 429, 493]


def test_the_first_use_of_a_tensor_map_fetches_it():
    tma, buffer = make_tma(PLAIN.override(tma_descriptor_fetch_cycles=500))
    assert tma.load(0, rows_of(buffer, 8)) == 500 + 301 + 8
    # 100 cycles later the map is still on its way.
    assert tma.load(100, rows_of(buffer, 8)) == 500 + 301 + 8 + 8
    assert tma.load(2000, rows_of(buffer, 8)) == 2000 + 301 + 8


def test_a_store_reads_smem_then_becomes_visible():
    tma, buffer = make_tma()
    stored = tma.store(0, rows_of(buffer, 64))
    # 8 KiB at 32 B/cycle.
    assert stored == (256 + 97, 256 + 145)
    assert tma.store(10, rows_of(buffer, 64)).read_done == 512 + 97, "stores queue behind each other"


def test_a_load_waits_for_the_stores_before_it_and_a_store_for_no_load():
    tma, buffer = make_tma(PLAIN.override(tma_descriptor_fetch_cycles=500))
    other = tma._memory.add_buffer(1 << 20, 4096)
    tma._memory.warm(other)
    tma.store(0, rows_of(buffer, 64))
    # The store fetches its tensor map until 500 and is read until 756. Then the load's own map is fetched.
    assert tma.load(10, rows_of(other, 64)) == 756 + 500 + 301 + 64
    assert tma.load(2000, rows_of(buffer, 64)) == 2000 + 301 + 64
    assert tma.store(2010, rows_of(buffer, 64)).read_done == 2010 + 256 + 97
    receiver, _ = make_tma()
    assert tma.multicast(2020, rows_of(buffer, 64), [receiver]) == [2010 + 256 + 301 + 64]


def test_a_store_keeps_smem_until_l2_has_taken_it():
    # L2 takes 4 B/cycle of what the engine could read at 32.
    tma, buffer = make_tma(PLAIN.override(l2_write_bandwidth=PLAIN.clock_hz * 4))
    assert tma.store(0, rows_of(buffer, 64)) == (2048 + 97, 2048 + 145)


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(1, 64), st.sampled_from([32, 64, 128, 256])), max_size=30))
def test_the_engine_never_exceeds_a_row_per_cycle(boxes: list[tuple[int, int, int]]):
    tma, buffer = make_tma(H100)
    now, begin, slots, previous = 0, None, 0, 0
    for gap, rows, row_bytes in boxes:
        now += gap
        landing = tma.load(now, rows_of(buffer, rows, row_bytes))
        begin = now if begin is None else begin
        slots += rows * max(1, row_bytes // 128)
        assert landing - begin >= slots + H100.tma_latency_l2_cycles
        assert landing >= previous
        previous = landing


@pytest.mark.parametrize(("kib", "measured"), [(1, 588), (4, 627), (8, 644), (16, 766), (32, 887), (64, 1182)])
def test_one_load_at_a_time_on_one_sm(kib: int, measured: int):
    """GH200 EXP-15: 2-D boxes from L2, wait on the mbarrier, CTA barrier; cycles of one round.

    A round of the probe takes some 170 cycles more, whatever the box: it also arrives, and its wait reads a timer.
    """
    row_bytes = 256 if kib == 64 else 128
    tma, buffer = make_tma(H100)
    start = 100_000
    tma.load(0, rows_of(buffer, 8))
    before = 170 + H100.tma_issue_cycles
    landed = tma.load(start, rows_of(buffer, kib * 1024 // row_bytes, row_bytes)) - start
    after = H100.mbarrier_hop_cycles + H100.named_barrier_cycles + 4 * H100.named_barrier_cycles_per_warp
    assert before + landed + after == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize(("kib", "measured"), [(1, 296), (4, 392), (8, 482), (16, 738), (32, 1250), (64, 2274)])
def test_one_store_at_a_time_on_one_sm(kib: int, measured: int):
    """GH200 EXP-15: 2-D boxes, full wait, CTA barrier; cycles of one round.

    Boxes below 8 KiB cost up to 38 cycles more than the line through the larger ones, which is what the model has.
    """
    row_bytes = 256 if kib == 64 else 128
    tma, buffer = make_tma(H100)
    start = 100_000
    tma.store(0, rows_of(buffer, 8))
    stored = tma.store(start, rows_of(buffer, kib * 1024 // row_bytes, row_bytes)).written - start
    around = H100.tma_issue_cycles + H100.named_barrier_cycles + 4 * H100.named_barrier_cycles_per_warp
    assert around + stored == pytest.approx(measured, abs=40)


class PipelineProbe:
    """The pipeline of GH200 R13, on every SM: one producer fills a ring of slots, two consumers release them at once.

    A slot holds a tile of A (128 rows of 128 bytes) and one of B. All SMs read the same tiles, which are in L2. A
    consumer writes a word to SMEM, and its warps meet, before it releases.
    """

    NUM_TILES = 32

    def __init__(self, stage_kib: int, num_stages: int) -> None:
        self.engine = Engine()
        self.machine = Machine(self.engine, H100)
        self.stage_bytes = stage_kib * 1024
        self.tile_rows = {"a": 128, "b": (stage_kib - 16) * 8}
        self.buffers = {name: self.add_buffer(rows) for name, rows in self.tile_rows.items()}
        self.num_stages = num_stages
        self.lifetimes: list[int] = []

    def add_buffer(self, rows: int) -> int:
        buffer = self.machine.memory.add_buffer(self.NUM_TILES * rows * 128)
        self.machine.memory.warm(buffer)
        return buffer

    def start_cta(self, cta: Cta) -> None:
        engine, begin = self.engine, self.engine.now
        full = [Mbarrier(engine, H100, 1, f"full[{slot}]") for slot in range(self.num_stages)]
        empty = [Mbarrier(engine, H100, 2, f"empty[{slot}]") for slot in range(self.num_stages)]
        processes = []

        def producer():
            for tile in range(self.NUM_TILES):
                turn, slot = divmod(tile, self.num_stages)
                yield H100.mbarrier_try_wait_cycles
                if not empty[slot].wait(processes[0], (turn + 1) & 1):
                    yield None
                full[slot].expect_tx(self.stage_bytes)
                full[slot].arrive("producer")
                for name, rows in self.tile_rows.items():
                    yield H100.tma_issue_cycles
                    box = Box(self.buffers[name], tile * rows * 128, rows, 128, 128)
                    landing = cta.sm.tma.load(engine.now, box)
                    engine.call_at(landing, full[slot].complete_tx, rows * 128, "tma")

        def consumer(index: int):
            for tile in range(self.NUM_TILES):
                turn, slot = divmod(tile, self.num_stages)
                yield H100.mbarrier_try_wait_cycles
                if not full[slot].wait(processes[index], turn & 1):
                    yield None
                yield H100.named_barrier_cycles + 4 * H100.named_barrier_cycles_per_warp
                yield H100.mbarrier_arrive_cycles
                empty[slot].arrive(f"consumer {index}")
            self.lifetimes.append(engine.now - begin)

        processes.append(engine.start(producer(), "producer"))
        processes.extend(engine.start(consumer(index), f"consumer {index}") for index in (1, 2))

    def cycles_per_stage(self) -> float:
        resources = CtaResources(smem_bytes=4 * self.stage_bytes, num_warpgroups=3, registers_per_thread=128)
        self.machine.launch(132, 1, resources, self.start_cta)
        self.engine.run()
        assert self.engine.unfinished() == []
        assert len(self.lifetimes) == 2 * 132
        return sum(self.lifetimes) / len(self.lifetimes) / self.NUM_TILES


@pytest.mark.parametrize(
    ("stage_kib", "num_stages", "measured"),
    [(32, 1, 918), (32, 2, 581), (32, 4, 394), (48, 1, 1125), (48, 2, 758), (48, 4, 578)],
)
def test_pipelines_on_all_sms(stage_kib: int, num_stages: int, measured: int):
    """GH200 R13, direct consumer: cycles per stage."""
    assert PipelineProbe(stage_kib, num_stages).cycles_per_stage() == pytest.approx(measured, rel=0.10)


def test_all_sms_together_stay_below_the_bandwidth_of_hbm():
    """Cold, disjoint boxes: 15.3 B/cycle/SM were measured on GH200 with 4 TB/s (R05-D); H100 has 3.0 / 3.5 of it."""
    memory = MemorySystem(H100)
    box_bytes, per_sm = 32 * 1024, 16
    buffer = memory.add_buffer(132 * per_sm * box_bytes)
    engines = [Tma(H100, memory, sm) for sm in range(132)]
    last = 0
    for index in range(per_sm):
        for sm, tma in enumerate(engines):
            offset = (sm * per_sm + index) * box_bytes
            last = max(last, tma.load(0, Box(buffer, offset, 256, 128, 128)))
    bytes_per_cycle = 132 * per_sm * box_bytes / last
    limit = H100.hbm_bandwidth / H100.clock_hz
    assert 0.9 * limit < bytes_per_cycle <= limit
    assert memory.counters.hbm_read_bytes == 132 * per_sm * box_bytes


def test_a_load_beside_wgmmas_takes_longer_by_the_contention():
    """flash-vla unit-mma: loads beside wgmmas are 1.25 times slower. Those that start when the pipe is free are not."""
    memory = MemorySystem(H100)
    buffer = memory.add_buffer(1 << 20)
    tensor_core = TensorCore()
    tma = Tma(H100, memory, 0, tensor_core)
    box = rows_of(buffer, 128)
    tma.load(0, box)  # from now on in L2
    alone = tma.load(10_000, box) - 10_000
    wgmma = mma_ticks(H100, 64, 256, 64, 16)
    tensor_core.start(20_000, *wgmma)
    busy = tensor_core.free_at - 1
    beside = tma.load(busy, box) - busy
    assert beside == alone + alone // 4
    later = 30_000
    assert tma.load(later, box) - later == alone
    tensor_core.start(40_000, *wgmma)
    free = tensor_core.free_at
    assert tma.load(free, box) - free == alone
