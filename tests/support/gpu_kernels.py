"""Kernels that together use every operation that the GPU target replays, each with its expected result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

import mgpu as plgpu
from support.kernels import swizzled

# For each name, what makes (kernel, operands, expected outputs) from compiler parameters.
KERNELS: dict[str, Callable[[Any], tuple[Any, list[np.ndarray], Any]]] = {}


def _kernel(make: Callable[[Any], Any]) -> Callable[[Any], Any]:
    KERNELS[make.__name__] = make
    return make


def _numbers(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.random.default_rng(0).integers(-3, 4, shape).astype(dtype)


@_kernel
def arithmetic(params: Any) -> Any:
    def body(x_ref: Any, y_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] * 2 + y_ref[...]

    x, y = _numbers(128), _numbers(128)
    return (
        plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), compiler_params=params),
        [x, y],
        x * 2 + y,
    )


@_kernel
def closed_over_arrays(params: Any) -> Any:
    offsets, scale = _numbers(128), np.float32(3)

    def body(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] * jnp.asarray(scale) + jnp.asarray(offsets)

    x = _numbers(128)
    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), compiler_params=params)
    return kernel, [x], x * scale + offsets


@_kernel
def ring_copy(params: Any) -> Any:
    """A producer and a consumer warpgroup, a ring of slots, named scopes, a while loop."""
    steps, slots = 6, 2

    def body(x_gmem: Any, out_gmem: Any, smem: Any, full: Any, empty: Any) -> None:
        @pl.when(lax.axis_index("wg") == 0)
        def _produce() -> None:
            def step(k: Any, _: None) -> None:
                slot = lax.rem(k, slots)
                pl.when(k >= slots)(lambda: plgpu.barrier_wait(empty.at[slot]))
                plgpu.copy_gmem_to_smem(x_gmem.at[k], smem.at[slot], full.at[slot])

            lax.fori_loop(0, steps, step, None)

        @pl.when(lax.axis_index("wg") == 1)
        def _consume() -> None:
            def step(k: Any) -> Any:
                slot = lax.rem(k, slots)
                plgpu.barrier_wait(full.at[slot])
                with jax.named_scope("store"):
                    plgpu.copy_smem_to_gmem(smem.at[slot], out_gmem.at[k])
                    plgpu.wait_smem_to_gmem(0)
                plgpu.barrier_arrive(empty.at[slot])
                return k + 1

            lax.while_loop(lambda k: k < steps, step, jnp.int32(0))

    x = _numbers(steps, 64, 64)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        scratch_types=[
            plgpu.SMEM((slots, 64, 64), jnp.float32),
            plgpu.Barrier(num_barriers=slots),
            plgpu.Barrier(num_barriers=slots),
        ],
        num_threads=2,
        thread_name="wg",
        compiler_params=params,
    )
    return kernel, [x], x


@_kernel
def predicated(params: Any) -> Any:
    """Predicates, group commits, prefetch."""

    def body(x_gmem: Any, out_gmem: Any, smem: Any, barrier: Any) -> None:
        first = lax.axis_index("i") >= 0
        plgpu.async_prefetch(x_gmem, predicate=first)
        plgpu.copy_gmem_to_smem(x_gmem, smem, barrier, predicate=first)
        plgpu.barrier_wait(barrier)
        plgpu.barrier_arrive(barrier, predicate=lax.axis_index("i") < 0)
        plgpu.copy_smem_to_gmem(smem, out_gmem, first, commit_group=False)
        plgpu.commit_smem_to_gmem_group()
        plgpu.wait_smem_to_gmem(0, wait_read_only=True)

    x = _numbers(64, 64)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        scratch_types=[plgpu.SMEM(x.shape, jnp.float32), plgpu.Barrier()],
        grid=(1,),
        grid_names=("i",),
        compiler_params=params,
    )
    return kernel, [x], x


@_kernel
def tested_barrier(params: Any) -> Any:
    """One warp asks whether a phase is complete before it waits."""

    def body(x_gmem: Any, out_gmem: Any, smem: Any, barrier: Any, done: Any) -> None:
        def per_warp(warp: Any) -> None:
            @pl.when(warp == 0)
            def _load() -> None:
                plgpu.copy_gmem_to_smem(x_gmem, smem, barrier)
                lax.cond(plgpu.barrier_test(barrier), lambda: None, lambda: plgpu.barrier_wait(barrier))
                plgpu.barrier_arrive(done)

        plgpu.warp_map(per_warp)
        plgpu.barrier_wait(done)
        plgpu.copy_smem_to_gmem(smem, out_gmem)
        plgpu.wait_smem_to_gmem(0)

    x = _numbers(64, 64)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        scratch_types=[plgpu.SMEM(x.shape, jnp.float32), plgpu.Barrier(), plgpu.Barrier()],
        compiler_params=params,
    )
    return kernel, [x], x


@_kernel
def accesses(params: Any) -> Any:
    """Loads in a layout, a cast, an atomic, a store without vector instructions, the next launch allowed to start."""

    def body(x_ref: Any, out_ref: Any, smem: Any) -> None:
        plgpu.griddepcontrol_wait()
        strided = plgpu.Layout.WG_STRIDED((512,), vec_size=4)
        x = plgpu.load(x_ref, layout=strided, optimized=False)
        y = plgpu.layout_cast(x + 1, strided)
        plgpu.print_layout("y: {}", y)
        plgpu.store(smem, y)
        plgpu.griddepcontrol_launch_dependents()
        out_ref[...] = smem[...]
        plgpu.atomic_add(out_ref, smem[...])

    x = _numbers(512)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        scratch_types=[plgpu.SMEM(x.shape, jnp.float32)],
        compiler_params=params,
    )
    return kernel, [x], 2 * (x + 1)


@_kernel
def store_to_peer(params: Any) -> Any:
    """Each of two CTAs writes into the other's SMEM."""

    def body(x_gmem: Any, out_gmem: Any, mine: Any, theirs: Any, full: Any, landed: Any, ready: Any) -> None:
        me = lax.axis_index("cluster")
        plgpu.copy_gmem_to_smem(x_gmem.at[me], mine, full)
        plgpu.barrier_wait(full)
        plgpu.barrier_arrive(ready)
        plgpu.barrier_wait(ready)
        value = plgpu.load(mine, layout=plgpu.Layout.WGMMA)
        plgpu.async_store_smem(value, theirs, landed, cluster_idx=1 - me, cluster_dim="cluster")
        plgpu.barrier_wait(landed)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(theirs, out_gmem.at[me])
        plgpu.wait_smem_to_gmem(0)

    x = _numbers(2, 64, 64, dtype=np.float16)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float16),
        scratch_types=[
            swizzled(64, 64),
            swizzled(64, 64),
            plgpu.Barrier(),
            plgpu.Barrier(),
            plgpu.ClusterBarrier(collective_axes=("cluster",)),
        ],
        cluster=(2,),
        cluster_names=("cluster",),
        compiler_params=params,
    )
    return kernel, [x], x[::-1]


