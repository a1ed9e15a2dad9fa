"""Misused operations: each error names the user's line, what was got and what would be right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from mgpu.errors import (
    BarrierError,
    CaptureError,
    DeadlockError,
    KernelTypeError,
    OutOfBoundsError,
    ParamsError,
    ResourceError,
)
from support.kernels import swizzled

HERE = r"test_errors.py:\d+ "


def run(body: Callable[..., None], *scratch: Any, **options: Any) -> Any:
    """Runs a kernel with one f16[128, 64] input and output."""
    shape = jax.ShapeDtypeStruct((128, 64), jnp.float16)
    kernel = plgpu.kernel(body, out_type=shape, scratch_types=list(scratch), **options)
    return kernel(np.zeros((128, 64), np.float16))


def smem(*shape: int, dtype: Any = jnp.float16) -> Any:
    return plgpu.SMEM(shape, dtype)


def test_load_of_another_shape() -> None:
    def body(x: Any, o: Any, s: Any, b: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[pl.ds(0, 32)], s, b)

    with pytest.raises(
        KernelTypeError, match=HERE + r"copy_gmem_to_smem: dst is float16\[64, 64\] in SMEM but src is f"
    ):
        run(body, smem(64, 64), plgpu.Barrier())


def test_load_of_another_dtype() -> None:
    def body(x: Any, o: Any, s: Any, b: Any) -> None:
        plgpu.copy_gmem_to_smem(x, s, b)

    with pytest.raises(KernelTypeError, match=HERE + r"copy_gmem_to_smem: dst is float32.* but src is float16"):
        run(body, smem(128, 64, dtype=jnp.float32), plgpu.Barrier())


def test_load_into_the_wrong_space() -> None:
    def body(x: Any, o: Any, s: Any, b: Any) -> None:
        plgpu.copy_gmem_to_smem(s, o, b)

    with pytest.raises(
        KernelTypeError, match=HERE + r"copy_gmem_to_smem: src must be in GMEM, got float16\[128, 64\] in S"
    ):
        run(body, smem(128, 64), plgpu.Barrier())


def test_load_with_something_else_as_barrier() -> None:
    def body(x: Any, o: Any, s: Any, b: Any) -> None:
        plgpu.copy_gmem_to_smem(x, s, s)

    with pytest.raises(KernelTypeError, match=HERE + r"copy_gmem_to_smem: barrier must be a Barrier.*Allocate"):
        run(body, smem(128, 64), plgpu.Barrier())


def test_whole_array_of_barriers() -> None:
    def body(x: Any, o: Any, b: Any) -> None:
        plgpu.barrier_wait(b)

    with pytest.raises(KernelTypeError, match=HERE + r"barrier_wait: barrier is an array of \[3\].*\.at\[slot\]"):
        run(body, plgpu.Barrier(num_barriers=3))


@pytest.mark.parametrize("arrivals", [0, -1, 1.5, 2**20, True])
def test_odd_numbers_of_arrivals(arrivals: Any) -> None:
    with pytest.raises(KernelTypeError, match=r"num_arrivals must be an integer from 1 to 1048575.*Count one for each"):
        plgpu.Barrier(num_arrivals=arrivals)


def test_rows_that_tma_cannot_move() -> None:
    def body(x: Any, o: Any, s: Any, b: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[:, pl.ds(0, 4)], s, b)

    with pytest.raises(
        KernelTypeError, match=HERE + "copy_gmem_to_smem: a row .* is 8 bytes; TMA moves multiples of 16"
    ):
        run(body, smem(128, 4), plgpu.Barrier())


def test_wgmma_of_shapes_that_do_not_fit() -> None:
    def body(x: Any, o: Any, a: Any, b: Any) -> None:
        pl.run_scoped(lambda acc: plgpu.wgmma(acc, a, b), plgpu.ACC((64, 64)))

    with pytest.raises(
        KernelTypeError, match=HERE + r"wgmma: acc \[64, 64\] \+= a \[64, 64\] @ b \[128, 64\] does not fit"
    ):
        run(body, swizzled(64, 64), swizzled(128, 64))


def test_wgmma_of_mixed_dtypes_and_wrong_accumulators() -> None:
    def body(x: Any, o: Any, a: Any, b: Any) -> None:
        pl.run_scoped(lambda acc: plgpu.wgmma(acc, a, b), plgpu.ACC((64, 64), jnp.float16))

    with pytest.raises(KernelTypeError, match=HERE + "wgmma: a is float16 but b is bfloat16"):
        run(body, swizzled(64, 64), swizzled(64, 64, dtype=jnp.bfloat16))
    with pytest.raises(
        KernelTypeError, match=HERE + "wgmma: bfloat16 operands accumulate in float32, but acc is float16"
    ):
        run(body, swizzled(64, 64, dtype=jnp.bfloat16), swizzled(64, 64, dtype=jnp.bfloat16))


def test_wgmma_needs_swizzled_operands() -> None:
    def body(x: Any, o: Any, a: Any, b: Any) -> None:
        pl.run_scoped(lambda acc: plgpu.wgmma(acc, a, b), plgpu.ACC((64, 64)))

    message = (
        HERE
        + r"wgmma: operand b \(b\) is laid out as plain rows.*TilingTransform\(\(8, 64\)\), SwizzleTransform\(128\)"
    )
    lane = plgpu.CompilerParams(lowering_semantics=plgpu.LoweringSemantics.Lane)  # Warpgroup chooses the layout
    with pytest.raises(KernelTypeError, match=message):
        run(body, swizzled(64, 64), smem(64, 64), compiler_params=lane)


def test_accumulators_of_impossible_shapes() -> None:
    with pytest.raises(KernelTypeError, match=r"ACC: shape must be \(m, n\) with m a multiple of 64.*got \(32, 64\)"):
        plgpu.ACC((32, 64))


def test_transforms_that_do_not_fit() -> None:
    with pytest.raises(KernelTypeError, match=r"tiling\(8, 64\) does not divide shape \(60, 64\)"):
        swizzled(60, 64)
    with pytest.raises(KernelTypeError, match=r"swizzle\(128\) needs rows of 128 bytes.*TilingTransform\(\(8, 64\)\)"):
        plgpu.SMEM((64, 128), jnp.float16, transforms=(plgpu.SwizzleTransform(128),))
    with pytest.raises(KernelTypeError, match="swizzle is 16, 32, 64 or 128 bytes, got 48"):
        plgpu.SwizzleTransform(48)


def test_registers_out_of_range() -> None:
    with pytest.raises(
        KernelTypeError, match=HERE + "set_max_registers: n must be a multiple of 8 from 24 to 256.*got 100"
    ):
        run(lambda x, o: plgpu.set_max_registers(100, action="decrease"))


def test_too_much_smem_lists_what_takes_it() -> None:
    def body(x: Any, o: Any, big: Any, small: Any) -> None:
        o[...] = big[pl.ds(0, 128)] + small[pl.ds(0, 128)]

    message = r"kernel body: needs 256.0 KiB of SMEM, a CTA has 227.0 KiB.*Largest: big 192.0 KiB, small 64.0 KiB"
    with pytest.raises(ResourceError, match=HERE + message):
        run(body, smem(1536, 64), smem(512, 64))


def test_shared_memory_of_one_warpgroup_alone() -> None:
    def body(x: Any, o: Any) -> None:
        pl.run_scoped(lambda s: plgpu.commit_smem(), smem(64, 64))

    with pytest.raises(KernelTypeError, match=HERE + "run_scoped: smem is shared.*collective_axes='wg'"):
        run(body, num_threads=2, thread_name="wg")


def test_index_outside_a_buffer() -> None:
    def body(x: Any, o: Any, s: Any) -> None:
        lax.fori_loop(0, 5, lambda i, _: s.__setitem__(i, jnp.zeros((64,), jnp.float16)), None)

    with pytest.raises(OutOfBoundsError, match=HERE + "kernel body: index 4 into s is outside its dimension of 4"):
        run(body, smem(4, 64))


def test_deadlock_names_who_waits_for_what() -> None:
    def body(x: Any, o: Any, b: Any) -> None:
        pl.when(lax.axis_index("wg") == 0)(lambda: plgpu.barrier_wait(b))

    waiter = r"warpgroup 0 at test_errors.py:\d+ waits on b\[0\] phase 0.*0 of 2 arrivals"
    message = rf"(?s)deadlock at cycle .*{waiter}.*warpgroup 1"
    with pytest.raises(DeadlockError, match=message):
        run(body, plgpu.Barrier(num_arrivals=2), num_threads=2, thread_name="wg")


def test_deadlock_reaches_a_jitted_caller() -> None:
    def body(o: Any, b: Any) -> None:
        plgpu.barrier_wait(b)

    kernel = plgpu.kernel(
        body, out_type=jax.ShapeDtypeStruct((8,), jnp.float32), scratch_types=[plgpu.Barrier()], name="stuck"
    )
    with pytest.raises(Exception, match="kernel stuck: deadlock at cycle"):
        jax.block_until_ready(jax.jit(kernel)())


def test_more_arrivals_than_a_phase_takes() -> None:
    def body(x: Any, o: Any, s: Any, b: Any) -> None:
        plgpu.copy_gmem_to_smem(x.at[pl.ds(0, 64)], s.at[0], b)
        plgpu.copy_gmem_to_smem(x.at[pl.ds(64, 64)], s.at[1], b)

    with pytest.raises(BarrierError, match=HERE + r"kernel body: .*b\[0\]"):
        run(body, smem(2, 64, 64), plgpu.Barrier(num_arrivals=1))


def test_calling_an_operation_outside_a_kernel() -> None:
    with pytest.raises(KernelTypeError, match="commit_smem: called outside a kernel"):
        plgpu.commit_smem()


def test_a_profile_directory_that_cannot_be_written(tmp_path: Path) -> None:
    blocker = tmp_path / "blocker"
    blocker.write_text("a file, not a directory")
    params = plgpu.CompilerParams(profile_space=8, profile_dir=str(blocker / "profile"))
    message = (
        HERE + r"kernel <lambda>: profile_dir .*blocker/profile' cannot be written.*Give CompilerParams\(profile_dir"
    )
    with pytest.raises(CaptureError, match=message):
        run(lambda x, o: plgpu.commit_smem(), compiler_params=params)


@pytest.mark.parametrize(
    "make",
    [
        lambda: plgpu.CompilerParams(profile_space=3),
        lambda: plgpu.Barrier(num_arrivals=0),
        lambda: plgpu.ACC((3, 3)),
        lambda: plgpu.SwizzleTransform(7),
        lambda: plgpu.kernel(lambda x, o: None, out_type=jax.ShapeDtypeStruct((8,), jnp.float32), grid=(2,))(
            np.ones(8)
        ),
        lambda: plgpu.InterpretGPUParams(max_events=0),
    ],
)
def test_every_error_begins_with_the_users_line(make: Callable[[], Any]) -> None:
    with pytest.raises((KernelTypeError, ParamsError), match="^" + HERE):
        make()
