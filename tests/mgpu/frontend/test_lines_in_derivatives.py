"""Kernels that a derivative launches are attributed to their own lines, not to the call that is derived."""

import inspect
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax._src import source_info_util
from jax.experimental.pallas import mosaic_gpu

import mgpu
from mgpu.capture import Capture
from mgpu.jax_internals import attributed_to_running_code

X = np.ones((128, 128), np.float32)
OUT = jax.ShapeDtypeStruct(X.shape, jnp.float32)


def scaled(module, **options):
    """Returns a function whose derivative is a kernel, and the first line of that kernel."""

    def body(x, out, smem, barrier):
        module.copy_gmem_to_smem(x, smem, barrier)
        module.barrier_wait(barrier)
        out[...] = smem[...] * 2

    kernel = module.kernel(
        body, out_type=OUT, scratch_types=[module.SMEM(X.shape, jnp.float32), module.Barrier()], **options
    )

    @jax.custom_vjp
    def double(x):
        return x * 2

    double.defvjp(lambda x: (double(x), None), lambda _, gradient: (kernel(gradient),))
    return jax.grad(lambda x: double(x).sum()), inspect.getsourcelines(body)[1]


def run_own(params):
    derivative, first = scaled(mgpu, compiler_params=mgpu.CompilerParams(**params))
    return derivative(X), first


def run_imported(params):
    derivative, first = scaled(mosaic_gpu)
    return mgpu.from_pallas(derivative, compiler_params=params)(X), first


def run_imported_batch(params):
    derivative, first = scaled(mosaic_gpu)
    return mgpu.from_pallas(jax.vmap(derivative), compiler_params=params)(X[None])[0], first


@pytest.mark.parametrize("run", [run_own, run_imported, run_imported_batch])
def test_each_operation_has_its_own_line(run, tmp_path):
    result, first = run({"profile_space": 64, "profile_dir": str(tmp_path)})
    np.testing.assert_array_equal(result, 2 * X)
    (file,) = tmp_path.glob("*/capture.npz")
    lines = {site.name: site.line for site in Capture.load(file).header.sites}
    assert lines == {"load smem": first + 1, "wait barrier": first + 2}


def test_profiling_finds_them_too():
    derivative, first = scaled(mosaic_gpu)
    _, (capture,) = mgpu.profile(derivative)(X)
    assert [site.line for site in capture.header.sites] == [first + 1, first + 2]


def test_jax_is_left_as_it_was_also_by_threads():
    before = source_info_util.current
    inside, release = threading.Event(), threading.Event()

    def hold():
        with attributed_to_running_code():
            inside.set()
            release.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    inside.wait(10)
    with attributed_to_running_code():
        pass
    assert source_info_util.current is not before
    release.set()
    thread.join()
    assert source_info_util.current is before
