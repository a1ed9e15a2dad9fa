"""Each family of JAX's Mosaic GPU operations is imported: small kernels whose results NumPy tells."""

from __future__ import annotations

import inspect
import traceback
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu

import mgpu
from mgpu.errors import Unsupported

X = np.arange(128, dtype=np.float32)
MATRIX = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(np.float16)
TILED = (plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))
VECTOR = jax.ShapeDtypeStruct((128,), jnp.float32)
SMEM_VECTOR = plgpu.SMEM((128,), jnp.float32)
ACC: Any = vars(plgpu)["ACC"]  # reexported without being listed
SMEM_MATRIX = plgpu.SMEM((64, 64), jnp.float16, transforms=TILED)


def run(body, *operands, out: Any = VECTOR, **launch):
    return mgpu.from_pallas(plgpu.kernel(body, out_type=out, **launch))(*operands)


def equal(result, wanted):
    np.testing.assert_array_equal(np.asarray(result), wanted)


def load_on_first_warp(x_ref, smem, barrier, warp):
    pl.when(warp == 0)(lambda: plgpu.copy_gmem_to_smem(x_ref, smem, barrier))


def test_warp_map():
    def body(x_ref, out_ref, smem, barrier):
        plgpu.warp_map(lambda warp: load_on_first_warp(x_ref, smem, barrier, warp))
        plgpu.barrier_wait(barrier)
        out_ref[...] = smem[...] + 1

    equal(run(body, X, scratch_types=[SMEM_VECTOR, plgpu.Barrier()]), X + 1)


@pytest.mark.filterwarnings("ignore:.*core_map is deprecated")
def test_core_map_over_warps():
    def body(x_ref, out_ref, smem, barrier):
        @pl.core_map(plgpu.WarpMesh(axis_name="which warp"))
        def _():
            load_on_first_warp(x_ref, smem, barrier, lax.axis_index("which warp"))

        plgpu.barrier_wait(barrier)
        out_ref[...] = smem[...] + 1

    equal(run(body, X, scratch_types=[SMEM_VECTOR, plgpu.Barrier()]), X + 1)


@pytest.mark.filterwarnings("ignore:.*core_map is deprecated")
def test_core_map_over_ctas_updates_jax_refs():
    def function(x, shift):
        ref = jax.new_ref(x)

        @pl.core_map(plgpu.Mesh(grid=(2,), grid_names=("half",)))
        def _():
            half = pl.ds(lax.axis_index("half") * 64, 64)
            ref[half] = ref[half] * 2 + shift

        return ref[...]

    equal(mgpu.from_pallas(function)(X, np.float32(3)), X * 2 + 3)


@pytest.mark.filterwarnings("ignore:.*core_map is deprecated")
@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jitted"])
@pytest.mark.parametrize("space", [None, plgpu.GMEM], ids=str)
def test_core_map_over_jax_refs_with_a_memory_space(space, wrap):
    @jax.jit
    def function(x):
        x_ref: Any = jax.new_ref(x, memory_space=space)
        total_ref: Any = jax.new_ref(jnp.zeros_like(x[0]), memory_space=space)

        @pl.core_map(plgpu.Mesh())
        def _():
            def add(scratch):
                def step(_, row):
                    scratch[...] = row[0]
                    plgpu.commit_smem()
                    plgpu.copy_smem_to_gmem(scratch, total_ref, reduction_op="add")
                    plgpu.wait_smem_to_gmem(0)

                plgpu.emit_pipeline(step, grid=(4,), in_specs=[pl.BlockSpec((1, 128), lambda i: (i, 0))])(x_ref)

            pl.run_scoped(add, SMEM_VECTOR)

        return jax.freeze(total_ref)

    x = np.stack([X, X + 1, X + 2, X + 3])
    equal(wrap(mgpu.from_pallas(function))(x), x.sum(axis=0))


def test_values_that_a_kernel_closes_over():
    def function(x, scale, count):
        def body(x_ref, out_ref):
            out_ref[...] = lax.fori_loop(0, count, lambda _, total: total + x_ref[...] * scale, jnp.zeros_like(x))

        return plgpu.kernel(body, out_type=VECTOR)(x)

    equal(mgpu.from_pallas(function)(X, np.float32(2), np.int32(3)), X * 6)


