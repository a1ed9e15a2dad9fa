"""Named barriers (PTX `bar`) in inlined code: who waits for how long, what they order, what goes wrong."""

import re

import jax
import jax.experimental.mosaic.gpu as mosaic
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.extend.mlir import ir
from jaxlib.mlir.dialects import llvm

import mgpu
from mgpu.capture import Capture
from mgpu.devices import load_device
from mgpu.errors import BarrierError, DeadlockError
from mgpu.passes.sites import plan_sites
from mgpu.sites import SiteKind
from support.gpu_lowering import program_of
from support.races import find_races

I32 = jnp.int32


def ptx(text, *operands):
    llvm.inline_asm(ir.Type.parse("!llvm.void"), operands, text, ",".join("r" for _ in operands), has_side_effects=True)


def bar(action, number, threads, module=mgpu):
    """Comes to a named barrier whose number may be an array."""
    if isinstance(number, int):
        module.inline_mgpu()(lambda _: ptx(f"bar.{action} {number}, {threads};"))()
        return
    layout = module.Layout.WG_SPLAT

    def inlined(_, number):
        ptx(f"bar.{action} $0, {threads};", number.registers.item())

    module.inline_mgpu(arg_types=(layout,))(inlined)(jnp.asarray(number, I32))


def exchange(*, order=True, module=mgpu, number=6):
    """Warpgroup 0 writes a row that warpgroup 1 reads; a named barrier is in between only if `order`."""

    def body(out, row):
        wg = lax.axis_index("wg")

        @pl.when(wg == 0)
        def _():
            row[...] = jnp.full((128,), 7, I32)
            if order:
                bar("arrive", number, 256, module)

        @pl.when(wg == 1)
        def _():
            if order:
                bar("sync", number + wg - wg, 256, module)
            else:
                pl.delay(2000)
            out[...] = row[...] + 1

    return body


def run(body, threads=2, module=mgpu, **options):
    return module.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((128,), I32),
        scratch_types=[module.SMEM((128,), I32)],
        num_threads=threads,
        thread_name="wg",
        **options,
    )


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_who_waits_sees_what_was_written_before_an_arrival(seed):
    interpret = mgpu.InterpretGPUParams(seed=seed)
    np.testing.assert_array_equal(run(exchange(), interpret=interpret)(), np.full(128, 8))


def test_jaxs_own_kernels_have_them_too():
    kernel = mgpu.from_pallas(run(exchange(module=plgpu), module=plgpu))
    np.testing.assert_array_equal(kernel(), np.full(128, 8))


@pytest.mark.parametrize("order", [True, False])
def test_only_what_no_barrier_orders_is_a_race(order):
    options = {"scratch": [mgpu.SMEM((128,), I32)], "num_threads": 2, "thread_name": "wg"}
    assert len(find_races(exchange(order=order), (128,), **options)) == (not order)


def test_a_store_after_the_others_have_read_needs_the_barrier_again():
    def body(out, row, *, again):
        wg = lax.axis_index("wg")

        @pl.when(wg == 0)
        def _():
            row[...] = jnp.full((128,), 1, I32)
            bar("arrive", 1, 256)
            if again:
                bar("sync", 2, 256)
            else:
                pl.delay(5000)
            row[...] = jnp.full((128,), 2, I32)

        @pl.when(wg == 1)
        def _():
            bar("sync", 1, 256)
            out[...] = row[...]
            if again:
                bar("arrive", 2, 256)

    options = {"scratch": [mgpu.SMEM((128,), I32)], "num_threads": 2, "thread_name": "wg"}
    for again in (True, False):
        races = find_races(lambda *refs, again=again: body(*refs, again=again), (128,), **options)
        assert len(races) == (not again)


def _events(kernel, folder):
    jax.block_until_ready(kernel())
    (file,) = folder.glob("*/capture.npz")
    return Capture.load(file)


