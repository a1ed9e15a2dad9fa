"""`pl.core_map` over `mgpu.Mesh`: kernels on JAX refs, against NumPy and against the same kernels of `mgpu.kernel`."""

from pathlib import Path

import jax
import jax.experimental.pallas.mosaic_gpu as plgpu
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.capture import Capture
from mgpu.errors import DeadlockError, KernelTypeError, Unsupported
from mgpu.launch.profile import recorded_for_gpu
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from support.gpu_lowering import kernel_texts, lower_for_gpu, recorded_edges

pytestmark = pytest.mark.filterwarnings("ignore:.*core_map is deprecated")

X = np.arange(256, dtype=np.float32)


def _add_one_by_halves(x_ref, out_ref, **options):
    """Each of two CTAs copies its half through SMEM, by TMA."""

    @pl.core_map(
        mgpu.Mesh(grid=(2,), grid_names=("half",)),
        scratch_shapes={"smem": mgpu.SMEM((128,), jnp.float32), "barrier": mgpu.Barrier()},
        **options,
    )
    def add_one(smem, barrier):
        half = pl.ds(lax.axis_index("half") * 128, 128)
        mgpu.copy_gmem_to_smem(x_ref.at[half], smem, barrier)
        mgpu.barrier_wait(barrier)
        smem[...] = smem[...] + 1
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(smem, out_ref.at[half])
        mgpu.wait_smem_to_gmem(0)


def _with_new_refs(x, **options):
    x_ref, out_ref = jax.new_ref(x), jax.new_ref(jnp.zeros_like(x))
    _add_one_by_halves(x_ref, out_ref, **options)
    return out_ref[...]


def _with_run_state(x, **options):
    _, out = pl.run_state(lambda refs: _add_one_by_halves(*refs, **options))((x, jnp.zeros_like(x)))
    return out


CASES = {
    "run_state": _with_run_state,  # JAX's concrete refs have no `.at`, so new_ref needs a trace
    "run_state, jit": jax.jit(_with_run_state),
    "run_state, from_pallas": mgpu.from_pallas(_with_run_state),
    "new_ref, jit": jax.jit(_with_new_refs),
    "new_ref, from_pallas": mgpu.from_pallas(_with_new_refs),
}


@pytest.mark.parametrize("case", CASES)
def test_refs_are_operands_of_the_kernel(case):
    np.testing.assert_array_equal(CASES[case](X), X + 1)


def test_concrete_refs_are_updated_eagerly():
    ref = jax.new_ref(X)

    @pl.core_map(mgpu.Mesh(grid=(2,), grid_names=("half",)))
    def _():
        half = pl.ds(lax.axis_index("half") * 128, 128)
        ref[half] = ref[half] * 3

    np.testing.assert_array_equal(ref[...], X * 3)


def test_an_error_in_the_simulation_arrives_as_it_was_raised():
    ref = jax.new_ref(X)
    with pytest.raises(DeadlockError, match=r"test_mesh\.py"):

        @pl.core_map(mgpu.Mesh(), scratch_shapes=[mgpu.Barrier()])
        def _(barrier):
            mgpu.barrier_wait(barrier)
            ref[...] = ref[...]


def test_inside_a_scan_the_refs_keep_their_contents():
    @jax.jit
    def run(x):
        ref = jax.new_ref(x)

        def step(carry, _):
            @pl.core_map(mgpu.Mesh())
            def double():
                ref[...] = ref[...] * 2

            return carry, None

        lax.scan(step, 0, None, length=3)
        return ref[...]

    np.testing.assert_array_equal(run(X), X * 8)


def test_control_flow_on_a_ref_clusters_and_warpgroups():
    mesh = mgpu.Mesh(grid=(2,), grid_names=("g",), cluster=(2,), cluster_names=("c",), num_threads=2, thread_name="wg")

    def kernel(refs):
        x_ref, out_ref = refs

        @pl.core_map(mesh)
        def _():
            number = (lax.axis_index("g") * 2 + lax.axis_index("c")) * 2 + lax.axis_index("wg")

            @pl.when(number < 2)
            def _():
                # Rows 0 and 1: a sum over a loop.
                total = lax.fori_loop(0, 3, lambda i, total: total + x_ref[number], jnp.zeros(128, jnp.float32))
                out_ref[number] = total

            @pl.when(number >= 2)
            def _():
                out_ref[number] = x_ref[number] - 1

    x = np.arange(8 * 128, dtype=np.float32).reshape(8, 128)
    _, out = pl.run_state(kernel)((jnp.asarray(x), jnp.zeros((8, 128), jnp.float32)))
    np.testing.assert_array_equal(out, np.concatenate([x[:2] * 3, x[2:] - 1]))