def test_union_of_buffers():
    def body(x_ref, m_ref, out_ref, m_out_ref, union):
        (wide,), (narrow, matrix) = union
        wide[...] = x_ref[...]
        out_ref[...] = wide[...] * 2
        narrow[...] = x_ref[...].astype(jnp.float16)
        matrix[...] = m_ref[...]
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(matrix, m_out_ref)
        plgpu.wait_smem_to_gmem(0)
        out_ref[...] += narrow[...].astype(jnp.float32)

    union = plgpu.RefUnion([SMEM_VECTOR], [plgpu.SMEM((128,), jnp.float16), SMEM_MATRIX])
    out = (VECTOR, jax.ShapeDtypeStruct((64, 64), jnp.float16))
    results = run(body, X, MATRIX, out=out, scratch_types=[union])
    equal(results[0], X * 3)
    equal(results[1], MATRIX)


def _product_of_matrix(acc, smem):
    plgpu.wgmma(acc, smem, smem)


def _doubled_product(acc, smem):
    acc[...] *= 2
    plgpu.wgmma(acc, smem, smem)


def _returned_product(acc, smem):
    plgpu.wgmma(acc, smem, smem)
    return acc[...]


@pytest.mark.parametrize(
    ("function", "start"), [(_product_of_matrix, 1), (_doubled_product, 2), (_returned_product, 1)]
)
def test_run_state_of_an_accumulator(function, start):
    def body(x_ref, out_ref, smem, barrier):
        plgpu.copy_gmem_to_smem(x_ref, smem, barrier)
        plgpu.barrier_wait(barrier)
        ones = plgpu.layout_cast(jnp.ones((64, 64), jnp.float32), plgpu.Layout.WGMMA)
        out_ref[...] = pl.run_state(lambda acc: function(acc, smem))(ACC.init(ones))

    out = jax.ShapeDtypeStruct((64, 64), jnp.float32)
    wanted = start + MATRIX.astype(np.float32) @ MATRIX.astype(np.float32)
    equal(run(body, MATRIX, out=out, scratch_types=[SMEM_MATRIX, plgpu.Barrier()]), wanted)


def test_semaphores():
    def body(x_ref, out_ref):
        semaphore = pl.get_global(plgpu.SemaphoreType.REGULAR)
        half = lax.axis_index("half")
        mine = pl.ds(half * 64, 64)

        @pl.when(half == 0)
        def _():
            out_ref[mine] = x_ref[mine] * 2
            pl.semaphore_signal(semaphore, 3)

        @pl.when(half == 1)
        def _():
            pl.semaphore_wait(semaphore, 3)
            out_ref[mine] = out_ref[pl.ds(0, 64)] + x_ref[mine]

    found = run(body, X, grid=(2,), grid_names=("half",))
    equal(found, np.concatenate([X[:64] * 2, X[:64] * 2 + X[64:]]))


def test_atomics():
    def body(x_ref, out_ref, smem):
        smem[...] = jnp.zeros((128,), jnp.float32)
        plgpu.atomic_add(smem, x_ref[...])
        plgpu.atomic_max(smem, jnp.full((128,), 5, jnp.float32))
        out_ref[...] = smem[...]

    equal(run(body, X, scratch_types=[SMEM_VECTOR]), np.maximum(X, 5))


def in_cluster(body, *operands, scratch):
    out = jax.ShapeDtypeStruct((2, 128), jnp.float32)
    barrier = plgpu.ClusterBarrier(collective_axes=("cta",))
    return run(body, *operands, out=out, cluster=(2,), cluster_names=("cta",), scratch_types=[*scratch, barrier])


def meet(barrier):
    plgpu.barrier_arrive(barrier)
    plgpu.barrier_wait(barrier)


def test_multicast_load():
    def body(x_ref, out_ref, smem, loaded, both):
        plgpu.copy_gmem_to_smem(x_ref, smem, loaded, collective_axes="cta")
        plgpu.barrier_wait(loaded)
        meet(both)
        out_ref[lax.axis_index("cta")] = smem[...]

    equal(in_cluster(body, X, scratch=[SMEM_VECTOR, plgpu.Barrier()]), np.stack([X, X]))


def test_shared_memory_of_the_other_cta():
    def body(x_ref, out_ref, smem, both):
        cta = lax.axis_index("cta")
        smem[...] = x_ref[...] + cta
        meet(both)
        out_ref[cta] = plgpu.cluster_ref(smem, {"cta": 1 - cta})[...]
        meet(both)

    equal(in_cluster(body, X, scratch=[SMEM_VECTOR]), np.stack([X + 1, X]))