@_kernel
def small_matmul(params: Any) -> Any:
    """One tile on the tensor core, b from a transposed buffer; registers given back and forth."""

    def body(a_gmem: Any, b_gmem: Any, out_gmem: Any, a_smem: Any, b_smem: Any, out_smem: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, full)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, full)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, a_smem, b_smem)
            plgpu.wgmma_wait(0)
            return acc[...]

        out_smem[...] = pl.run_scoped(multiply, plgpu.ACC((64, 64))).astype(jnp.float16)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(out_smem, out_gmem)
        plgpu.wait_smem_to_gmem(0)

    a, b = _numbers(64, 128, dtype=np.float16), _numbers(128, 64, dtype=np.float16)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float16),
        scratch_types=[swizzled(64, 128), swizzled(128, 64), swizzled(64, 64), plgpu.Barrier(num_arrivals=2)],
        compiler_params=params,
    )
    return kernel, [a, b], (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)


@_kernel
def transposed_operand(params: Any) -> Any:
    """b is kept transposed; the accumulator starts from an array."""

    def body(a_gmem: Any, b_gmem: Any, out_gmem: Any, a_smem: Any, b_smem: Any, out_smem: Any, full: Any) -> None:
        plgpu.copy_gmem_to_smem(a_gmem, a_smem, full)
        plgpu.copy_gmem_to_smem(b_gmem, b_smem, full)
        plgpu.barrier_wait(full)

        def multiply(acc: Any) -> jax.Array:
            plgpu.wgmma(acc, a_smem, plgpu.transpose_ref(b_smem, (1, 0)))
            return acc[...]

        out_smem[...] = pl.run_scoped(multiply, plgpu.ACC((64, 64))).astype(jnp.float16)
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(out_smem, out_gmem)
        plgpu.wait_smem_to_gmem(0)

    a, b = _numbers(64, 64, dtype=np.float16), _numbers(64, 64, dtype=np.float16)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float16),
        scratch_types=[swizzled(64, 64), swizzled(64, 64), swizzled(64, 64), plgpu.Barrier(num_arrivals=2)],
        compiler_params=params,
    )
    return kernel, [a, b], (a.astype(np.float32) @ b.T.astype(np.float32)).astype(np.float16)


