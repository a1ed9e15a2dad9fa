"""Every example runs as a script would, and prints what its `.out` file says."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from support.examples import EXAMPLES, load_example

WITH_OUTPUT = sorted(path.stem for path in EXAMPLES.glob("*.out"))


def test_the_course_has_its_first_examples() -> None:
    assert {"01_copy", "02_pipelined_copy", "03_matmul"} <= set(WITH_OUTPUT)


@pytest.mark.parametrize("name", WITH_OUTPUT)
def test_output_is_the_expected_one(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    load_example(name).main([])
    assert capsys.readouterr().out == (EXAMPLES / f"{name}.out").read_text()


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