def test_the_waiter_goes_on_a_fixed_time_after_the_last_arrival(tmp_path):
    def body(out, row):
        wg = lax.axis_index("wg")
        pl.when(wg == 0)(lambda: pl.delay(10_000))
        bar("sync", 3, 256)
        pl.when(wg == 0)(lambda: out.__setitem__(..., jnp.zeros(row.shape, I32)))

    params = mgpu.CompilerParams(profile_space=64, profile_dir=str(tmp_path))
    capture = _events(run(body, compiler_params=params, interpret=mgpu.InterpretGPUParams(record_cycles=0)), tmp_path)
    (site,) = (site for site in capture.header.sites if site.kind is SiteKind.SYNC)
    assert site.name == "named barrier 3"
    assert site.line
    device = load_device("h100")
    latency = device.named_barrier_cycles + 8 * device.named_barrier_cycles_per_warp
    delay = round(10_000 * device.clock_hz / 1e9)
    waits = []
    first = 0
    for track in capture.tracks:
        words = capture.words[first : first + int(track["count"])]
        first += len(words)
        clocks = words[:, 1].astype(np.int64)
        waits.append(int(clocks[1] - clocks[0]))
    assert sorted(waits) == [latency, latency + delay]


def test_own_warps_meet_at_once():
    def body(out, row):
        mgpu.inline_mgpu()(lambda _: mosaic.utils.warpgroup_barrier())()
        out[...] = jnp.zeros((128,), I32)

    assert not [s for s in plan_sites(program_of(run(body, threads=1))).sites if s.kind is SiteKind.SYNC]
    np.testing.assert_array_equal(run(body, threads=1)(), np.zeros(128))


def test_a_warp_counts_32_threads():
    def body(out, row):
        wg = lax.axis_index("wg")

        @pl.when(wg == 0)
        def _():
            @mgpu.warp_map
            def _(warp):
                pl.when(warp == 2)(lambda: bar("arrive", 1, 160))

        @pl.when(wg == 1)
        def _():
            bar("sync", 1, 160)
            out[...] = jnp.ones((128,), I32)

    np.testing.assert_array_equal(run(body)(), np.ones(128))


def test_a_deadlock_names_the_barrier_and_who_has_come():
    def body(out, row):
        pl.when(lax.axis_index("wg") == 1)(lambda: bar("sync", 5, 256))

    with pytest.raises(DeadlockError) as caught:
        jax.block_until_ready(run(body)())
    line = r"test_named_barriers\.py:\d+"
    assert re.search(rf"warpgroup 1 at {line} waits on named barrier 5 \(128 of 256 threads\)", str(caught.value))


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (("arrive", 1, 256), ("sync", 1, 384), r"named barrier 1 \(128 of 256 threads\): .* expects 384 threads"),
        (("arrive", 1, 192), ("sync", 1, 192), r"named barrier 1 \(256 of 192 threads\): more threads come"),
        (("arrive", 16, 256), ("sync", 16, 256), "named barrier 16: a CTA has barriers 0 to 15"),
    ],
)
def test_misuse_is_an_error_at_the_users_line(first, second, message):
    def body(out, row):
        wg = lax.axis_index("wg")
        pl.when(wg == 0)(lambda: bar(*first))

        @pl.when(wg == 1)
        def _():
            pl.delay(100)
            bar(*second)

    with pytest.raises(BarrierError, match=message):
        jax.block_until_ready(run(body)())


def test_a_fence_lets_a_copy_see_the_writes():
    def body(out, row, *, fence):
        row[...] = jnp.ones((128,), I32)
        if fence:
            mgpu.inline_mgpu()(lambda _: ptx("fence.proxy.async.shared::cta;"))()
        mgpu.copy_smem_to_gmem(row, out)
        mgpu.wait_smem_to_gmem(0)

    for fence in (True, False):
        races = find_races(
            lambda *refs, fence=fence: body(*refs, fence=fence), (128,), scratch=[mgpu.SMEM((128,), I32)]
        )
        assert len(races) == (not fence)
