"""What JAX refuses while it traces a kernel is told with the author's line, through helpers, loops and pipelines."""

import functools
import linecache
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import KernelTypeError, ResourceError

F32, BF16 = jnp.float32, jnp.bfloat16
X = np.ones((64, 64), np.float32)


def run(body, **options):
    return mgpu.kernel(body, out_type=jax.ShapeDtypeStruct((64, 64), F32), **options)(X)


def line_of(text):
    """Returns the text of the line that an error names."""
    found = re.match(r"test_trace_errors\.py:(\d+) ", text)
    assert found is not None, text
    return linecache.getline(__file__, int(found[1]))


def through_a_partial(x, out):
    def helper(rows, target):
        target[...] = x[pl.ds(0, rows)]  # wrong

    functools.partial(helper, 32)(out)


def through_a_lambda(x, out):
    lax.fori_loop(0, 2, lambda _, carry: out.__setitem__(..., x[...].astype(BF16)), None)  # wrong


def through_a_pipeline(x, out):
    def step(_, rows, result):
        result[...] = rows[...].astype(BF16)  # wrong

    spec = mgpu.BlockSpec((16, 64), lambda i: (i, 0))
    mgpu.emit_pipeline(step, grid=(4,), in_specs=[spec], out_specs=[spec], max_concurrent_steps=2)(x, out)


def through_jit(x, out):
    @jax.jit
    def helper(rows):
        if rows[0, 0] > 0:  # wrong
            return rows
        return -rows

    out[...] = helper(x[...])


def a_slice_beyond_the_end(x, out):
    out[...] = x[pl.ds(32, 64)]  # wrong


def too_many_indices(x, out):
    out[...] = x[0, 0, 0]  # wrong


def a_ref_as_a_value(x, out):
    out[...] = x + 1  # wrong


def a_range(x, out):
    for row in range(x[0, 0].astype(jnp.int32)):  # wrong
        out[row] = x[row]


def a_slice_of_python(x, out):
    out[...] = x[0 : x[0, 0].astype(jnp.int32)]  # wrong


def a_size_that_is_computed(x, out):
    out[...] = x[pl.ds(0, x[0, 0].astype(jnp.int32))]  # wrong


def numpy_instead(x, out):
    out[...] = np.asarray(x[...])  # wrong


def an_axis_without_a_name(x, out):
    out[...] = x[...] * lax.axis_index("j")  # wrong


def an_axis_without_a_number(x, out):
    out[...] = x[...] * pl.program_id(3)  # wrong


def a_value_of_a_step(x, out):
    kept = []
    spec = mgpu.BlockSpec((64, 64), lambda i: (i, 0))
    mgpu.emit_pipeline(lambda _, rows: kept.append(rows[...]), grid=(1,), in_specs=[spec])(x)  # wrong
    out[...] = kept[0]


def an_index_with_a_point(x, out):
    out[x[0, 0]] = x[0]  # wrong


@pytest.mark.parametrize(
    ("body", "what", "remedy"),
    [
        (
            through_a_partial,
            r"a value of shape \(32, 64\) is stored to a part of shape \(64, 64\)",
            "Select as much of",
        ),
        (through_a_lambda, "a value of dtype bfloat16 is stored to a ref of dtype float32", r"value\.astype"),
        (through_a_pipeline, "a value of dtype bfloat16 is stored to a ref of dtype float32", r"value\.astype"),
        (through_jit, r"Python asks whether traced array with shape bool\[\] is true", r"use pl\.when\(condition\)"),
        (a_slice_beyond_the_end, "Out of bound slice: start=32, size=64, stride=1, dim=64", "check start and size"),
        (too_many_indices, r"indices=\(0, 0, 0\), shape=\(64, 64\)", "at most one index for each dimension"),
        (a_ref_as_a_value, "the operation add is applied to a ref", r"read it first, x\[\.\.\.\]"),
        (a_range, r"Python takes traced array with shape int32\[\] for an integer", r"lax\.fori_loop instead of range"),
        (a_slice_of_python, r"traced array with shape bool\[\]", r"pl\.ds\(start, size\) instead of start:end"),
        (a_size_that_is_computed, "a slice has a size that is known only when", "Sizes are Python integers"),
        (numpy_instead, r"traced array with shape float32\[64,64\]", "use jax.numpy instead of numpy"),
        (an_axis_without_a_name, "the kernel has no axis j", r"Its axes are i, wg: those of grid, cluster"),
        (an_axis_without_a_number, "the grid has no axis 3", r"Its axes are i, wg: those of grid, cluster"),
        (a_value_of_a_step, r"float32\[64,64\], made here, is used outside", "ends with the function that"),
        (an_index_with_a_point, "an index of out is float32", r"Convert it with \.astype\(jnp\.int32\)"),
    ],
)
@pytest.mark.parametrize("is_jitted", [False, True])
def test_the_line_what_was_got_and_what_to_do(body, what, remedy, is_jitted):
    options = {"grid": (1,), "grid_names": ("i",)}
    if body is not through_a_pipeline:
        options |= {"num_threads": 2, "thread_name": "wg"}
    if body is a_value_of_a_step:
        options = {}

    def launch():
        return run(body, **options)

    with pytest.raises(KernelTypeError, match=f"{what}.*{remedy}") as caught:
        (jax.jit(launch) if is_jitted else launch)()
    assert line_of(str(caught.value)).endswith("# wrong\n")


def test_a_ref_that_a_scope_returns():
    def body(x, out):
        out[...] = pl.run_scoped(lambda smem: smem, mgpu.SMEM((64, 64), F32))[...]

    with pytest.raises(KernelTypeError, match=r"a ref is used outside of its function\..*use a ref inside"):
        run(body)


def test_other_errors_keep_their_type_and_get_the_line():
    def body(x, out):
        out[...] = x[...] + x[pl.ds(0, 32)]

    with pytest.raises(TypeError, match="incompatible shapes for broadcasting") as caught:
        run(body)
    assert not isinstance(caught.value, KernelTypeError)
    (note,) = [note for note in caught.value.__notes__ if "While tracing" in note]
    assert re.fullmatch(r"While tracing test_trace_errors\.py:\d+ kernel body\.", note)


def test_the_author_s_own_errors_stay_what_they_are():
    class Mine(Exception):
        pass

    def body(x, out):
        raise Mine("not with these options")

    with pytest.raises(Mine, match="not with these options") as caught:
        run(body)
    assert str(caught.value) == "not with these options"
    assert caught.value.__notes__[-1].startswith("While tracing test_trace_errors.py:")


def test_a_result_of_the_body():
    def body(x, out):
        return x[...]

    expected = r"^test_trace_errors\.py:\d+ kernel body: the body must return None, got float32\[64,64\]\. Write to"
    with pytest.raises(KernelTypeError, match=expected):
        run(body)


def test_smem_of_a_scope_that_does_not_fit():
    def body(x, out):
        pl.run_scoped(lambda large: None, mgpu.SMEM((1024, 64), F32))

    with pytest.raises(ResourceError, match=r"Largest: large 256\.0 KiB \(test_trace_errors\.py:\d+\)\."):
        run(body)
