"""The published measurements, and the simulated kernel behind each: one function for each group of measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from benchmarks.accuracy.attention import Attention, make_attention
from benchmarks.accuracy.blocked import Blocked, make_blocked_matmul
from benchmarks.accuracy.coupled_pipelines import COLUMNS, DEPTH, ROWS, WALK_TILES, make_coupled_pipeline
from benchmarks.accuracy.gluon import KINDS, make_gluon_matmul
from benchmarks.accuracy.matmuls import Matmul, make_matmul
from benchmarks.accuracy.pipelines import NUM_TILES, TILE_K, TILE_M, make_pipeline
from benchmarks.accuracy.rings import ROW_BYTES, make_ring, ring_steps
from benchmarks.accuracy.timing import BF16, F16, F32, time_kernel
from mgpu.devices import POWER_CAPPED, Device


@dataclasses.dataclass(frozen=True)
class Point:
    """One measurement and its prediction.

    Attributes:
      name: which kernel.
      measured, predicted: in the group's unit.
      is_fit: the measurement fixed a parameter, so agreement proves nothing.
    """

    name: str
    measured: float
    predicted: float
    is_fit: bool = False


@dataclasses.dataclass(frozen=True)
class Group:
    """Measurements of one source.

    Attributes:
      title, unit: for the page.
      source: where the measurements are published.
      note: how they are simulated, and which parameter was fitted on which of them.
      run: yields the points.
    """

    title: str
    unit: str
    source: str
    note: str
    run: Callable[[Device], Iterator[Point]]


# Bytes per cycle and SM with consumers that release at once, after 64 FFMAs, after wgmma: (tile_n, stages) -> values.
_R13 = {
    (128, 1): (35.677, 26.681, 22.552),
    (128, 2): (56.435, 49.526, 28.743),
    (128, 4): (83.077, 65.847, 58.046),
    (256, 1): (43.719, 35.280, 22.849),
    (256, 2): (64.836, 58.816, 35.433),
    (256, 4): (85.031, 83.385, 45.337),
}


def _pipelines(device: Device) -> Iterator[Point]:
    for (tile_n, stages), measured in _R13.items():
        for consumer, value in zip(("direct", "ffma", "wgmma"), measured, strict=True):
            shapes = [((NUM_TILES * TILE_M, TILE_K), BF16), ((NUM_TILES * TILE_K, tile_n), BF16)]
            timing = time_kernel(make_pipeline(tile_n, stages, consumer), shapes, device)
            stage_bytes = 2 * TILE_K * (TILE_M + tile_n)
            # The queueing share of L2 was fitted on the consumers that release at once.
            name = f"{stage_bytes // 1024} KiB, {stages} stage{'s' if stages > 1 else ''}, {consumer}"
            yield Point(name, value, NUM_TILES * stage_bytes / timing.cta_cycles, is_fit=consumer == "direct")


# Coupled pipeline relative to the slower of its sides: stages -> one tile in L2, a walk through HBM.
_COUPLED = {2: (2.39, 2.21), 3: (1.34, 1.57), 4: (1.34, 1.32), 6: (1.33, 1.27)}


def _coupled(device: Device) -> Iterator[Point]:
    device = device.override(clock_hz=POWER_CAPPED)
    for number, source in enumerate(("L2", "cold")):
        walks = source == "cold"
        tiles = WALK_TILES if walks else 1
        shapes = [((tiles * ROWS, DEPTH), BF16), ((tiles * DEPTH, COLUMNS), BF16)]

        def cycles(stages: int, sides: str, walks: bool = walks, shapes: Any = shapes) -> float:
            kernel = make_coupled_pipeline(stages, sides, walks=walks)
            return time_kernel(kernel, shapes, device, warm_l2=not walks).cta_cycles

        for stages, measured in _COUPLED.items():
            ratio = cycles(stages, "both") / max(cycles(stages, "producer"), cycles(stages, "consumer"))
            yield Point(f"{stages} stages, {source}", measured[number], ratio, is_fit=stages == 6 and not walks)


_PERSISTENT: Mapping[str, Any] = {"stages": 3, "consumers": 2, "num_ctas": 128, "group_m": 16, "group_n": 8}
_CLUSTERS: Mapping[str, Any] = _PERSISTENT | {"cluster": 2, "group_m": 8}
_FAST_CU = {
    "K2 64x64, one warpgroup": (317, Matmul(64, 64, lane_arrivals=True)),
    # The author's 1415 + 703 cycles for a step and 325 us for all of them make two CTAs on an SM.
    "K3 128x128, one warpgroup": (423, Matmul(128, 128, lane_arrivals=True, resident_ctas=2)),
    "K4 producer and consumer": (498, Matmul(128, 128, stages=5, consumers=1, lane_arrivals=True)),
    "K5 128x256, two consumers": (631, Matmul(128, 256, stages=3, consumers=2, lane_arrivals=True)),
    "K6 persistent, 16x8 groups": (660, Matmul(128, 256, lane_arrivals=True, **_PERSISTENT)),
    "K7 one arrival a warpgroup": (704, Matmul(128, 256, **_PERSISTENT)),
    "K8 clusters of 2, multicast": (734, Matmul(128, 256, **_CLUSTERS)),
    "K10 TMA store": (758, Matmul(128, 256, tma_store=True, **_CLUSTERS)),
    "K11 Hilbert order": (764, Matmul(128, 256, tma_store=True, hilbert=True, **_CLUSTERS)),
}


def _time_matmul(
    kernel: Any, size: tuple[int, int, int], dtype: Any, device: Device, *, warm_l2: bool = True
) -> tuple[float, Device]:
    """Returns Tflop/s, and the device with the clock that it settled at: a good guess for the next kernel."""
    m, n, k = size
    timing = time_kernel(kernel, [((m, k), dtype), ((k, n), dtype)], device, warm_l2=warm_l2)
    return 2.0 * m * n * k / timing.seconds / 1e12, dataclasses.replace(device, clock_hz=timing.clock_hz)


_LADDER_SIZE = (4096, 4096, 4096)


def _fast_cu(device: Device) -> Iterator[Point]:
    device = device.override(clock_hz=POWER_CAPPED)
    for name, (measured, shape) in _FAST_CU.items():
        rate, device = _time_matmul(make_matmul(shape, *_LADDER_SIZE), _LADDER_SIZE, BF16, device)
        yield Point(name, measured, rate)


_FAST_CU_SIZES = {("K8", 6144): 774.4, ("K8", 8192): 799.1, ("K11", 8192): 807.7, ("K8", 12288): 784.0}


def _fast_cu_sizes(device: Device) -> Iterator[Point]:
    device = device.override(clock_hz=POWER_CAPPED)
    shapes = {name.partition(" ")[0]: shape for name, (_, shape) in _FAST_CU.items()}
    for (kernel, size), measured in _FAST_CU_SIZES.items():
        rate, device = _time_matmul(make_matmul(shapes[kernel], size, size, size), (size, size, size), BF16, device)
        yield Point(f"{kernel}, {size}", measured, rate)


# Handoff, V06, cfg_c: 137 cycles from the end of the main loop to the store, 729 from its end to the next first wgmma.
_CUTLASS = Matmul(
    128, 256, stages=4, consumers=2, release_early=True, num_ctas=132, cluster=2, joint_store=True, handoff_cycles=866
)
# Size -> thousands of cycles and GHz. First V03, calls of at least 87 us, as time times clock; then V02.
_CUTLASS_CYCLES = {
    (1536, 2816, 8192): (87 * 1.637, 1.637),
    (1536, 2816, 32768): (344 * 1.554, 1.554),
    (6144, 2816, 4096): (184 * 1.586, 1.586),
    (12288, 2816, 8192): (718 * 1.533, 1.533),
    (24576, 2816, 512): (145 * 1.648, 1.648),
    (49152, 2816, 1024): (446 * 1.622, 1.622),
    (4096, 4096, 2048): (98 * 1.640, 1.640),
    (8192, 8192, 1024): (224 * 1.603, 1.603),
    (8192, 8192, 4096): (774 * 1.476, 1.476),
    (12288, 12288, 2048): (959 * 1.443, 1.443),
    (1792, 2560, 4096): (88 * 1.699, 1.699),
    (2560, 2816, 8192): (172 * 1.621, 1.621),
    (1536, 2560, 4096): (75.345 / (1 - 0.029), 1.698),
    (2304, 2048, 3072): (113.749 / (1 - 0.015), 1.733),
    (4096, 4096, 512): (59.480 / (1 - 0.063), 1.729),
    (4096, 8192, 1024): (180.326 / (1 - 0.014), 1.560),
    (6144, 6144, 6144): (939.650 / (1 - 0.002), 1.344),
}
_GH200_MEMORY: Mapping[str, Any] = {"l2_bytes": 60 * 2**20, "hbm_bandwidth": 3_800_000_000_000}


def _cutlass(device: Device) -> Iterator[Point]:
    for (m, n, k), (kilocycles, ghz) in _CUTLASS_CYCLES.items():
        kernel = make_matmul(_CUTLASS, m, n, k, F16, F32)
        timing = time_kernel(
            kernel, [((m, k), F16), ((k, n), F16)], device.override(clock_hz=ghz * 1e9, **_GH200_MEMORY)
        )
        tiles = m // _CUTLASS.tile_m * (n // _CUTLASS.tile_n)
        turns = -(-tiles // 132)
        steps = turns * (k // _CUTLASS.tile_k)
        name = f"{m} x {n} x {k}, {turns} tile{'s' if turns > 1 else ''}"
        yield Point(name, round(1000 * kilocycles / steps, 1), timing.resident_cycles / steps)


_GLUON = {
    512: (492, 485, 540),
    1024: (554, 575, 603),
    2048: (574, 595, 626),
    4096: (609, 630, 640),
    8192: (629, 646, 662),
    16384: (654, 660, 670),
}
_GLUON_FULL_LOAD_HZ = 1_460_000_000
_GLUON_FITS = (
    (512, "non-persistent"),
    (1024, "non-persistent"),
    (512, "pipelined"),
    (1024, "pipelined"),
    (4096, "pipelined"),
)


def _gluon(device: Device) -> Iterator[Point]:
    device = device.override(clock_hz=POWER_CAPPED, full_load_clock_hz=_GLUON_FULL_LOAD_HZ)
    for k, measured in _GLUON.items():
        size = 8192, 8192, k
        for kind, value in zip(KINDS, measured, strict=True):
            rate, device = _time_matmul(make_gluon_matmul(kind, *size), size, F16, device)
            yield Point(f"K = {k}, {kind}", value, rate, is_fit=(k, kind) in _GLUON_FITS)


# Tile, warpgroups, buffers, CTAs on an SM -> Tflop/s. One buffer: 05-wgmma.py; several: 07-persistence.py.
_TILES = {
    Blocked(128, 256, 256, 2, 1, 1): 412.14,
    Blocked(256, 128, 256, 2, 1, 1): 387.74,
    Blocked(64, 256, 128, 1, 1, 2): 474.03,
    Blocked(64, 128, 256, 1, 1, 2): 355.60,
    Blocked(128, 128, 128, 1, 1, 2): 441.88,
    Blocked(128, 128, 128, 2, 1, 2): 380.08,
    Blocked(128, 256, 128, 2, 2, 1): 489.26,
    Blocked(128, 256, 64, 2, 3, 1): 673.67,
    Blocked(128, 256, 64, 2, 4, 1): 669.16,
}


def _tiles(device: Device) -> Iterator[Point]:
    size = 8192, 8192, 16384
    device = device.override(clock_hz=POWER_CAPPED, full_load_clock_hz=_GLUON_FULL_LOAD_HZ)
    for shape, measured in _TILES.items():
        rate, device = _time_matmul(make_blocked_matmul(shape, *size), size, F16, device, warm_l2=False)
        tile = f"{shape.tile_m} x {shape.tile_n} x {shape.tile_k}"
        buffers = "1 buffer" if shape.buffers == 1 else f"{shape.buffers} buffers"
        yield Point(f"{tile}, {4 * shape.warpgroups} warps, {buffers}", measured, rate)


_ATTENTION = {
    "full": (661, Attention()),
    "no overlap of softmax and matmul": (582, Attention(overlap=False)),
    "no warp specialisation": (570, Attention(ping_pong=False, specialised=False)),
    # Section 3.1: turns on the tensor core take it from 570 to 620 to 640 Tflop/s, without overlap.
    "neither overlap nor ping-pong": (round(582 * 570 / 630), Attention(overlap=False, ping_pong=False)),
}
_ATTENTION_FULL_LOAD_HZ = 1_350_000_000
_HEADS = 8  # of 64: they fill the chip exactly four times, so all of them take eight times as long


def _attention(device: Device) -> Iterator[Point]:
    length = 8448
    flops = 4.0 * length * length * 128 * _HEADS
    device = device.override(clock_hz=POWER_CAPPED, full_load_clock_hz=_ATTENTION_FULL_LOAD_HZ)
    for name, (measured, shape) in _ATTENTION.items():
        kernel = make_attention(shape, _HEADS, length)
        timing = time_kernel(kernel, [((_HEADS * length, 128), F16)] * 3, device)
        device = dataclasses.replace(device, clock_hz=timing.clock_hz)
        yield Point(name, measured, flops / timing.seconds / 1e12, is_fit=name == "full")


_ATTENTION_SIZES = {
    128: (Attention(), {512: 467, 1024: 565, 2048: 625, 4096: 638, 8192: 646, 16384: 648}),
    64: (Attention(head_dim=64, consumers=3, block=128), {512: 333, 2048: 460, 16384: 497}),
    256: (Attention(head_dim=256, block=80), {512: 482, 2048: 707, 16384: 756}),
}
_ATTENTION_ELSEWHERE = {
    128: (Attention(), {512: 430.32, 1024: 517.1, 2048: 565.54, 4096: 590.23, 8192: 614.23, 16384: 620.73}),
}
_TOKENS, _HIDDEN = 16384, 2048  # sequences times length, heads times head dimension
_Lengths = Mapping[int, tuple[Attention, Mapping[int, float]]]


def _attention_by_length(sizes: _Lengths, device: Device) -> Iterator[Point]:
    device = device.override(clock_hz=POWER_CAPPED, full_load_clock_hz=_ATTENTION_FULL_LOAD_HZ)
    for head_dim, (shape, lengths) in sizes.items():
        for length, measured in lengths.items():
            heads = _HIDDEN // head_dim * _TOKENS // length
            operands = [((heads * length, head_dim), F16)] * 3
            timing = time_kernel(make_attention(shape, heads, length), operands, device)
            device = dataclasses.replace(device, clock_hz=timing.clock_hz)
            flops = 4.0 * length * length * head_dim * heads
            yield Point(f"head dimension {head_dim}, length {length}", measured, flops / timing.seconds / 1e12)


# CTAs, warps in each, KiB of a box -> GB/s.
_RINGS = {
    **{(132, 1, box): rate for box, rate in ((1, 507), (2, 1000), (4, 1906), (6, 2419), (8, 2676), (16, 2801))},
    **{(ctas, 1, 32): rate for ctas, rate in ((8, 969), (16, 1791), (24, 2306), (32, 2622), (64, 2808), (132, 2943))},
    **{(ctas, 2, 28): rate for ctas, rate in ((4, 830), (8, 1602), (16, 2531), (32, 2875), (64, 2962), (132, 3102))},
}


_RING_FITS = ((132, 1, 1), (16, 1, 32), (24, 1, 32), (32, 1, 32))


def _rings(device: Device) -> Iterator[Point]:
    device = device.override(clock_hz=POWER_CAPPED)
    for ring, measured in _RINGS.items():
        ctas, warps, box = ring
        nbytes = ctas * warps * ring_steps(ctas, warps, box * 1024) * box * 1024
        operand = ((nbytes // ROW_BYTES, ROW_BYTES // 2), BF16)
        timing = time_kernel(make_ring(ctas, warps, box * 1024), [operand], device, warm_l2=False)
        name = f"{ctas} CTAs, {warps} x {box} KiB"
        yield Point(name, measured, nbytes / timing.seconds / 1e9, is_fit=ring in _RING_FITS)


GROUPS = {
    "pipelines": Group(
        "Pipelines by stages and consumer",
        "bytes per cycle and SM",
        "github hibouwu/CUDA_optimazation, gh200_sm90/access_rules/R13-async-retirement.md (GH200)",
        "132 CTAs, 32 k tiles from L2. Fitted: `l2_queueing_fraction`, on the six points with direct release.",
        _pipelines,
    ),
    "coupled": Group(
        "Pipelines of one consumer, relative to their slower side",
        "time, relative to the slower side",
        "github revollllt/flash-vla, hardware-unit-test, unit-mma (H100 SXM)",
        "132 CTAs, 24 KiB a stage. Fitted: the time that the probe's producer spends on its other instructions, alone "
        "and in the pair, with six stages.",
        _coupled,
    ),
    "fast_cu": Group(
        "Matmul ladder, 4096 x 4096 x 4096 bf16",
        "Tflop/s",
        "github pranjalssh/fast.cu (H100 SXM)",
        "At the power-capped clock of the device table. Fitted: `l2_partial_sector_bytes`, on the store times that the "
        "repository gives for K3 and K5. K9 (747 Tflop/s) is K8 with each lane's stores in another order, the second "
        "half of a sector first; in the language the order of a lane's stores is the compiler's.",
        _fast_cu,
    ),
    "gluon": Group(
        "Depth of a matmul, 8192 x 8192 x K f16",
        "Tflop/s",
        "github triton-lang/triton, python/tutorials/gluon/07-persistence.py (Hopper; exact model and clock not given)",
        "The tutorial's three kernels, wait by wait, at the power-capped clock. Fitted: the clock at full load, "
        "1.46 GHz, on K = 4096, pipelined; `relaunch_gap_ns`, on K = 512 and 1024, non-persistent. That a load waits "
        "for the stores before it has no parameter, but was found on K = 512 and 1024, pipelined.",
        _gluon,
    ),
    "attention": Group(
        "FlashAttention-3 and its ablations, head dimension 128, length 8448, f16",
        "Tflop/s",
        "arXiv 2407.08608, table 2 (H100 SXM)",
        "8 of the 64 heads. At the power-capped clock. Fitted: the clock at full load, 1.35 GHz, on the full kernel. "
        "What ping-pong gains is from section 3.1, 570 Tflop/s to between 620 and 640: here 527 to 582.",
        _attention,
    ),
    "fast_cu_sizes": Group(
        "Never fitted: the ladder's kernels at other sizes, bf16",
        "Tflop/s",
        "github pranjalssh/fast.cu, README.md and logs.txt (H100 SXM; K8 is called kernel 7 there)",
        "At the power-capped clock of the device table.",
        _fast_cu_sizes,
    ),
    "cutlass": Group(
        "Never fitted: persistent CUTLASS matmul, 128 x 256 x 64, f16 to f32",
        "cycles per step of k",
        "github hibouwu/CUDA_optimazation, gh200_sm90/access_rules, V02 and V03 (GH200)",
        "CUTLASS 3.9.2: clusters of two, four stages, two consumers, stores by way of two strips of 32 columns. Cycles "
        "from the first CTA's entry to the last one's exit, by the steps of a CTA with the most tiles, at the clock "
        "that was measured in the same call, with the L2 and the HBM of a GH200. Only sizes without padding whose "
        "tiles go along rows. What its code does between two tiles is from V06, 866 cycles; without that K = 512 and "
        "1024 are 14 and 8 % too fast.",
        _cutlass,
    ),
    "tiles": Group(
        "Never fitted: tiles and buffers of a matmul, 8192 x 8192 x 16384 f16",
        "Tflop/s",
        "github triton-lang/triton, python/tutorials/gluon/05-wgmma.py (one buffer) and 07-persistence.py (Hopper; "
        "exact model and clock not given)",
        "A CTA for each tile, at the clock of the depth group. Left out are the kernels with two buffers in "
        "05-wgmma.py: one of them is also in 07-persistence.py, where it is 15 % faster (128 x 256 x 128: 426 and 489 "
        "Tflop/s), so they depend on what the compiler made of them.",
        _tiles,
    ),
    "attention_sizes": Group(
        "Never fitted: FlashAttention-3 by head dimension and length, f16",
        "Tflop/s",
        "arXiv 2407.08608, figure 5 (H100 SXM; forward, without a mask)",
        "16384 tokens, 2048 values each. At the clock that the full kernel of the group before fixes. Without the "
        "original's clusters of two CTAs, which share loads that nobody waits for.",
        partial(_attention_by_length, _ATTENTION_SIZES),
    ),
    "attention_elsewhere": Group(
        "Never fitted: FlashAttention-3 on another H100, head dimension 128, f16",
        "Tflop/s",
        "github pytorch/benchmark, pull request 2391 (H100; forward, without a mask)",
        "The same kernels and the same clock as in the group before, measured by others on a machine of theirs.",
        partial(_attention_by_length, _ATTENTION_ELSEWHERE),
    ),
    "rings": Group(
        "Rings of loads from HBM by SMs and boxes",
        "GB/s",
        "github revollllt/flash-vla, hardware/nvidia/h100/measured/unit-tma.md (H100 SXM)",
        "Four boxes in flight for each warp. Fitted: the time of the probe's own loop, on its boxes of 1 KiB; "
        "`hbm_queueing_fraction` and `hbm_passing_fraction`, on 16, 24 and 32 CTAs with boxes of 32 KiB. Its rates "
        "from L2 are left out: which SMs read the same lines there is not published.",
        _rings,
    ),
}
