"""What a CTA needs is checked before the run, and the error begins with the author's line."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import KernelError, KernelTypeError, ResourceError

F32 = jnp.float32


def run(body, scratch=(), **options):
    kernel = mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((128,), F32), scratch_types=scratch, **options)
    return kernel(np.ones(128, np.float32))


def copy(x, out, *_):
    out[...] = x[...]


def nothing(x, out):
    del x, out


def accumulate(*shapes):
    def body(x, out):
        def scope(*accumulators):
            out[...] = x[...] + sum(acc[...][0, 0] for acc in accumulators)

        pl.run_scoped(scope, *(mgpu.ACC(shape) for shape in shapes))

    return body


def one_after_the_other(x, out):
    for _ in range(3):
        accumulate((64, 256))(x, out)


def hand_over(count, action):
    def body(x, out):
        mgpu.set_max_registers(count, action=action)
        pl.when(lax.axis_index("wg") == 0)(lambda: out.__setitem__(..., x[...]))

    return body


FOUR = {"num_threads": 4, "thread_name": "wg"}


@pytest.mark.parametrize(
    ("arguments", "options", "text"),
    [
        ((copy, [mgpu.SMEM((64, 1024), F32)]), {}, "needs 256.0 KiB of SMEM, a CTA has 227.0 KiB"),
        ((copy, [mgpu.Barrier() for _ in range(2000)]), {}, "needs 250.0 KiB of SMEM"),
        ((copy,), {"num_threads": 9, "thread_name": "wg"}, "a CTA has at most 1024. Use at most 8 warpgroups"),
        ((nothing,), {"cluster": (32,), "cluster_names": ("c",)}, "cluster of 32 CTAs: h100 allows at most 16"),
        (
            (accumulate((128, 256)),),
            {},
            r"take 256 registers of each thread, which has at most 255: acc\S* \[128, 256\]",
        ),
        ((accumulate((64, 256), (64, 256)),), {}, "the accumulators that are alive here take 256 registers"),
        ((hand_over(240, "increase"),), FOUR, "set_max_registers leaves its warpgroups with 240, 240, 240, 240"),
        ((hand_over(300, "increase"),), FOUR, "n must be a multiple of 8 from 24 to 256"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options, text):
    with pytest.raises(KernelError) as caught:
        run(*arguments, **options)
    assert isinstance(caught.value, (ResourceError, KernelTypeError))
    assert re.match(r"test_budget\.py:\d+ ", str(caught.value))
    assert re.search(text, str(caught.value))


@pytest.mark.parametrize(
    ("body", "scratch", "options"),
    [
        (copy, [mgpu.SMEM((56, 1024), F32)], {}),
        (accumulate((64, 256), (64, 128)), [], {}),
        (one_after_the_other, [], {}),
        (copy, [mgpu.Barrier(num_barriers=32)], {}),
    ],
)
def test_what_fits_runs(body, scratch, options):
    np.testing.assert_array_equal(run(body, scratch, **options), 1)


def test_an_event_buffer_that_does_not_fit_beside_the_kernel_lies_in_gmem(tmp_path):
    record = mgpu.CompilerParams(profile_space=2000, profile_dir=str(tmp_path))
    np.testing.assert_array_equal(run(copy, [mgpu.SMEM((56, 1024), F32)], compiler_params=record), 1)


@pytest.mark.parametrize("shape", [33, (3, 11)])
@pytest.mark.parametrize("make", [mgpu.Barrier, lambda **k: mgpu.ClusterBarrier(collective_axes=("c",), **k)])
def test_an_array_of_barriers_has_no_more_than_a_register_has_bits(make, shape):
    with pytest.raises(KernelTypeError, match=r"test_budget\.py:\d+ \w*Barrier: num_barriers .* at most 32 barriers"):
        make(num_barriers=shape)