def test_stores_to_the_other_cta():
    def body(x_ref, out_ref, smem, arrived, both):
        cta = lax.axis_index("cta")
        plgpu.async_store_smem(x_ref[...] + cta, smem, arrived, cluster_idx=1 - cta, cluster_dim="cta")
        plgpu.barrier_wait(arrived)
        out_ref[cta] = smem[...]
        meet(both)

    equal(in_cluster(body, X, scratch=[SMEM_VECTOR, plgpu.Barrier()]), np.stack([X + 1, X]))


def test_loads_with_a_layout():
    def body(m_ref, out_ref, smem, loaded):
        plgpu.copy_gmem_to_smem(m_ref, smem, loaded)
        plgpu.barrier_wait(loaded)
        takes_index = "idx" in inspect.signature(plgpu.load).parameters  # JAX 0.10.2
        value = plgpu.load(smem, *[()] * takes_index, layout=plgpu.Layout.WGMMA)
        smem[...] = plgpu.layout_cast(value, plgpu.Layout.WGMMA) * 2
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, out_ref)
        plgpu.wait_smem_to_gmem(0)

    out = jax.ShapeDtypeStruct((64, 64), jnp.float16)
    equal(run(body, MATRIX, out=out, scratch_types=[SMEM_MATRIX, plgpu.Barrier()]), MATRIX * 2)


def test_predicated_store():
    def body(x_ref, out_ref, smem):
        cta = lax.axis_index("cta")
        smem[...] = x_ref[...] + cta
        plgpu.commit_smem()
        plgpu.copy_smem_to_gmem(smem, out_ref, predicate=cta == 1)
        plgpu.wait_smem_to_gmem(0)

    equal(run(body, X, grid=(2,), grid_names=("cta",), scratch_types=[SMEM_VECTOR]), X + 1)


TAKES_PREDICATE = "predicate" in inspect.signature(plgpu.copy_gmem_to_smem).parameters


@pytest.mark.skipif(not TAKES_PREDICATE, reason="this JAX has no predicated loads")
def test_predicated_load():
    copy: Any = plgpu.copy_gmem_to_smem  # the oldest JAX declares no such parameter

    def body(x_ref, out_ref, smem, barrier):
        cta = lax.axis_index("cta")
        smem[...] = jnp.full(128, -1, jnp.float32)
        plgpu.commit_smem()
        copy(x_ref, smem, barrier, predicate=cta == 1)
        pl.when(cta == 1)(lambda: plgpu.barrier_wait(barrier))
        out_ref.at[cta][...] = smem[...]

    out = jax.ShapeDtypeStruct((2, 128), jnp.float32)
    result = run(body, X, out=out, grid=(2,), grid_names=("cta",), scratch_types=[SMEM_VECTOR, plgpu.Barrier()])
    equal(result, np.stack([np.full(128, -1), X]))


def test_views_of_refs():
    def body(x_ref, out_ref, smem):
        smem[...] = x_ref[...]
        out_ref[...] = smem.reshape(2, 64).at[1].reshape(4, 16)[...]

    out = jax.ShapeDtypeStruct((4, 16), jnp.float32)
    equal(run(body, X, out=out, scratch_types=[SMEM_VECTOR]), X[64:].reshape(4, 16))


def test_a_number_is_an_operand():
    """It stays a Python number in the jaxpr of a function that closes over it."""

    def body(factor_ref, x_ref, out_ref):
        out_ref[...] = x_ref[...] * factor_ref[...].astype(jnp.float32)

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct(X.shape, jnp.float32))
    equal(mgpu.from_pallas(lambda x: kernel(3, x))(X), X * 3)
    equal(mgpu.from_pallas(kernel)(3, X), X * 3)


def test_prefetch_grid_dependencies_and_prints(capfd):
    def body(x_ref, out_ref):
        plgpu.griddepcontrol_wait()
        plgpu.async_prefetch(x_ref)
        value = x_ref[...]
        pl.debug_print("first: {}", x_ref[1])
        plgpu.print_layout("layout: {}", value)
        out_ref[...] = value
        plgpu.griddepcontrol_launch_dependents()

    equal(run(body, X), X)
    assert "first: 1.0" in capfd.readouterr().out


def test_state_of_plain_values():
    def body(x_ref, out_ref):
        def double(value):
            value[...] = value[...] * 2

        out_ref[...] = pl.run_state(double)(x_ref[...])

    equal(run(body, X), X * 2)


pallas_call = getattr(plgpu, "pallas_call", pl.pallas_call)  # the former is new in JAX 0.12


