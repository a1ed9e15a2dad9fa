"""How `from_pallas` imports kernels: JAX's transformations, the author's lines and names, captures, limits."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas.ops.gpu import blackwell_matmul_mgpu, hopper_matmul_mgpu

import mgpu
from mgpu.capture import Capture


def multiply_and_add_sine(x_ref, y_ref, out_ref):
    out_ref[...] = x_ref[...] * y_ref[...] + jnp.sin(x_ref[...])


def launch(x, y):
    return plgpu.kernel(multiply_and_add_sine, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype))(x, y)


@jax.custom_vjp
def operation(x, y):
    return launch(x, y)


# Not the true derivative, so that a result can only come from here; its kernels run here as well.
operation.defvjp(lambda x, y: (launch(x, y), (x, y)), lambda saved, g: (launch(saved[1], g), launch(saved[0], g)))


def expected(x, y):
    return np.asarray(x) * np.asarray(y) + np.sin(np.asarray(x))


X = np.arange(128, dtype=np.float32) / 128
Y = X + 1
imported = mgpu.from_pallas(operation)


def close(result, wanted):
    np.testing.assert_allclose(np.asarray(result), wanted, rtol=1e-6)


def test_a_jax_kernel_runs():
    close(imported(X, Y), expected(X, Y))


def test_it_runs_inside_jit():
    close(jax.jit(imported)(X, Y), expected(X, Y))
    close(mgpu.from_pallas(jax.jit(operation))(X, Y), expected(X, Y))


def test_it_runs_inside_scan():
    def step(carry, x):
        return operation(carry, x), carry

    rows = np.stack([X, Y])
    last, carries = mgpu.from_pallas(lambda start, xs: lax.scan(step, start, xs))(X, rows)
    close(last, expected(expected(X, X), Y))
    close(carries, np.stack([X, expected(X, X)]))


def test_it_runs_inside_a_while_loop():
    run = mgpu.from_pallas(lambda n, x: lax.fori_loop(0, n, lambda _, c: operation(c, c), x))
    close(run(np.int32(2), X), expected(*[expected(X, X)] * 2))


@pytest.mark.parametrize("chosen", [False, True])
def test_it_runs_inside_cond(chosen):
    run = mgpu.from_pallas(lambda p, x: lax.cond(p, lambda: operation(x, x), lambda: x))
    close(run(np.bool_(chosen), X), expected(X, X) if chosen else X)


def test_vmap_inside_and_outside():
    rows = np.stack([X, X * 2])
    close(mgpu.from_pallas(jax.vmap(operation, (0, None)))(rows, Y), expected(rows, Y))
    close(jax.vmap(imported, (0, None))(rows, Y), expected(rows, Y))
    close(jax.vmap(jax.vmap(imported, (None, 0)), (0, None))(rows, rows), expected(rows[:, None], rows[None]))


def test_gradient_inside_and_outside():
    ones = np.ones_like(X)
    for gradient in (
        mgpu.from_pallas(jax.grad(lambda x, y: operation(x, y).sum(), argnums=(0, 1))),
        jax.grad(lambda x, y: imported(x, y).sum(), argnums=(0, 1)),
    ):
        by_x, by_y = gradient(X, Y)
        close(by_x, expected(Y, ones))
        close(by_y, expected(X, ones))


def test_gradient_and_vmap_together():
    rows = np.stack([X, X * 2])
    by_row = jax.vmap(jax.grad(lambda x: imported(x, Y).sum()))(rows)
    close(by_row, np.stack([expected(Y, np.ones_like(X))] * 2))


def test_results_are_traced_once_for_each_type_and_configuration():
    traces = []

    def function(x, scale, *, shift):
        traces.append((x.shape, scale, shift))
        return launch(x, x) * scale + shift

    run = mgpu.from_pallas(function)
    for _ in range(2):
        close(run(X, 2, shift=1), expected(X, X) * 2 + 1)
        close(run(X, 3, shift=1), expected(X, X) * 3 + 1)
        close(run(X[:64], 2, shift=1), expected(X[:64], X[:64]) * 2 + 1)
    assert traces == [((128,), 2, 1), ((128,), 3, 1), ((64,), 2, 1)]


def test_a_function_without_kernels_is_left_alone():
    close(mgpu.from_pallas(lambda x: {"double": x * 2})(X)["double"], X * 2)


def pipelined(x_ref, out_ref, smem, loaded):
    with jax.named_scope("load"):
        plgpu.copy_gmem_to_smem(x_ref, smem, loaded)
        plgpu.barrier_wait(loaded)
    with jax.named_scope("double"):
        smem[...] = smem[...] * 2
        plgpu.commit_smem()
    plgpu.copy_smem_to_gmem(smem, out_ref)
    plgpu.wait_smem_to_gmem(0)


def run_pipelined(directory, *, inside):
    recorded = {"profile_space": 64, "profile_dir": str(directory)}
    kernel = plgpu.kernel(
        pipelined,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float16),
        scratch_types=[
            plgpu.SMEM((64, 64), jnp.float16, transforms=(plgpu.TilingTransform((8, 64)), plgpu.SwizzleTransform(128))),
            plgpu.Barrier(),
        ],
        compiler_params=plgpu.CompilerParams(**recorded) if inside else None,
    )
    x = np.arange(64 * 64, dtype=np.float16).reshape(64, 64) % 7
    close(mgpu.from_pallas(kernel, compiler_params=None if inside else recorded)(x), x * 2)
    (path,) = directory.glob("*/capture.npz")
    return Capture.load(path)


@pytest.mark.parametrize("inside", [False, True])
def test_captures_name_the_authors_lines_scopes_and_operands(tmp_path, inside):
    header = run_pipelined(tmp_path, inside=inside).header
    first = inspect.getsourcelines(pipelined)[1]
    found = [(site.kind.value, site.name, site.line - first, site.scope) for site in header.sites]
    assert found == [
        ("scope", "load", 2, ""),
        ("tma_load", "load smem", 2, "load"),
        ("barrier_wait", "wait loaded", 3, "load"),
        ("scope", "double", 5, ""),
        ("commit_smem", "commit_smem", 6, "double"),
        ("tma_store", "store out_ref", 7, ""),
        ("store_wait", "wait stores", 8, ""),
    ]
    assert {site.file for site in header.sites} == {__file__}
    assert header.kernel == "pipelined"


def test_unknown_compiler_params_are_refused():
    with pytest.raises(mgpu_error("ParamsError"), match="no field 'profile_size'"):
        mgpu.from_pallas(launch, compiler_params={"profile_size": 1})(X, Y)


def mgpu_error(name):
    import mgpu.errors

    return getattr(mgpu.errors, name)


def test_kernels_are_traced_for_the_simulated_gpu():
    def count_sms(x):
        sms = jax.devices()[0].core_count
        return plgpu.kernel(
            lambda x_ref, out_ref: None, out_type=jax.ShapeDtypeStruct((sms,), x.dtype), grid=(sms,), grid_names=("sm",)
        )(x)

    with mgpu.device("h100", num_sms=7):
        assert mgpu.from_pallas(count_sms)(X).shape == (7,)
    assert mgpu.from_pallas(count_sms)(X).shape == (132,)
    with pytest.raises(AttributeError):
        _ = jax.devices()[0].core_count


def test_a_blackwell_kernel_is_refused_with_its_line():
    config = blackwell_matmul_mgpu.TuningConfig(
        tile_m=128, tile_n=128, tile_k=64, max_concurrent_steps=2, collective=False
    )
    a = np.zeros((256, 256), np.float16)
    with pytest.raises(mgpu_error("Unsupported"), match=r"blackwell_matmul_mgpu.py:\d+ .*Hopper"):
        mgpu.from_pallas(blackwell_matmul_mgpu.matmul_kernel)(a, a, config)


def test_errors_of_the_simulation_name_the_authors_line():
    def waits_for_nobody(out_ref, barrier):
        plgpu.barrier_wait(barrier)

    kernel = plgpu.kernel(
        waits_for_nobody, out_type=jax.ShapeDtypeStruct((128,), jnp.float32), scratch_types=[plgpu.Barrier()]
    )
    line = inspect.getsourcelines(waits_for_nobody)[1] + 1
    with pytest.raises(mgpu_error("DeadlockError"), match=f"test_from_pallas.py:{line}"):
        mgpu.from_pallas(kernel)()


def test_too_much_smem_names_the_kernel_and_its_buffers():
    config = hopper_matmul_mgpu.TuningConfig(128, 128, 64, 8)
    a = np.zeros((512, 512), np.float16)
    with pytest.raises(mgpu_error("ResourceError"), match=r"hopper_matmul_mgpu.py:\d+ kernel kernel: .*out_smem"):
        mgpu.from_pallas(hopper_matmul_mgpu.matmul)(a, a, None, config)


def test_program_ids_and_loops():
    def body(x_ref, out_ref):
        index = pl.program_id(0)

        def step(i, total):
            return total + x_ref[i] * (i + 1)

        out_ref[index] = lax.fori_loop(0, index + 1, step, jnp.float32(0))

    kernel = plgpu.kernel(body, out_type=jax.ShapeDtypeStruct((4,), jnp.float32), grid=(4,), grid_names=("g",))
    close(mgpu.from_pallas(kernel)(X[:4]), np.cumsum(X[:4] * np.arange(1, 5)))
