"""Every example runs as a script would, and prints what its `.out` file says; `make golden` renews these files."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import mgpu
from support.examples import ARGUMENTS, EXAMPLES, list_examples, load_example, run_example


def test_every_example_has_its_output() -> None:
    assert list_examples() == sorted(path.stem for path in EXAMPLES.glob("*.out"))


def test_the_readme_leads_through_every_example() -> None:
    readme = (EXAMPLES / "README.md").read_text()
    assert re.findall(r"python examples/(\w+)\.py", readme) == list_examples()
    for name, arguments in ARGUMENTS.items():
        assert f"python examples/{name}.py {' '.join(arguments)}" in readme


@pytest.mark.parametrize("name", list_examples())
def test_output_is_the_expected_one(name: str) -> None:
    assert run_example(name) == (EXAMPLES / f"{name}.out").read_text()


def test_an_example_runs_as_a_script(tmp_path) -> None:
    command = [sys.executable, EXAMPLES / "06_profile_it.py", "--size", "256", "--depth", "256"]
    search = os.pathsep.join([str(EXAMPLES.parent), os.environ.get("PYTHONPATH", "")])
    finished = subprocess.run(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": search}, capture_output=True, text=True, check=True
    )
    assert "three stages" in finished.stdout
    assert list(tmp_path.iterdir()) == []


def test_another_size_of_the_matmul() -> None:
    a, b = (
        np.random.default_rng(1).standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((128, 192), (192, 256))
    )
    result = load_example("03_matmul").make_matmul(128, 256)(a, b)
    expected = a.astype(np.float32) @ b.astype(np.float32)
    np.testing.assert_allclose(np.asarray(result, np.float32), expected, rtol=2**-7, atol=1e-2)


def test_more_slots_hide_more_of_the_memory_latency() -> None:
    measure_cycles = load_example("02_pipelined_copy").measure_cycles
    x = np.ones((256, 1024), np.float32)
    one, four = measure_cycles(x, 1), measure_cycles(x, 4)
    # One slot pays load, compute and store of every step in turn; four have three other steps to hide them behind.
    assert four < 0.6 * one


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("compute_warpgroups", [1, 2])
def test_attention_is_that_of_jax(causal: bool, compute_warpgroups: int) -> None:
    example = load_example("05_attention")
    heads, length = 2, 384
    generator = np.random.default_rng(2)
    # Scores with a wide range, so that rescaling by the running maximum matters.
    q, k, v = (3 * generator.standard_normal((heads, length, 128)).astype(jnp.bfloat16) for _ in range(3))
    attention = example.make_attention(heads, length, causal=causal, compute_warpgroups=compute_warpgroups)
    with jax.default_matmul_precision("highest"):
        # JAX's axes are (batch, length, heads, width).
        lengths_first = [x.astype(np.float32).swapaxes(0, 1)[None] for x in (q, k, v)]
        expected = jax.nn.dot_product_attention(*lengths_first, is_causal=causal)[0].swapaxes(0, 1)
    np.testing.assert_allclose(np.asarray(attention(q, k, v), np.float32), expected, rtol=2**-7, atol=0.03)


def test_attention_has_no_race_under_any_order_of_ties() -> None:
    example = load_example("05_attention")
    q = np.ones((1, 384, 128), jnp.bfloat16)
    for seed in (1, 2):
        options = mgpu.InterpretGPUParams(detect_races=True, seed=seed)
        np.testing.assert_array_equal(example.make_attention(1, 384, causal=True, interpret=options)(q, q, q), 1)


@pytest.mark.parametrize(
    ("name", "call", "says"),
    [
        ("04_warp_specialized_matmul", lambda example: example.make_matmul(256, 256, stages=1), "at least 2"),
        ("05_attention", lambda example: example.make_attention(1, 200), "multiple of 128"),
        ("05_attention", lambda example: example.make_attention(1, 256, compute_warpgroups=3), "must be 1 or 2"),
    ],
)
def test_what_an_example_cannot_do_it_says(name, call, says) -> None:
    with pytest.raises(ValueError, match=says):
        call(load_example(name))


def test_ping_pong_hides_the_softmax() -> None:
    one, two = (
        int(share) for share in re.findall(r"tensor core (\d+)% busy", (EXAMPLES / "05_attention.out").read_text())
    )
    assert two > 1.3 * one


def test_the_profile_predicts_what_the_next_run_measures() -> None:
    text = (EXAMPLES / "06_profile_it.out").read_text()
    predicted, measured = (float(number) for number in re.findall(r"(-\d+\.\d)%", text))
    assert measured < -20
    # The replay keeps the duration of every load; the ring with one more slot has more of them in flight at a time.
    assert predicted == pytest.approx(measured, abs=3)
