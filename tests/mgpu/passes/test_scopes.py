"""What a kernel may allocate, and for whom: told before anything runs, with the author's line."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import KernelTypeError

OUT = jax.ShapeDtypeStruct((4,), jnp.int32)
CLUSTER = {"cluster": (2,), "cluster_names": ("c",)}
THREADS = {"num_threads": 2, "thread_name": "t"}


def zeros():
    return jnp.zeros((4,), jnp.int32)


@pytest.mark.parametrize(
    ("axes", "options", "remedy"),
    [
        (("c",), THREADS, r"Give collective_axes='t'\."),
        (("c", "t"), THREADS, r"Give collective_axes='t'\."),
        (("unknown",), THREADS, r"Give collective_axes='t'\."),
        (("c",), {}, r"Give no collective_axes\."),
        ((), THREADS, r"Allocate it with collective_axes='t', reached by all\."),
    ],
)
def test_an_allocation_is_shared_by_the_warpgroups_of_a_cta(axes, options, remedy):
    def body(out):
        pl.run_scoped(lambda barrier: out.__setitem__(..., zeros()), mgpu.Barrier(), collective_axes=axes)

    with pytest.raises(KernelTypeError, match=rf"^test_scopes\.py:\d+ run_scoped: .*{remedy}"):
        mgpu.kernel(body, out_type=OUT, **CLUSTER, **options)()


@pytest.mark.parametrize("as_scratch", [True, False])
def test_gmem_cannot_be_allocated_in_a_kernel(as_scratch):
    array = mgpu.GMEM((8,), jnp.int32)

    def body(out, *scratch):
        pl.run_scoped(lambda *refs: out.__setitem__(..., zeros()), *([] if as_scratch else [array]))

    scratch = [array] if as_scratch else [mgpu.SMEM((4,), jnp.int32)]
    with pytest.raises(KernelTypeError, match=r"^test_scopes\.py:\d+ scratch of \[8\] int32 in GMEM: .*one more"):
        mgpu.kernel(body, out_type=OUT, scratch_types=scratch)()


def test_a_cluster_barrier_without_axes_is_one_of_its_own_cta():
    def body(out, barrier):
        mgpu.barrier_arrive(barrier)
        mgpu.barrier_wait(barrier)
        out[lax.axis_index("c")] = zeros() + lax.axis_index("c")

    out = jax.ShapeDtypeStruct((2, 4), jnp.int32)
    kernel = mgpu.kernel(body, out_type=out, scratch_types=[mgpu.ClusterBarrier(collective_axes=())], **CLUSTER)
    np.testing.assert_array_equal(kernel(), [[0] * 4, [1] * 4])


# JAX 0.12 notices it while it traces; then the line is that of the scope.
OUTSIDE = r"^test_scopes\.py:\d+ (kernel body|get|barrier_arrive): .* is used outside of its function.* run_scoped"


def test_a_ref_that_outlives_its_scope():
    kept = []

    def body(out):
        pl.run_scoped(kept.append, mgpu.SMEM((4,), jnp.int32))
        out[...] = kept[0][...]

    with pytest.raises(KernelTypeError, match=OUTSIDE):
        mgpu.kernel(body, out_type=OUT)()


def test_a_slot_that_outlives_its_step():
    kept = []

    def body(x, out):
        specs = [mgpu.BlockSpec((4,), lambda i: (i,))]
        mgpu.emit_pipeline(lambda _, slot: kept.append(slot), grid=(2,), in_specs=specs, max_concurrent_steps=2)(x)
        out[...] = kept[0][...]

    with pytest.raises(KernelTypeError, match=OUTSIDE):
        mgpu.kernel(body, out_type=OUT)(jnp.zeros((8,), jnp.int32))


def test_a_barrier_that_outlives_its_scope():
    kept = []

    def body(out):
        pl.run_scoped(kept.append, mgpu.Barrier())
        mgpu.barrier_arrive(kept[0])

    with pytest.raises(KernelTypeError, match=OUTSIDE):
        mgpu.kernel(body, out_type=OUT)()
