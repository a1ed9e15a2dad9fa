"""Loads, stores, atomics and views of refs, against NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax import lax
from jax.experimental import pallas as pl

import mgpu

F32 = jnp.float32
X = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)


def run(body, *operands, out=None, scratch=(), **options):
    out = out or jax.ShapeDtypeStruct(operands[0].shape, operands[0].dtype)
    return mgpu.kernel(body, out_type=out, scratch_types=list(scratch), **options)(*operands)


@pytest.mark.parametrize("index", [(), ..., (3,), (pl.ds(8, 16),), (slice(None), pl.ds(16, 8)), (5, pl.ds(0, 32))])
@pytest.mark.parametrize("through_smem", [False, True])
def test_load_takes_what_numpy_indexing_takes(index, through_smem):
    plain = (
        tuple(slice(i.start, i.start + i.size) if isinstance(i, pl.Slice) else i for i in index)
        if index != ...
        else ...
    )
    expected = X[plain]

    def body(x_ref, out_ref, buffer):
        buffer[...] = x_ref[...]
        value = mgpu.load(buffer if through_smem else x_ref, index, optimized=False)
        mgpu.store(out_ref, value, optimized=False)

    result = run(body, X, out=jax.ShapeDtypeStruct(expected.shape, F32), scratch=[mgpu.SMEM((32, 64), F32)])
    np.testing.assert_array_equal(result, expected)


ATOMICS = {
    "add": (mgpu.atomic_add, np.add),
    "max": (mgpu.atomic_max, np.maximum),
    "min": (mgpu.atomic_min, np.minimum),
    "and": (mgpu.atomic_and, np.bitwise_and),
    "or": (mgpu.atomic_or, np.bitwise_or),
    "xor": (mgpu.atomic_xor, np.bitwise_xor),
}


@pytest.mark.parametrize("name", ATOMICS)
@pytest.mark.parametrize("seed", [None, 0])
def test_atomics_of_all_ctas_come_together_in_gmem(name, seed):
    operation, combine = ATOMICS[name]
    values = np.random.default_rng(0).integers(1, 99, (8, 128)).astype(np.int32)

    def body(x_ref, out_ref):
        rank = lax.axis_index("i")
        done = pl.get_global(mgpu.SemaphoreType.REGULAR)
        pl.when(rank == 0)(lambda: out_ref.__setitem__(..., x_ref[0]))
        pl.when(rank == 0)(lambda: mgpu.semaphore_signal(done, 8))

        @pl.when(rank > 0)
        def _combine():
            mgpu.semaphore_wait(done, 1)
            operation(out_ref, x_ref[rank])

    result = run(
        body,
        values,
        out=jax.ShapeDtypeStruct((128,), jnp.int32),
        grid=(8,),
        grid_names=("i",),
        interpret=mgpu.InterpretGPUParams(seed=seed),
    )
    np.testing.assert_array_equal(result, combine.reduce(values))


def test_atomics_work_on_smem_and_take_scalars():
    def body(x_ref, out_ref, buffer):
        buffer[...] = x_ref[...]
        mgpu.atomic_add(buffer.at[0], 2.5)
        mgpu.atomic_max(buffer.at[1, pl.ds(0, 32)], jnp.full((32,), 70.0))
        out_ref[...] = buffer[...]

    expected = X.copy()
    expected[0] += 2.5
    expected[1, :32] = np.maximum(expected[1, :32], 70)
    np.testing.assert_array_equal(run(body, X, scratch=[mgpu.SMEM((32, 64), F32)]), expected)


VIEWS = {
    "transpose": (lambda r: r.T, lambda a: a.T),
    "transpose_ref": (lambda r: mgpu.transpose_ref(r, (1, 0)), lambda a: a.T),
    "slice of a transpose": (lambda r: r.T.at[pl.ds(8, 16), pl.ds(3, 5)], lambda a: a.T[8:24, 3:8]),
    "transpose of a slice": (lambda r: r.at[pl.ds(8, 16)].T, lambda a: a[8:24].T),
    "reshape": (lambda r: r.reshape(16, 128), lambda a: a.reshape(16, 128)),
    "slice of a reshape": (lambda r: r.reshape(4, 8, 64).at[2, pl.ds(1, 4)], lambda a: a.reshape(4, 8, 64)[2, 1:5]),
    "reshape of a row": (lambda r: r.at[7].reshape(8, 8), lambda a: a[7].reshape(8, 8)),
    "reshape of rows": (lambda r: r.at[pl.ds(4, 4)].reshape(256), lambda a: a[4:8].reshape(256)),
    "slices of slices": (lambda r: r.at[pl.ds(4, 20)].at[pl.ds(2, 8), 5], lambda a: a[6:14, 5]),
    "strided": (lambda r: r.at[pl.ds(1, 8, 3)], lambda a: a[1:25:3]),
    "transposed 3D": (
        lambda r: mgpu.transpose_ref(r.reshape(4, 8, 64), (2, 0, 1)).at[3],
        lambda a: a.reshape(4, 8, 64).transpose(2, 0, 1)[3],
    ),
}


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_read_as_numpy_reads_them(name):
    view, expected = VIEWS[name]

    def body(x_ref, out_ref, buffer):
        buffer[...] = x_ref[...]
        out_ref[...] = view(buffer)[...]

    out = jax.ShapeDtypeStruct(expected(X).shape, F32)
    np.testing.assert_array_equal(run(body, X, out=out, scratch=[mgpu.SMEM((32, 64), F32)]), expected(X))


@pytest.mark.parametrize("name", VIEWS)
def test_views_are_written_as_numpy_writes_them(name):
    view, of_array = VIEWS[name]

    def body(x_ref, out_ref, buffer):
        buffer[...] = x_ref[...]
        part = view(buffer)
        part[...] = part[...] * 2 + 1
        out_ref[...] = buffer[...]

    expected = X.copy()
    of_array(expected)[...] = of_array(X) * 2 + 1
    np.testing.assert_array_equal(run(body, X, scratch=[mgpu.SMEM((32, 64), F32)]), expected)


@pytest.mark.parametrize("source", [jnp.float32, jnp.bfloat16, jnp.float16, jnp.int32, jnp.uint8])
@pytest.mark.parametrize("target", [jnp.uint32, jnp.int16, jnp.bfloat16, jnp.int8])
@pytest.mark.parametrize("space", ["smem", "gmem"])
def test_a_bitcast_ref_shows_the_bytes(source, target, space):
    raw = np.random.default_rng(0).integers(0, 120, (16, 256), dtype=np.uint8)
    x = raw.view(jnp.dtype(source))
    # JAX's rule for the shape: the dimension before the last grows or shrinks.
    scale = np.dtype(source).itemsize / np.dtype(target).itemsize
    shape = (int(x.shape[0] * scale), x.shape[1])

    def body(x_ref, out_ref, buffer):
        ref = x_ref
        if space == "smem":
            buffer[...] = x_ref[...]
            ref = buffer
        out_ref[...] = ref.bitcast(target)[...]

    result = run(body, x, out=jax.ShapeDtypeStruct(shape, target), scratch=[mgpu.SMEM(x.shape, source)])
    np.testing.assert_array_equal(np.asarray(result).view(np.uint8).ravel(), x.view(np.uint8).ravel())


CUTS = {
    "dimension 1 with start 1, size 32 and step 1": lambda ref, _: ref[:, 1:33],
    "dimension 1 with start 0, size 24 and step 1": lambda ref, _: ref[:, :24],
    "dimension 0 with start 0, size 16 and step 2": lambda ref, _: ref[pl.ds(0, 16, 2)],
    "dimension 0 with an integer index": lambda ref, _: ref[3],
    "begins at 1, inside a tile: tile is tiled by 32": lambda ref, offset: ref[:, pl.ds(offset, 32)],
    "begins at 1, inside a tile: tile is tiled by 8": lambda ref, offset: ref.at[:, pl.ds(32, 32)][pl.ds(offset, 8)],
}


@pytest.mark.parametrize("what", CUTS)
def test_a_part_of_tiled_smem_consists_of_whole_tiles(what):
    transforms = (mgpu.TilingTransform((8, 32)), mgpu.SwizzleTransform(128))

    def body(x_ref, at_ref, out_ref, tile):
        tile[...] = x_ref[...]
        out_ref[0] = jnp.sum(CUTS[what](tile, at_ref[0]))

    def sum_part(offset):
        scratch = [mgpu.SMEM((32, 64), F32, transforms=transforms)]
        return run(body, X, np.array([offset], np.int32), out=jax.ShapeDtypeStruct((1,), F32), scratch=scratch)

    expected = mgpu.errors.OutOfBoundsError if "begins" in what else mgpu.errors.KernelTypeError
    with pytest.raises(expected, match=rf"^test_accesses.py:\d+ .*{what}"):
        sum_part(1)
    if "begins" in what:
        assert sum_part(0).shape == (1,)


def test_members_of_a_union_take_turns_in_the_same_bytes():
    big = mgpu.SMEM((32, 64), F32)
    pair = (mgpu.SMEM((32, 32), jnp.bfloat16), [mgpu.SMEM((32, 32), jnp.int32)])
    union = mgpu.RefUnion(big, pair)
    assert union.nbytes == 32 * 64 * 4

    def body(x_ref, out_ref, union_ref, full):
        whole, (left, (right,)) = union_ref
        mgpu.copy_gmem_to_smem(x_ref, whole, full)
        mgpu.barrier_wait(full)
        values = whole[...]
        left[...] = values[:, :32].astype(jnp.bfloat16)
        right[...] = values[:, 32:].astype(jnp.int32)
        out_ref[:, :32] = left[...].astype(F32)
        out_ref[:, 32:] = right[...].astype(F32)

    x = (X % 128).astype(np.float32)
    np.testing.assert_array_equal(run(body, x, scratch=[union, mgpu.Barrier()]), x)


def test_reading_a_union_through_the_wrong_member_shows_the_other_ones_bytes():
    def body(x_ref, out_ref, union_ref):
        floats, integers = union_ref
        floats[...] = x_ref[...]
        out_ref[...] = integers[...]

    union = mgpu.RefUnion(mgpu.SMEM((32, 64), F32), mgpu.SMEM((32, 64), jnp.int32))
    result = run(body, X, out=jax.ShapeDtypeStruct((32, 64), jnp.int32), scratch=[union])
    np.testing.assert_array_equal(result, X.view(np.int32))


def test_members_of_a_union_begin_where_the_device_puts_them():
    """Each at a multiple of 1024 bytes, so the second of a pair lies on the second half of 2 KiB."""
    union = mgpu.RefUnion(mgpu.SMEM((2, 256), F32), (mgpu.SMEM((256,), jnp.bfloat16), mgpu.SMEM((128,), F32)))

    def body(x_ref, out_ref, union_ref):
        whole, (_, second) = union_ref
        whole[...] = x_ref[...]
        out_ref[...] = second[...]

    x = np.arange(512, dtype=np.float32).reshape(2, 256)
    np.testing.assert_array_equal(run(body, x, out=jax.ShapeDtypeStruct((128,), F32), scratch=[union]), x[1, :128])


def test_wgmma_and_tma_work_on_members_of_a_union():
    transforms = (mgpu.TilingTransform((8, 64)), mgpu.SwizzleTransform(128))
    tile = mgpu.SMEM((64, 64), jnp.bfloat16, transforms=transforms)
    a = np.random.default_rng(0).integers(-3, 4, (64, 64)).astype(jnp.bfloat16)

    def body(a_ref, out_ref, union_ref, full):
        a_smem, out_smem = union_ref
        mgpu.copy_gmem_to_smem(a_ref, a_smem, full)
        mgpu.barrier_wait(full)

        def multiply(acc):
            mgpu.wgmma(acc, a_smem, a_smem)
            return acc[...]

        out_smem[...] = pl.run_scoped(multiply, mgpu.ACC((64, 64)))
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(out_smem, out_ref)
        mgpu.wait_smem_to_gmem(0)

    result = run(
        body,
        a,
        out=jax.ShapeDtypeStruct((64, 64), F32),
        scratch=[mgpu.RefUnion(tile, mgpu.SMEM((64, 64), F32)), mgpu.Barrier()],
    )
    np.testing.assert_array_equal(result, a.astype(np.float32) @ a.astype(np.float32))


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_random_slices_of_random_views(data):
    """Any chain of slices, transposes and reshapes of whole buffers reads what NumPy's view of it holds."""
    steps = data.draw(st.lists(st.sampled_from(["slice", "index", "transpose"]), min_size=1, max_size=4))
    expected, plan = X.reshape(4, 8, 64), []
    for step in steps:
        if step == "transpose":
            order = tuple(data.draw(st.permutations(range(expected.ndim))))
            expected, plan = expected.transpose(order), [*plan, ("transpose", order)]
            continue
        axis = data.draw(st.integers(0, expected.ndim - 1))
        start = data.draw(st.integers(0, expected.shape[axis] - 1))
        size = data.draw(st.integers(1, expected.shape[axis] - start))
        is_index = step == "index" and expected.ndim > 1
        index = [slice(None)] * expected.ndim
        index[axis] = start if is_index else slice(start, start + size)
        plan.append(
            (
                "at",
                tuple(
                    start if i == axis and is_index else pl.ds(start, size) if i == axis else slice(None)
                    for i in range(expected.ndim)
                ),
            )
        )
        expected = expected[tuple(index)]

    def body(x_ref, out_ref, buffer):
        buffer[...] = x_ref[...].reshape(4, 8, 64)
        ref = buffer
        for kind, argument in plan:
            ref = mgpu.transpose_ref(ref, argument) if kind == "transpose" else ref.at[argument]
        out_ref[...] = ref[...]

    out = jax.ShapeDtypeStruct(expected.shape, F32)
    np.testing.assert_array_equal(run(body, X, out=out, scratch=[mgpu.SMEM((4, 8, 64), F32)]), expected)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, s: mgpu.load(3, ()), r"load: src must be a ref in SMEM or GMEM"),
        (lambda x, s: mgpu.load(s, layout=mgpu.Layout.WGMMA), r"repeats every \[64, 8\] elements"),
        (lambda x, s: mgpu.store(x, jnp.zeros((32, 64))), r"no optimized store to GMEM.*optimized=False"),
        (lambda x, s: mgpu.store(s, jnp.zeros((32, 64), jnp.int32)), r"value is int32\[32, 64\] but ref is float32"),
        (lambda x, s: mgpu.atomic_xor(s, jnp.zeros((32, 64))), r"atomic_xor: works on integers"),
        (lambda x, s: mgpu.atomic_add(s, jnp.zeros((3,))), r"value is float32\[3\] but ref is float32\[32, 64\]"),
        (lambda x, s: mgpu.transpose_ref(s, (0, 2)), r"permutation \(0, 2\) does not order the 2 dimensions"),
        (lambda x, s: mgpu.transform_ref(s, 3), r"takes a ref and a transform of it"),
        (lambda x, s: mgpu.transpose_ref(jnp.zeros(3), (0,)), r"ref must be a ref"),
    ],
)
def test_misuse_names_the_line_and_the_remedy(call, message):
    def body(x_ref, out_ref, buffer):
        call(x_ref, buffer)

    with pytest.raises(mgpu.errors.KernelTypeError, match=r"^test_accesses.py:\d+ .*" + message):
        run(body, X, scratch=[mgpu.SMEM((32, 64), F32)])


def test_a_reshape_that_would_copy_is_refused():
    def body(x_ref, out_ref, buffer):
        buffer.at[:, pl.ds(0, 32)].reshape(1024)[...] = jnp.zeros(1024)

    with pytest.raises(mgpu.errors.Unsupported, match=r"reshape of a slice of buffer that is not contiguous"):
        run(body, X, scratch=[mgpu.SMEM((32, 64), F32)])


def test_unions_hold_smem_only():
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"members must be SMEM types"):
        mgpu.RefUnion(mgpu.GMEM((8,), F32))
    with pytest.raises(mgpu.errors.KernelTypeError, match=r"give at least one SMEM type"):
        mgpu.RefUnion()


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda union: union.__setitem__(..., jnp.zeros(8)), r"a union cannot be assigned to\. Unpack it"),
        (lambda union: union[...], r"a union is indexed with Ellipsis\. Unpack it"),
    ],
)
def test_a_union_is_unpacked_before_use(use, message):
    def body(x_ref, out_ref, union):
        use(union)

    with pytest.raises(mgpu.errors.KernelTypeError, match=r"^test_accesses.py:\d+ RefUnion: " + message):
        run(body, X, scratch=[mgpu.RefUnion(mgpu.SMEM((8,), F32))])
