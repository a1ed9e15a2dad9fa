"""`mgpu.profile`: results are unchanged, and every launch has its capture."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu

import mgpu as plgpu
from mgpu.capture import Capture
from mgpu.errors import ParamsError, UnrecordedWarning
from mgpu.profile_dir import CAPTURE_FILE, list_launches
from support.gpu_kernels import KERNELS
from support.gpu_lowering import kernel_texts, lower_for_gpu


@pytest.fixture(autouse=True)
def _simulated(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "sim")


def foreign_copy():
    def body(x_gmem, out_gmem, smem, full):
        mosaic_gpu.copy_gmem_to_smem(x_gmem, smem, full)
        mosaic_gpu.barrier_wait(full)
        mosaic_gpu.copy_smem_to_gmem(smem, out_gmem)
        mosaic_gpu.wait_smem_to_gmem(0)

    return mosaic_gpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[mosaic_gpu.SMEM((64, 64), jnp.float32), mosaic_gpu.Barrier()],
    )


def test_own_kernel_that_does_not_ask_for_it():
    kernel, operands, expected = KERNELS["ring_copy"](None)
    out, captures = plgpu.profile(kernel)(*operands)
    np.testing.assert_array_equal(np.asarray(out), expected)
    (capture,) = captures
    assert capture.header.capacity == 1024
    assert capture.header.provenance == "simulated"
    assert capture.tracks["count"].min() > 0


def test_kernel_of_jax_in_a_jitted_loop_beside_other_operations():
    copy = foreign_copy()

    @jax.jit
    def function(x):
        return {"sum": lax.scan(lambda carry, _: (copy(carry) + 1, None), x, None, length=2)[0] * 2}

    x = np.arange(64 * 64, dtype=np.float32).reshape(64, 64)
    out, captures = plgpu.profile(function, profile_space=16, trace_scope=plgpu.TraceScope.WARP)(x)
    np.testing.assert_array_equal(np.asarray(out["sum"]), (x + 2) * 2)
    assert len(captures) == 2
    for capture in captures:
        assert capture.header.capacity == 16
        assert capture.tracks["warp"].tolist() == [0, 1, 2, 3]
        # load, wait, store, wait for the store: a begin and an end each.
        assert capture.tracks["count"].tolist() == [8, 8, 8, 8]


def test_static_arguments_pass_through():
    copy = foreign_copy()
    x = np.ones((64, 64), np.float32)
    out, captures = plgpu.profile(lambda x, *, scale: copy(x) * len(scale))(x, scale="abc")
    np.testing.assert_array_equal(np.asarray(out), 3 * x)
    assert len(captures) == 1


def test_no_kernel_no_capture():
    out, captures = plgpu.profile(jnp.sum)(np.ones(3, np.float32))
    assert (float(out), captures) == (3.0, [])


@pytest.mark.parametrize("space", [0, -1, True, 1.5])
def test_space_must_be_positive(space):
    with pytest.raises(ParamsError, match="profile_space must be a positive number of events"):
        plgpu.profile(jnp.sum, profile_space=space)


def test_on_the_gpu_each_kernel_is_instrumented(monkeypatch):
    """Without a GPU only the module can be looked at: what `profile` would compile."""
    from mgpu.launch.profile import recorded_for_gpu

    monkeypatch.setenv("MGPU_TARGET", "gpu")
    kernel, operands, _ = KERNELS["ring_copy"](None)
    copy = foreign_copy()

    def function(x, y):
        return kernel(x), copy(y)

    y = np.ones((64, 64), np.float32)
    run, _, recorder = recorded_for_gpu(function, [*operands, y], 32, plgpu.TraceScope.WARPGROUP)
    texts = kernel_texts(lower_for_gpu(run, *operands, y))
    assert [text.count("mov.u32 sm, %smid;") for text in texts] == [1, 1]
    assert recorder.captures == []


def test_kernel_that_records_itself_gets_no_second_recorder(monkeypatch, tmp_path):
    from mgpu.launch.profile import recorded_for_gpu

    monkeypatch.setenv("MGPU_TARGET", "gpu")
    kernel, operands, _ = KERNELS["ring_copy"](plgpu.CompilerParams(profile_space=8, profile_dir=str(tmp_path)))
    run, _, _ = recorded_for_gpu(kernel, operands, 32, plgpu.TraceScope.WARPGROUP)
    (text,) = kernel_texts(lower_for_gpu(run, *operands))
    assert text.count(".reg .pred mgpu_on;") == 1


def test_a_kernel_that_runs_unrecorded_is_named(monkeypatch):
    """JAX compiles the grid's loop of a `pallas_call` itself: there is no kernel yet that a recorder could go into."""
    from mgpu.launch.profile import recorded_for_gpu

    monkeypatch.setenv("MGPU_TARGET", "gpu")
    x = np.ones((64, 64), np.float32)
    add_one = pl.pallas_call(
        lambda x_ref, out_ref: out_ref.__setitem__(..., x_ref[...] + 1),
        out_shape=x,
        compiler_params=mosaic_gpu.CompilerParams(),
        name="add_one",
    )
    with pytest.warns(
        UnrecordedWarning, match=r"test_profile.py:\d+ pallas_call add_one runs on the GPU without"
    ) as found:
        recorded_for_gpu(lambda x: jax.jit(add_one)(foreign_copy()(x)), [x], 32, plgpu.TraceScope.WARPGROUP)
    assert len(found) == 1


def test_a_window_is_that_of_every_kernel():
    kernel, operands, expected = KERNELS["ring_copy"](None)
    window = plgpu.ProfileWindow(warpgroups=[1], iterations=range(2, 4))
    out, (capture,) = plgpu.profile(kernel, window=window)(*operands)
    np.testing.assert_array_equal(np.asarray(out), expected)
    assert capture.tracks["warpgroup"].tolist() == [1]
    assert [note.partition(" were recorded")[0] for note in capture.header.notes] == [
        "only warpgroups 1",
        "only iterations 2:4",
    ]


def test_captures_are_also_saved_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.setenv("MGPU_PROFILE_DIR", str(tmp_path))
    _, captures = plgpu.profile(foreign_copy())(np.ones((64, 64), np.float32))
    (saved,) = list_launches(tmp_path)
    assert Capture.load(saved / CAPTURE_FILE).header == captures[0].header


def test_imported_kernels_are_recorded_where_the_environment_says(tmp_path, monkeypatch):
    copy = plgpu.from_pallas(foreign_copy())
    x = np.ones((64, 64), np.float32)
    copy(x)
    monkeypatch.setenv("MGPU_PROFILE_DIR", str(tmp_path))
    monkeypatch.setenv("MGPU_PROFILE_SPACE", "32")
    for _ in range(2):
        np.testing.assert_array_equal(np.asarray(copy(x)), x)
    saved = [Capture.load(folder / CAPTURE_FILE) for folder in list_launches(tmp_path)]
    assert [capture.header.capacity for capture in saved] == [32, 32]
    monkeypatch.delenv("MGPU_PROFILE_DIR")
    copy(x)
    assert len(list_launches(tmp_path)) == 2