@pytest.mark.parametrize("module", [mgpu, plgpu], ids=["ours", "jax"])
def test_profile_options_record_the_launch_under_the_functions_name(tmp_path, module):
    params = module.CompilerParams(profile_space=64, profile_dir=str(tmp_path))
    jax.jit(lambda x: _with_new_refs(x, compiler_params=params))(X).block_until_ready()
    (folder,) = list_launches(str(tmp_path))
    header = Capture.load(Path(folder) / CAPTURE_FILE).header
    assert header.kernel == "add_one"
    assert {site.kind.name for site in header.sites} >= {"TMA_LOAD", "BARRIER_WAIT"}
    assert {Path(site.file).name for site in header.sites} == {"test_mesh.py"}


def test_the_timeline_is_that_of_the_same_kernel_launched_by_mgpu_kernel():
    def body(x_ref, out_ref, smem, barrier):
        half = pl.ds(lax.axis_index("half") * 128, 128)
        mgpu.copy_gmem_to_smem(x_ref.at[half], smem, barrier)
        mgpu.barrier_wait(barrier)
        smem[...] = smem[...] + 1
        mgpu.commit_smem()
        mgpu.copy_smem_to_gmem(smem, out_ref.at[half])
        mgpu.wait_smem_to_gmem(0)

    kernel = mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((256,), jnp.float32),
        scratch_types=[mgpu.SMEM((128,), jnp.float32), mgpu.Barrier()],
        grid=(2,),
        grid_names=("half",),
    )
    _, (ours,) = mgpu.profile(_with_new_refs)(X)
    _, (expected,) = mgpu.profile(kernel)(X)
    np.testing.assert_array_equal(ours.words, expected.words)
    np.testing.assert_array_equal(ours.ctas, expected.ctas)
    assert len(ours.words) > 0


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"grid": (2,)}, "names 0"),
        ({"grid": (2, 2), "grid_names": ("a", "a")}, "'a' is used twice"),
        ({"num_threads": 2}, "without thread_name"),
        ({"thread_name": "wg"}, "without num_threads"),
    ],
)
def test_a_mesh_whose_sizes_and_names_do_not_match_is_refused(fields, message):
    with pytest.raises(KernelTypeError, match=message):
        mgpu.Mesh(**fields)


def test_lowers_for_a_gpu(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    # A function of its own: JAX keeps what it made of `_with_new_refs` for the simulator.
    (text,) = kernel_texts(lower_for_gpu(lambda x: _with_new_refs(x + 1), X))
    assert "gpu.launch" in text


def test_profile_puts_a_recorder_into_the_kernel_for_a_gpu(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    run, _, _ = recorded_for_gpu(_with_new_refs, [X], 64, mgpu.TraceScope.WARPGROUP)
    (text,) = kernel_texts(lower_for_gpu(run, X))
    assert len(recorded_edges(text)) >= 2


def test_traced_scalars_program_ids_and_two_kernels_on_one_ref():
    @jax.jit
    def run(x, shift, count):
        ref = jax.new_ref(x)
        mesh = mgpu.Mesh(grid=(2,), grid_names=("half",), kernel_name="shifted")

        @pl.core_map(mesh)
        def _():
            half = pl.ds(pl.program_id(0) * 128, 128)
            ref[half] = ref[half] + shift

        @pl.core_map(mesh)
        def _():
            half = pl.ds(pl.program_id(0) * 128, 128)
            ref[half] = lax.fori_loop(0, count, lambda _, value: value + ref[half], ref[half])

        return ref[...]

    np.testing.assert_array_equal(run(X, np.float32(2), np.int32(3)), (X + 2) * 4)


def test_a_kernel_with_results_is_refused():
    def copy(x_ref, out_ref):
        out_ref[...] = x_ref[...]

    run = pl.kernel(copy, out_type=jax.ShapeDtypeStruct(X.shape, X.dtype), mesh=mgpu.Mesh(grid=(1,), grid_names=("i",)))
    with pytest.raises(Unsupported, match=r"test_mesh.py:\d+ pl.kernel over mgpu.Mesh: .* Use mgpu.kernel"):
        mgpu.from_pallas(run)(X)
