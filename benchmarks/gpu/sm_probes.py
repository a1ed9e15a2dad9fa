"""Probes of one SM: recording, barriers, TMA, tensor core."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from benchmarks.gpu.probe import Probe, cycles_per_step
from mgpu.devices import Device

BOX = (8, 32)  # float32: one KiB, 8 rows of 128 bytes
TILE = (128, 32)  # float32: 16 KiB, 128 rows of 128 bytes
SLOTS = 8
COLUMNS, DEPTH = 128, 64  # of a wgmma: four instructions of m64n128k16
INSTRUCTIONS = DEPTH // 16


def _kernel(body: Callable[..., None], scratch: dict[str, Any], shape: tuple[int, ...] = TILE, **options: Any) -> Any:
    return plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct(shape, jnp.float32), scratch_types=scratch, name="probe", **options
    ), [np.zeros(shape, np.float32)]


def _repeat(count: int, step: Callable[[], None]) -> None:
    lax.fori_loop(0, count, lambda _, carry: step(), None)


def arrivals(count: int, _sms: int, **options: Any) -> Any:
    """Arrivals that nobody waits for, each in a scope: three events."""

    def body(_x: Any, _out: Any, barrier: Any) -> None:
        def step() -> None:
            with jax.named_scope("event"):
                plgpu.barrier_arrive(barrier)

        _repeat(count, step)

    return _kernel(body, {"barrier": plgpu.Barrier()}, **options)


def ping_pong(count: int, _sms: int, **options: Any) -> Any:
    """Two warpgroups that wake each other."""

    def body(_x: Any, _out: Any, ping: Any, pong: Any) -> None:
        def serve() -> None:
            plgpu.barrier_arrive(ping)
            plgpu.barrier_wait(pong)

        def answer() -> None:
            plgpu.barrier_wait(ping)
            plgpu.barrier_arrive(pong)

        first = lax.axis_index("wg") == 0
        pl.when(first)(lambda: _repeat(count, serve))
        pl.when(jnp.logical_not(first))(lambda: _repeat(count, answer))

    scratch = {"ping": plgpu.Barrier(), "pong": plgpu.Barrier()}
    return _kernel(body, scratch, num_threads=2, thread_name="wg", **options)


def fence(count: int, _sms: int, **options: Any) -> Any:
    """A proxy fence and a barrier of the warpgroup: what `commit_smem` is."""
    return _kernel(lambda _x, _out: _repeat(count, plgpu.commit_smem), {}, **options)


def load_round(count: int, _sms: int, **options: Any) -> Any:
    """One small box at a time, out of L2."""

    def body(x: Any, _out: Any, box: Any, full: Any) -> None:
        def step() -> None:
            plgpu.copy_gmem_to_smem(x, box, full)
            plgpu.barrier_wait(full)

        _repeat(count, step)

    return _kernel(body, {"box": plgpu.SMEM(BOX, jnp.float32), "full": plgpu.Barrier()}, BOX, **options)


def load_stream(count: int, _sms: int, **options: Any) -> Any:
    """Tiles out of L2, always `SLOTS` of them in flight."""

    def body(x: Any, _out: Any, tiles: Any, full: Any) -> None:
        stream_tiles(count, lambda _: x, tiles, full)

    return _kernel(body, stream_scratch(), **options)


def stream_scratch() -> dict[str, Any]:
    """Returns the slots that `stream_tiles` fills."""
    return {"tiles": plgpu.SMEM((SLOTS, *TILE), jnp.float32), "full": plgpu.Barrier(num_barriers=SLOTS)}


def stream_tiles(count: int, tile: Callable[[Any], Any], tiles: Any, full: Any) -> None:
    """Loads `tile(k)` for k below `count` through a ring of slots that nobody reads."""
    for slot in range(SLOTS):
        plgpu.copy_gmem_to_smem(tile(slot), tiles.at[slot], full.at[slot])

    def step(k: Any, _: None) -> None:
        slot = lax.rem(k, SLOTS)
        plgpu.barrier_wait(full.at[slot])
        plgpu.copy_gmem_to_smem(tile(k), tiles.at[slot], full.at[slot])

    lax.fori_loop(SLOTS, count, step, None)
    for slot in range(SLOTS):
        plgpu.barrier_wait(full.at[(count + slot) % SLOTS])


def store_round(count: int, _sms: int, **options: Any) -> Any:
    """One tile at a time to GMEM, waiting until it is written."""

    def body(_x: Any, out: Any, tile: Any) -> None:
        def step() -> None:
            plgpu.copy_smem_to_gmem(tile, out)
            plgpu.wait_smem_to_gmem(0)

        _repeat(count, step)

    return _kernel(body, {"tile": plgpu.SMEM(TILE, jnp.float32)}, **options)


def multiply(in_flight: int) -> Callable[..., Any]:
    """Returns what makes a kernel of wgmmas into one accumulator, of which `in_flight` may be unfinished."""

    def make(count: int, _sms: int, **options: Any) -> Any:
        def body(_x: Any, _out: Any, a: Any, b: Any) -> None:
            multiply_repeatedly(count, in_flight, a, b)

        return _kernel(body, multiply_scratch(), **options)

    return make


def multiply_scratch() -> dict[str, Any]:
    """Returns the operands of `multiply_repeatedly`."""
    transforms = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
    return {
        "a": plgpu.SMEM((64, DEPTH), jnp.bfloat16, transforms=transforms),
        "b": plgpu.SMEM((DEPTH, COLUMNS), jnp.bfloat16, transforms=transforms),
    }


def multiply_repeatedly(count: int, in_flight: int, a: Any, b: Any) -> None:
    """Multiplies the same operands `count` times."""

    def accumulate(acc: Any) -> None:
        def step() -> None:
            plgpu.wgmma(acc, a, b)
            plgpu.wgmma_wait(in_flight)

        _repeat(count, step)
        plgpu.wgmma_wait(0)

    pl.run_scoped(accumulate, plgpu.ACC((64, COLUMNS)))


def _interval(device: Device) -> float:
    return 2 * 64 * COLUMNS * 16 / device.wgmma_flops_per_cycle + device.wgmma_interval_overhead_cycles


def _load_round(device: Device) -> float:
    issue_and_wait = device.tma_issue_cycles + device.mbarrier_try_wait_cycles + device.mbarrier_hop_cycles
    return issue_and_wait + device.tma_latency_l2_cycles + BOX[0] / device.tma_rows_per_cycle


def _store_round(device: Device) -> float:
    drain = 4 * TILE[0] * TILE[1] / device.tma_store_bytes_per_cycle
    return device.tma_issue_cycles + drain + device.tma_store_latency_cycles


def _wgmma_round(device: Device) -> float:
    latency = device.wgmma_latency_cycles + COLUMNS * device.wgmma_latency_per_column_cycles
    return device.wgmma_issue_cycles + (INSTRUCTIONS - 1) * _interval(device) + latency


PROBES = [
    Probe(
        "mbarrier: arrival to the waiter's next instruction",
        "cycles",
        ping_pong,
        cycles_per_step(2),
        lambda d: d.mbarrier_arrive_cycles + d.mbarrier_try_wait_cycles + d.mbarrier_hop_cycles,
        ("mbarrier_hop_cycles", "mbarrier_arrive_cycles", "mbarrier_try_wait_cycles"),
    ),
    Probe(
        "proxy fence and barrier of 4 warps",
        "cycles",
        fence,
        cycles_per_step(),
        lambda d: d.fence_proxy_async_cycles + d.named_barrier_cycles + 4 * d.named_barrier_cycles_per_warp,
        ("named_barrier_cycles", "named_barrier_cycles_per_warp", "fence_proxy_async_cycles"),
        tolerance=0.1,  # the loop itself takes 3 cycles
    ),
    Probe(
        "TMA load of 1 KiB from L2, to the waiter",
        "cycles",
        load_round,
        cycles_per_step(),
        _load_round,
        ("tma_latency_l2_cycles", "tma_issue_cycles", "mbarrier_hop_cycles", "mbarrier_try_wait_cycles"),
    ),
    Probe(
        "TMA load of 16 KiB tiles from L2, one SM, per tile",
        "cycles",
        load_stream,
        cycles_per_step(),
        lambda device: 4 * TILE[0] * TILE[1] / device.tma_bytes_per_cycle,
        ("tma_bytes_per_cycle", "tma_rows_per_cycle"),
        simulated_counts=(40, 100),
        tolerance=0.001,
    ),
    Probe(
        "TMA store of 16 KiB, to its completion",
        "cycles",
        store_round,
        cycles_per_step(),
        _store_round,
        ("tma_store_bytes_per_cycle", "tma_store_latency_cycles"),
    ),
    Probe(
        "wgmma m64n128k16 interval",
        "cycles",
        multiply(1),
        cycles_per_step(INSTRUCTIONS),
        _interval,
        ("wgmma_flops_per_cycle", "wgmma_interval_overhead_cycles"),
        tolerance=0.001,
    ),
    Probe(
        "wgmma m64n128k64, issue to the wait's return",
        "cycles",
        multiply(0),
        cycles_per_step(),
        _wgmma_round,
        ("wgmma_latency_cycles", "wgmma_latency_per_column_cycles", "wgmma_issue_cycles"),
    ),
]