@pytest.mark.parametrize("semantics", ["parallel", "sequential"])
def test_pallas_call(semantics):
    def body(x_ref, out_ref, smem):
        smem[...] = x_ref[...]
        out_ref[...] = smem[...] * 2 + (pl.program_id(0) + 10 * pl.num_programs(0)).astype(jnp.float16)

    x = np.concatenate([MATRIX] * 4)
    call = pallas_call(
        body,
        out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
        grid=(4, 1),
        in_specs=[plgpu.BlockSpec((64, None, 64), lambda i, j: (i, j, 0), transforms=TILED)],
        out_specs=plgpu.BlockSpec((64, 64), lambda i, j: (i, j), transforms=TILED),
        scratch_shapes=[SMEM_MATRIX],
        compiler_params=plgpu.CompilerParams(
            dimension_semantics=[semantics, "sequential"],
            max_concurrent_steps=2,
            lowering_semantics=plgpu.LoweringSemantics.Lane,
        ),
    )
    equal(mgpu.from_pallas(call)(x[:, None]), x * 2 + np.arange(4, dtype=np.float16).repeat(64)[:, None] + 40)


def test_an_error_shows_the_authors_stack():
    def body(x_ref, out_ref, smem, barrier):
        plgpu.copy_gmem_to_smem(x_ref.at[pl.ds(0, 2)], smem, barrier)  # too short for TMA

    with pytest.raises(mgpu.errors.KernelTypeError) as caught:
        run(body, X, scratch_types=[plgpu.SMEM((2,), jnp.float32), plgpu.Barrier()])
    assert "smem, barrier)  # too short for TMA" in "".join(traceback.format_exception(caught.value))


def test_a_layout_of_jaxs_own():
    def body(x_ref, out_ref):
        out_ref[...] = plgpu.layout_cast(jnp.ones((64, 64), jnp.float32), plgpu.Layout._WGMMA_ACC_32BIT) + x_ref[0]

    equal(run(body, X + 2, out=jax.ShapeDtypeStruct((64, 64), jnp.float32)), np.full((64, 64), 3))


def test_pallas_call_that_works_in_place():
    def body(x_ref, out_ref):
        out_ref[pl.ds(0, 64)] = x_ref[pl.ds(0, 64)] * 2

    whole = pl.BlockSpec(memory_space=plgpu.GMEM)
    call = pallas_call(
        body,
        out_shape=VECTOR,
        in_specs=[whole],
        out_specs=whole,
        input_output_aliases={0: 0},
        compiler_params=plgpu.CompilerParams(),
    )
    equal(mgpu.from_pallas(call)(X), np.concatenate([X[:64] * 2, X[64:]]))


def test_a_signal_to_another_gpu_is_refused():
    def body(x_ref, out_ref, semaphore):
        pl.semaphore_signal(semaphore, 1, device_id=1)

    line = inspect.getsourcelines(body)[1] + 1
    message = f"test_from_pallas_operations.py:{line} semaphore_signal: device_id names another GPU"
    with pytest.raises(Unsupported, match=message):
        run(body, X, scratch_types=[plgpu.SemaphoreType.REGULAR])


@pytest.mark.skipif(not hasattr(plgpu, "mma"), reason="this JAX has no warp-level tensor-core operation")
def test_tensor_core_operations_of_older_gpus_are_refused():
    module: Any = plgpu

    def body(x_ref, out_ref):
        layouts = [getattr(plgpu.Layout, f"MMA_{name}")(jnp.bfloat16) for name in ("LHS", "RHS")]
        a, b = (plgpu.layout_cast(jnp.ones((64, 64), jnp.bfloat16), layout) for layout in layouts)
        acc = plgpu.layout_cast(jnp.zeros((64, 64), jnp.float32), module.Layout.MMA_ACC)
        out_ref[...] = x_ref[...] * module.mma(acc, a, b).sum().astype(x_ref.dtype)

    with pytest.raises(Unsupported, match=r"operations.py:\d+ (layout MMA_LHS|mma: needs warp-level)"):
        run(body, X)


def test_inlined_code_that_asks_for_the_launch_context_is_refused():
    def body(x_ref, out_ref):
        plgpu.inline_mgpu()(lambda context: context.async_copy(x_ref, out_ref))()

    with pytest.raises(Unsupported, match=r"operations.py:\d+ inline_mgpu: .* asks the launch context for async_copy"):
        run(body, X)