@_kernel
def register_hand_over(params: Any) -> Any:
    def body(x_ref: Any, out_ref: Any) -> None:
        @pl.when(lax.axis_index("wg") == 0)
        def _give() -> None:
            plgpu.set_max_registers(40, action="decrease")

        @pl.when(lax.axis_index("wg") == 1)
        def _take() -> None:
            plgpu.set_max_registers(232, action="increase")
            out_ref[...] = x_ref[...] + 1

    x = _numbers(128)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        num_threads=2,
        thread_name="wg",
        compiler_params=params,
    )
    return kernel, [x], x + 1


@_kernel
def cluster_multicast(params: Any) -> Any:
    """Two CTAs load together, and tell each other when they are done."""

    def body(x_gmem: Any, out_gmem: Any, smem: Any, full: Any, done: Any) -> None:
        plgpu.copy_gmem_to_smem(x_gmem, smem, full, collective_axes="cluster")
        plgpu.barrier_wait(full)
        plgpu.copy_smem_to_gmem(smem, out_gmem.at[lax.axis_index("cluster")])
        plgpu.wait_smem_to_gmem(0)
        plgpu.barrier_arrive(done)
        plgpu.barrier_wait(done)

    x = _numbers(64, 64)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((2, *x.shape), jnp.float32),
        scratch_types=[
            plgpu.SMEM(x.shape, jnp.float32),
            plgpu.Barrier(),
            plgpu.ClusterBarrier(collective_axes=("cluster",)),
        ],
        cluster=(2,),
        cluster_names=("cluster",),
        compiler_params=params,
    )
    return kernel, [x], np.stack([x, x])


@_kernel
def semaphores(params: Any) -> Any:
    """The first CTA writes what the second one waits for."""

    def body(x_ref: Any, out_ref: Any) -> None:
        semaphore = pl.get_global(plgpu.SemaphoreType.REGULAR)

        @pl.when(lax.axis_index("i") == 0)
        def _tell() -> None:
            out_ref[...] = x_ref[...]
            plgpu.semaphore_signal(semaphore, 2)

        @pl.when(lax.axis_index("i") == 1)
        def _wait() -> None:
            plgpu.semaphore_wait(semaphore, 2)

    x = _numbers(128)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        grid=(2,),
        grid_names=("i",),
        compiler_params=params,
    )
    return kernel, [x], x


@_kernel
def warp_level(params: Any) -> Any:
    """One warp loads, another stores."""

    def body(x_gmem: Any, out_gmem: Any, smem: Any, full: Any) -> None:
        def per_warp(warp: Any) -> None:
            pl.when(warp == 0)(lambda: plgpu.copy_gmem_to_smem(x_gmem, smem, full))

        plgpu.warp_map(per_warp)
        plgpu.barrier_wait(full)
        plgpu.copy_smem_to_gmem(smem, out_gmem)
        plgpu.wait_smem_to_gmem(0)

    x = _numbers(64, 64)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        scratch_types=[plgpu.SMEM(x.shape, jnp.float32), plgpu.Barrier()],
        compiler_params=params,
    )
    return kernel, [x], x


@_kernel
def union_of_buffers(params: Any) -> Any:
    """A buffer, then two halves in its place, exchanged on the way out."""

    def body(x_gmem: Any, out_gmem: Any, union: Any, full: Any) -> None:
        whole, (upper, lower) = union
        plgpu.copy_gmem_to_smem(x_gmem, whole, full)
        plgpu.barrier_wait(full)
        plgpu.copy_smem_to_gmem(whole, out_gmem)
        plgpu.wait_smem_to_gmem(0)
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(32, 32)], upper, full)
        plgpu.barrier_wait(full)
        plgpu.copy_gmem_to_smem(x_gmem.at[pl.ds(0, 32)], lower, full)
        plgpu.barrier_wait(full)
        plgpu.copy_smem_to_gmem(lower, out_gmem.at[pl.ds(32, 32)])
        plgpu.copy_smem_to_gmem(upper, out_gmem.at[pl.ds(0, 32)])
        plgpu.wait_smem_to_gmem(0)

    x = _numbers(64, 64)
    half = plgpu.SMEM((32, 64), jnp.float32)
    kernel = plgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct(x.shape, jnp.float32),
        scratch_types=[plgpu.RefUnion(plgpu.SMEM(x.shape, jnp.float32), (half, half)), plgpu.Barrier()],
        compiler_params=params,
    )
    return kernel, [x], np.concatenate([x[32:], x[:32]])
