"""The tensor core against the published wgmma tables."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu.devices import load_device
from mgpu.errors import Unsupported
from mgpu.sim.engine import Engine
from mgpu.sim.tensor_core import TensorCore, mma_ticks

H100 = load_device("h100")


class Times(NamedTuple):
    """Begin and end of an operation, and when the pipe takes the next one."""

    begin: int
    end: int
    free_at: int


def issue(core: TensorCore, now: int, *operation: int, a_in_registers: bool = False) -> Times:
    """Issues m, n, k and the bits of an element at time `now`."""
    return Times(*core.start(now, *mma_ticks(H100, *operation, a_in_registers=a_in_registers)), core.free_at)


def issue_many(core: TensorCore, count: int, n: int, k: int = 16, now: int = 0) -> Times:
    """Issues `count` operations m64nNkK at once and returns the times of the last."""
    times = [issue(core, now, 64, n, k, 16) for _ in range(count)]
    return times[-1]


@pytest.mark.parametrize(
    ("n", "measured"),
    [(8, 18.9), (16, 20.7), (32, 24.7), (64, 32.8), (96, 48.7), (128, 65.0), (192, 97.1), (256, 129.3)],
)
def test_issue_interval_by_width(n: int, measured: float):
    """flash-vla H100 notes, unit-mma: m64nNk16, at least 4 in flight."""
    assert issue_many(TensorCore(), 1000, n).free_at / 1000 == pytest.approx(measured, abs=0.65)


@pytest.mark.parametrize(("n", "measured"), [(64, 76.3), (128, 115.1), (256, 194.9)])
def test_latency_of_a_lone_instruction(n: int, measured: float):
    """GH200 EXP-07: issue to the return of wait_group 0."""
    assert issue(TensorCore(), 0, 64, n, 16, 16).end == pytest.approx(measured, abs=1.5)


@pytest.mark.parametrize(
    ("per_group", "pending", "measured"),
    [(1, 0, 79.0), (1, 1, 42.0), (1, 3, 33.7), (2, 0, 55.6), (2, 1, 33.1), (4, 0, 44.6), (8, 0, 38.2)],
)
def test_groups_in_flight(per_group: int, pending: int, measured: float):
    """GH200 EXP-07, N = 64: cycles per instruction in groups of `per_group`, waiting down to `pending` groups."""
    engine, core, num_groups = Engine(), TensorCore(), 200

    def warpgroup():
        ends = []
        for _ in range(num_groups):
            yield H100.wgmma_issue_cycles
            ends.append(issue_many(core, per_group, 64, now=engine.now).end)
            if len(ends) > pending:
                yield max(0, ends[-1 - pending] - engine.now)

    engine.start(warpgroup(), "WG0")
    engine.run()
    assert engine.now / (num_groups * per_group) == pytest.approx(measured, rel=0.07)


def test_two_warpgroups_share_the_pipe():
    """GH200 EXP-07: each of two warpgroups sees twice the interval."""
    engine, core, ends = Engine(), TensorCore(), []

    def warpgroup():
        for _ in range(100):
            yield issue(core, engine.now, 64, 256, 64, 16).free_at - engine.now
        ends.append(engine.now)

    engine.start(warpgroup(), "WG0")
    engine.start(warpgroup(), "WG1")
    engine.run()
    alone = issue_many(TensorCore(), 100, 256, k=64).free_at
    assert max(ends) == pytest.approx(2 * alone, rel=0.01)
    assert min(ends) == pytest.approx(2 * alone, rel=0.02)


def test_a_k_tile_of_the_cutlass_main_loop():
    """GH200 R09: a 128x256x64 tile, two warpgroups of m64n256k64, takes 1024 cycles."""
    assert issue_many(TensorCore(), 200, 256, k=64).free_at / 100 == pytest.approx(1024, rel=0.01)


def test_one_operation_is_its_instructions():
    times = issue(TensorCore(), 10, 128, 128, 64, 16)
    last = issue_many(TensorCore(), 2 * 4, 128, now=10)
    assert (times.begin, times.end, times.free_at) == (10, last.end, last.free_at)
    # 8 instructions at 64.7 cycles; the last one's result 36 + 0.62 * 128 cycles after its start.
    assert times.free_at == 10 + 518
    assert times.end == 10 + 569


@pytest.mark.parametrize(("bits", "k"), [(8, 32), (16, 16), (32, 8)])
def test_the_rate_follows_the_operand_size(bits: int, k: int):
    """8-bit operands have twice, tf32 half the rate of 16-bit ones: k scales so that one instruction costs the same."""
    assert issue(TensorCore(), 0, 64, 128, k, bits).free_at == 65


def test_a_in_registers_drops_its_smem_traffic():
    core = TensorCore()
    assert issue(core, 0, 64, 8, 16, 16).free_at == 19  # (2048 + 256) / 128 + 0.7
    assert issue(TensorCore(), 0, 64, 8, 16, 16, a_in_registers=True).free_at == 5  # N / 2 + 0.7
    wide = [issue(TensorCore(), 0, 64, 256, 16, 16, a_in_registers=flag) for flag in (False, True)]
    assert wide[0] == wide[1]


def test_wide_operations_are_split():
    assert issue(TensorCore(), 0, 64, 320, 16, 16).free_at == 162  # 128.7 + 32.7 = 161.4


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 32), st.integers(1, 8)), min_size=1, max_size=30))
def test_operations_are_in_order_and_never_above_the_peak(operations: list[tuple[int, int, int]]):
    core, now, flops, previous_end, previous_free = TensorCore(), 0, 0, 0, 0
    for gap, n8, k16 in operations:
        now += gap
        begin, end, free_at = issue(core, now, 64, 8 * n8, 16 * k16, 16)
        assert begin == max(now, previous_free)
        assert previous_free <= free_at <= end
        assert end >= previous_end or 8 * n8 < 256  # a narrow instruction may overtake a wide one's latency
        previous_end, previous_free = end, free_at
        flops += 2 * 64 * 8 * n8 * 16 * k16
        assert flops <= 4096 * free_at
    assert core.busy_cycles <= previous_free


def test_busy_cycles_leave_out_gaps():
    core = TensorCore()
    issue(core, 0, 64, 256, 16, 16)
    issue(core, 10_000, 64, 256, 16, 16)
    assert core.busy_cycles == 258  # 2 x 128.7, rounded up


def test_devices_without_wgmma_and_odd_sizes_are_refused():
    with pytest.raises(Unsupported, match=r"b200.*simulate an h100"):
        mma_ticks(load_device("b200"), 64, 64, 16, 16)
    with pytest.raises(Unsupported, match=r"64-bit operands on h100: expected 8, 16 or 32 bits"):
        mma_ticks(H100, 64, 64, 16, 64)
