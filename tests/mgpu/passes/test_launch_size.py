"""Launches that no GPU takes, or that no simulation ends, are refused at once."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mgpu
from mgpu.errors import ResourceError
from mgpu.profile_window import ProfileWindow

F32 = jnp.float32
X = np.ones(128, np.float32)


def copy(x, out):
    out[...] = x[...]


def nothing(x, out):
    del x, out


def run(body=copy, out=(128,), **options):
    return mgpu.kernel(body, out_type=jax.ShapeDtypeStruct(out, F32), **options)(X)


def recorded(tmp_path, profile_space, **options):
    return mgpu.CompilerParams(profile_space=profile_space, profile_dir=str(tmp_path), **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"grid": (2**31,)}, r"grid=\(2147483648,\) has 2,147,483,648 CTAs along x, CUDA takes at most 2,147,483,647"),
        ({"grid": (70_000, 2)}, r"grid=\(70000, 2\) has 70,000 CTAs along y, CUDA takes at most 65,535: the last axis"),
        ({"grid": (300, 300, 2, 2)}, r"has 90,000 CTAs along z, CUDA takes at most 65,535"),
        ({"grid": (40_000, 2), "cluster": (2, 1)}, r"with cluster=\(2, 1\) has 80,000 CTAs along y"),
        ({"grid": (2**31 - 1,)}, r"takes more than 4,294,967,294 simulation events; max_events is 500,000,000"),
    ],
)
def test_absurd_grids_are_refused_at_once(options, text):
    begin = time.process_time()
    names = {kind + "_names": tuple(f"{kind}{i}" for i in range(len(options[kind]))) for kind in options}
    with pytest.raises(ResourceError, match=r"test_launch_size.py:\d+ kernel copy: .*" + text):
        run(**options, **names)
    assert time.process_time() - begin < 20


def test_a_run_that_may_end_within_its_events_is_not_refused():
    events = mgpu.InterpretGPUParams(max_events=1000)
    assert run(nothing, grid=(10,), grid_names=("x",), interpret=events).shape == (128,)


def test_operands_have_to_fit_into_the_memory_of_the_gpu():
    text = r"kernel nothing: needs 128.0 GiB of GMEM for its operands, h100 has 74.5 GiB. Largest: out 128.0 GiB"
    with mgpu.device("h100"), pytest.raises(ResourceError, match=text):
        run(nothing, out=(2**28, 128))


@pytest.mark.parametrize(("ctas", "fits"), [(1, "9,999,999,"), (1000, "9,999,")])
def test_event_buffers_have_to_fit_into_the_memory_of_the_gpu(tmp_path, ctas, fits):
    text = rf"for the event buffers of {ctas:,} CTAs with profile_space=20,000,000,000, .* of at most {fits}"
    with mgpu.device("h100"), pytest.raises(ResourceError, match=text):
        run(grid=(ctas,), grid_names=("x",), compiler_params=recorded(tmp_path, 2 * 10**10))


def test_ctas_outside_the_window_need_no_event_buffer(tmp_path):
    window = ProfileWindow(ctas=range(1))
    params = recorded(tmp_path, 10**9, profile_window=window)
    assert run(nothing, grid=(100,), grid_names=("x",), compiler_params=params).shape == (128,)
