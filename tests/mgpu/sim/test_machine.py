"""Placement of CTAs: occupancy, order, clusters, launch times."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu.capture import CTA_DTYPE
from mgpu.devices import load_device
from mgpu.errors import ResourceError
from mgpu.sim.engine import Engine
from mgpu.sim.machine import Cta, CtaResources, Machine

H100 = load_device("h100")
# Timelines by hand: 1 cycle is 1 ns.
PLAIN = H100.override(
    clock_hz=1_000_000_000, launch_ramp_ns=1000, cta_dispatch_ns=1, cta_setup_ns=100, relaunch_gap_ns=500
)
SMALL = CtaResources(smem_bytes=1024, num_warpgroups=1, registers_per_thread=32)
WHOLE_SM = CtaResources(smem_bytes=232448, num_warpgroups=1, registers_per_thread=32)


def run_grid(
    num_ctas: int, cluster_size: int, resources: CtaResources, num_sms: int | None, lifetime: int = 1000
) -> list[tuple[int, ...]]:
    """Runs CTAs that all live `lifetime` cycles after their start; returns the table's rows."""
    engine = Engine()
    machine = Machine(engine, PLAIN, num_sms)
    starts = []

    def start(cta: Cta) -> None:
        starts.append((engine.now, cta.begin))
        engine.call_at(engine.now + lifetime, cta.exit)

    machine.launch(num_ctas, cluster_size, resources, start)
    engine.run()
    # The first CTA of a place is set up for 100 cycles; the gap before each later one holds its setup.
    assert all(now == begin + (100 if begin < 1100 else 0) for now, begin in starts)
    table = machine.cta_table()
    assert table.dtype == CTA_DTYPE
    return [tuple(int(value) for value in row) for row in table.tolist()]


def test_waves_on_two_sms():
    # Entry after 1000 of ramp and 1 per CTA; 100 of setup and 1000 of life; the next one 500 after the exit.
    assert run_grid(5, 1, WHOLE_SM, 2) == [
        (0, 0, 0, 1000, 2100),
        (1, 1, 1, 1001, 2101),
        (2, 2, 0, 2600, 3600),
        (3, 3, 1, 2601, 3601),
        (4, 4, 0, 4100, 5100),
    ]


def test_every_sm_gets_one_cta_before_any_gets_two():
    rows = run_grid(6, 1, SMALL, 4)
    assert [sm for _, _, sm, _, _ in rows] == [0, 1, 2, 3, 0, 1]
    assert [begin for _, _, _, begin, _ in rows] == [1000, 1001, 1002, 1003, 1004, 1005]


def test_clusters_enter_together_and_are_replaced_when_all_have_left():
    engine = Engine()
    machine = Machine(engine, PLAIN, 4)

    def start(cta: Cta) -> None:
        engine.call_at(engine.now + (100 if cta.rank == 0 else 1000), cta.exit)

    machine.launch(6, 2, WHOLE_SM, start)
    engine.run()
    rows = machine.cta_table().tolist()
    assert [row[:4] for row in rows] == [
        (0, 0, 0, 1000),
        (1, 0, 1, 1000),
        (2, 1, 2, 1002),
        (3, 1, 3, 1002),
        (4, 2, 0, 2600),
        (5, 2, 1, 2600),
    ]


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.sampled_from([1, 2, 4]),
    st.integers(4, 9),
    st.integers(1, 60_000),
    st.lists(st.integers(1, 3000), min_size=160, max_size=160),
    st.sampled_from([None, 3]),
)
def test_no_sm_ever_holds_more_than_fits(
    num_clusters: int, cluster_size: int, num_sms: int, smem_bytes: int, lives: list[int], seed: int | None
):
    engine = Engine(seed=seed)
    machine = Machine(engine, PLAIN, num_sms)
    resources = CtaResources(smem_bytes=smem_bytes, num_warpgroups=2, registers_per_thread=64)
    machine.launch(
        num_clusters * cluster_size,
        cluster_size,
        resources,
        lambda cta: engine.call_at(engine.now + lives[cta.index], cta.exit),
    )
    engine.run()
    table = machine.cta_table()
    assert table["cta"].tolist() == list(range(num_clusters * cluster_size))
    for row in table:
        same_sm = table[table["sm"] == row["sm"]]
        resident = ((same_sm["begin"] <= row["begin"]) & (row["begin"] < same_sm["end"])).sum()
        assert resident <= machine.ctas_per_sm(resources)
    assert (table["begin"][1:] >= table["begin"][:-1]).all(), "CTAs enter in order"
    for cluster in range(num_clusters):
        members = table[table["cluster"] == cluster]
        assert len(set(members["begin"])) == 1
        assert len(set(members["sm"])) == cluster_size


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        (CtaResources(0, 1, 32), 16),  # 64 warps / 4
        (CtaResources(100 * 1024, 1, 32), 2),  # 228 KiB / 101 KiB
        (CtaResources(112 * 1024, 1, 32), 2),  # 2 x 113 KiB
        (CtaResources(114 * 1024, 1, 32), 1),
        (CtaResources(1024, 3, 168), 1),  # 65536 / (12 warps x 5376)
        (CtaResources(1024, 1, 255), 2),  # 65536 / (4 warps x 8192)
    ],
)
def test_occupancy(resources: CtaResources, expected: int):
    assert Machine(Engine(), H100).ctas_per_sm(resources) == expected


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        (CtaResources(232449, 1, 32), "232449 bytes of SMEM per CTA, h100 has 232448"),
        (CtaResources(0, 1, 256), "256 registers per thread, h100 has 255"),
        (CtaResources(0, 5, 168), "107520 registers, h100 has 65536"),
        (CtaResources(0, 17, 24), "68 warps, h100 has 64"),
    ],
)
def test_a_cta_that_does_not_fit_says_why(resources: CtaResources, message: str):
    with pytest.raises(ResourceError) as caught:
        Machine(Engine(), H100).ctas_per_sm(resources)
    assert message in str(caught.value)


@pytest.mark.parametrize(("cluster_size", "places"), [(1, 132), (2, 66), (4, 30), (8, 15), (16, 7)])
def test_resident_clusters(cluster_size: int, places: int):
    """flash-vla H100 notes, unit-launch: 66, 30 and 15 clusters of 2, 4 and 8."""
    assert Machine(Engine(), H100).cluster_places(cluster_size) == places


def test_impossible_launches_are_refused():
    machine = Machine(Engine(), H100, 8)
    with pytest.raises(ResourceError, match="grid of 5 CTAs in clusters of 2"):
        machine.launch(5, 2, SMALL, print)
    with pytest.raises(ResourceError, match="cluster of 16 CTAs"):
        machine.launch(16, 16, SMALL, print)
    with pytest.raises(ResourceError, match="num_sms is 133, expected 1 to 132"):
        Machine(Engine(), H100, 133)


def test_a_cta_exits_once():
    engine = Engine()
    machine = Machine(engine, PLAIN, 1)
    ctas = []
    machine.launch(1, 1, SMALL, ctas.append)
    engine.run()
    ctas[0].exit()
    with pytest.raises(RuntimeError, match="CTA 0 exits a second time"):
        ctas[0].exit()


def test_a_machine_without_launches_has_an_empty_table():
    assert Machine(Engine(), H100).cta_table().shape == (0,)
