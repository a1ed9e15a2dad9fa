"""Tiny kernels whose timeline follows from the device table by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
import profiler
from mgpu.devices import load_device
from profiler import Trace
from support.kernels import swizzled

H100 = load_device("h100")


def trace_of(directory: Path, body: Any, scratch: Any, **options: Any) -> Trace:
    """Runs a kernel with one f16[64, 64] input and output, recording free of cost."""
    shape = jax.ShapeDtypeStruct((64, 64), jnp.float16)
    kernel = plgpu.kernel(
        body,
        out_type=shape,
        scratch_types=scratch,
        compiler_params=plgpu.CompilerParams(profile_space=256, profile_dir=str(directory)),
        interpret=plgpu.InterpretGPUParams(record_cycles=0),
        **options,
    )
    kernel(np.zeros((64, 64), np.float16))
    trace = profiler.open(directory)[0].load_trace()
    assert profiler.check_trace(trace) == []
    return trace


def spans(trace: Trace, name: str) -> list[tuple[int, int]]:
    rows = trace.spans.filter(trace.spans["name"] == name).sort("begin")
    return [(begin, begin + dur) for begin, dur in rows.select("begin", "dur").iter_rows()]


def test_a_wait_ends_one_hop_after_the_arrival(tmp_path: Path) -> None:
    def body(x: Any, o: Any, barrier: Any) -> None:
        def second() -> None:
            pl.delay(1000)
            plgpu.barrier_arrive(barrier)

        lax.cond(lax.axis_index("wg") == 0, lambda: plgpu.barrier_wait(barrier), second)

    trace = trace_of(tmp_path, body, [plgpu.Barrier()], num_threads=2, thread_name="wg")
    (wait,) = trace.waits.iter_rows(named=True)
    (arrival,) = trace.arrivals.iter_rows(named=True)
    delay = round(1000 * H100.clock_hz / 1e9)
    assert arrival["time"] - wait["begin"] == delay + H100.mbarrier_arrive_cycles
    hop = H100.mbarrier_hop_cycles + H100.mbarrier_try_wait_cycles
    assert wait["begin"] + wait["dur"] == arrival["time"] + hop
    assert (wait["released_by"], wait["blocked"]) == ("WG1", True)


def test_a_completed_barrier_costs_one_look(tmp_path: Path) -> None:
    def body(x: Any, o: Any, barrier: Any) -> None:
        plgpu.barrier_arrive(barrier)
        plgpu.barrier_wait(barrier)

    trace = trace_of(tmp_path, body, [plgpu.Barrier()])
    (wait,) = trace.waits.iter_rows(named=True)
    assert (wait["dur"], wait["blocked"]) == (H100.mbarrier_try_wait_cycles, False)


def test_a_lone_wgmma_takes_its_latency(tmp_path: Path) -> None:
    def body(x: Any, o: Any, a: Any, b: Any) -> None:
        a[...] = x[...]
        b[...] = x[...]
        plgpu.commit_smem()

        def multiply(acc: Any) -> None:
            plgpu.wgmma(acc, a, b)
            plgpu.wgmma_wait(0)

        pl.run_scoped(multiply, plgpu.ACC((64, 64)))

    trace = trace_of(tmp_path, body, [swizzled(64, 64), swizzled(64, 64)])
    (mma,) = trace.async_spans.filter(trace.async_spans["unit"] == "tensor_core").iter_rows(named=True)
    # Four m64n64k16 instructions: three issue intervals of 32.7 cycles, then the latency of the last.
    interval = 64 / 2 + H100.wgmma_interval_overhead_cycles
    latency = H100.wgmma_latency_cycles + 64 * H100.wgmma_latency_per_column_cycles
    assert abs(mma["dur"] - (3 * interval + latency)) <= 1
    (wait,) = spans(trace, "wait wgmma")
    assert wait[1] == mma["begin"] + mma["dur"]


def test_two_warpgroups_share_the_tensor_core(tmp_path: Path) -> None:
    def body(x: Any, o: Any, a: Any, b: Any, go: Any) -> None:
        plgpu.barrier_arrive(go)
        plgpu.barrier_wait(go)

        def multiply(acc: Any) -> None:
            for _ in range(8):
                plgpu.wgmma(acc, a, b)
            plgpu.wgmma_wait(0)

        pl.run_scoped(multiply, plgpu.ACC((64, 64)))

    def duration(warpgroups: int) -> int:
        options = {"num_threads": 2, "thread_name": "wg"} if warpgroups == 2 else {}
        scratch = [swizzled(64, 64), swizzled(64, 64), plgpu.Barrier(num_arrivals=warpgroups)]
        trace = trace_of(tmp_path / str(warpgroups), body, scratch, **options)
        core = trace.async_spans.filter(trace.async_spans["unit"] == "tensor_core")
        begins, durations = core["begin"].to_numpy(), core["dur"].to_numpy()
        return int((begins + durations).max() - begins.min())

    one, two = duration(1), duration(2)
    throughput = 8 * 4 * (64 / 2 + H100.wgmma_interval_overhead_cycles)
    assert abs(two - one - throughput) < 40


def test_smem_decides_how_many_ctas_an_sm_holds(tmp_path: Path) -> None:
    def body(x: Any, o: Any, s: Any) -> None:
        pl.delay(5000)

    def waves(kib: int) -> int:
        with plgpu.device("h100", num_sms=1):
            scratch = [plgpu.SMEM((kib * 1024,), jnp.int8)]
            trace = trace_of(tmp_path / str(kib), body, scratch, grid=(8,), grid_names=("i",))
        return trace.ctas["begin"].n_unique() if kib > 100 else len(set(trace.ctas["begin"] // 5000))

    assert waves(200) == 8  # one at a time
    assert waves(50) == 2  # four at a time


def test_registers_are_handed_over(tmp_path: Path) -> None:
    def body(x: Any, o: Any) -> None:
        def give() -> None:
            pl.delay(2000)
            plgpu.set_max_registers(24, action="decrease")

        take = lambda: plgpu.set_max_registers(240, action="increase")  # noqa: E731
        lax.cond(lax.axis_index("wg") < 2, take, give)

    trace = trace_of(tmp_path, body, [], num_threads=3, thread_name="wg")
    durations = dict(trace.spans.select("track", "dur").iter_rows())
    pause = round(2000 * H100.clock_hz / 1e9)
    # 3 x 168 registers a lane: the first warpgroup that asks waits for the third one's, and so does the second.
    assert min(durations[0], durations[1]) > pause
    assert durations[2] < pause


def test_what_hbm_moved_is_logged_over_time(tmp_path: Path) -> None:
    def body(x: Any, o: Any, smem: Any, barrier: Any) -> None:
        plgpu.copy_gmem_to_smem(x, smem, barrier)
        plgpu.barrier_wait(barrier)
        plgpu.copy_smem_to_gmem(smem, o)
        plgpu.wait_smem_to_gmem(0)

    trace = trace_of(tmp_path, body, [plgpu.SMEM((64, 64), jnp.float16), plgpu.Barrier()])
    capture = profiler.open(tmp_path)[0].load_capture()
    assert capture.hbm["read_bytes"].sum() == capture.header.traffic_bytes["hbm_read"] == 8192
    assert capture.hbm["write_bytes"].sum() == capture.header.traffic_bytes["hbm_write"] == 8192
    rates = trace.counters.filter(trace.counters["unit"] == "GB/s")
    assert set(rates["counter"]) == {"HBM read", "HBM write"}
    # One stretch holds all that was read: 8192 bytes in 256 cycles.
    assert rates["value"].max() == round(8192 / 256 * H100.clock_hz / 1e9)
