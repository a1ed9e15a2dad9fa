"""The published measurements, and the simulated kernel behind each: one function for each group of measurements."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from benchmarks.accuracy.attention import BLOCK, HEAD_DIM, Attention, make_attention
from benchmarks.accuracy.matmuls import Matmul, make_matmul
from benchmarks.accuracy.pipelines import NUM_TILES, TILE_K, TILE_M, make_pipeline
from benchmarks.accuracy.timing import BF16, F16, time_kernel, time_under_power_limit
from mgpu.devices import Device


@dataclasses.dataclass(frozen=True)
class Point:
    """One measurement and its prediction.

    Attributes:
      name: which kernel.
      measured, predicted: in the group's unit; larger is faster.
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


_PERSISTENT: Mapping[str, Any] = {"num_ctas": 128, "group_m": 16, "group_n": 8}
_FAST_CU = {
    "K2 64x64, one warpgroup": (317, Matmul(64, 64, lane_arrivals=True)),
    "K3 128x128, one warpgroup": (423, Matmul(128, 128, lane_arrivals=True)),
    "K4 producer and consumer": (498, Matmul(128, 128, stages=5, consumers=1, lane_arrivals=True)),
    "K5 128x256, two consumers": (631, Matmul(128, 256, stages=3, consumers=2, lane_arrivals=True)),
    "K6 persistent, 16x8 groups": (660, Matmul(128, 256, stages=3, consumers=2, lane_arrivals=True, **_PERSISTENT)),
    "K7 one arrival a warpgroup": (704, Matmul(128, 256, stages=3, consumers=2, **_PERSISTENT)),
    "K10 TMA store": (758, Matmul(128, 256, stages=3, consumers=2, tma_store=True, **_PERSISTENT)),
}
_FAST_CU_CLOCK_HZ = 1.45e9


def _matmul_point(
    name: str, measured: float, shape: Matmul, size: tuple[int, int, int], dtype: Any, device: Device, clock_hz: float
) -> Point:
    m, n, k = size
    flops = 2.0 * m * n * k
    operands = [((m, k), dtype), ((k, n), dtype)]
    timing = time_under_power_limit(make_matmul(shape, m, n, k, dtype), operands, device, flops, clock_hz)
    return Point(name, measured, flops / timing.seconds / 1e12)


def _fast_cu(device: Device) -> Iterator[Point]:
    for name, (measured, shape) in _FAST_CU.items():
        point = _matmul_point(name, measured, shape, (4096, 4096, 4096), BF16, device, _FAST_CU_CLOCK_HZ)
        yield dataclasses.replace(point, is_fit=name.startswith("K10"))


_GLUON = {512: (492, 485), 1024: (554, 575), 2048: (574, 595), 4096: (609, 630)}
_GLUON_CLOCK_HZ = 1.17e9


def _gluon(device: Device) -> Iterator[Point]:
    plain = Matmul(128, 256, stages=3, consumers=2, release_early=True, tma_store=True, specialised=False)
    persistent = dataclasses.replace(plain, num_ctas=132, group_m=8, group_n=8)
    for k, measured in _GLUON.items():
        for kind, value, shape in zip(("non-persistent", "persistent"), measured, (plain, persistent), strict=True):
            size = (8192, 8192, k)
            point = _matmul_point(f"K = {k}, {kind}", value, shape, size, F16, device, _GLUON_CLOCK_HZ)
            yield dataclasses.replace(point, is_fit=k == 4096 and kind == "non-persistent")


_ATTENTION = {
    "full": (661, Attention()),
    "no overlap of softmax and matmul": (582, Attention(overlap=False)),
    "no warp specialisation": (570, Attention(ping_pong=False, specialised=False)),
}
_ATTENTION_CLOCK_HZ = 1.24e9
_HEADS = 8  # of 64: they fill the chip exactly four times, so all of them take eight times as long


def _attention(device: Device) -> Iterator[Point]:
    length = 48 * BLOCK
    flops = 4.0 * length * length * HEAD_DIM * _HEADS
    for name, (measured, shape) in _ATTENTION.items():
        kernel = make_attention(shape, _HEADS, length)
        operands = [((_HEADS * length, HEAD_DIM), F16)] * 3
        timing = time_under_power_limit(kernel, operands, device, flops, _ATTENTION_CLOCK_HZ)
        yield Point(name, measured, flops / timing.seconds / 1e12, is_fit=name == "full")


GROUPS = {
    "pipelines": Group(
        "Pipelines by stages and consumer",
        "bytes per cycle and SM",
        "github hibouwu/CUDA_optimazation, gh200_sm90/access_rules/R13-async-retirement.md (GH200)",
        "132 CTAs, 32 k tiles from L2. Fitted: `l2_queueing_fraction`, on the six points with direct release.",
        _pipelines,
    ),
    "fast_cu": Group(
        "Matmul ladder, 4096 x 4096 x 4096 bf16",
        "Tflop/s",
        "github pranjalssh/fast.cu (H100 SXM)",
        "Fitted: the clock at full load, 1.45 GHz, on K10; `l2_partial_sector_bytes`, on the store times that the "
        "repository gives for K3 and K5. K8 and K9 (multicast) and K11 (Hilbert order) are not among the kernels here.",
        _fast_cu,
    ),
    "gluon": Group(
        "Depth of a matmul, 8192 x 8192 x K f16",
        "Tflop/s",
        "github triton-lang/triton, python/tutorials/gluon/07-persistence.py (Hopper; exact model and clock not given)",
        "Fitted: the clock at full load, 1.17 GHz, on K = 4096, non-persistent.",
        _gluon,
    ),
    "attention": Group(
        "FlashAttention-3 and its ablations, head dimension 128, length 8448, f16",
        "Tflop/s",
        "arXiv 2407.08608, table 2 (H100 SXM)",
        "8 of the 64 heads. Fitted: the clock at full load, 1.24 GHz, on the full kernel; so it also stands for what "
        "the model leaves out of the softmax.",
        _attention,
    ),
}
