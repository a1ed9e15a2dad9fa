"""The tutorial's matmuls compute a matmul, with one tile for each CTA and with several."""

import numpy as np
import pytest

from benchmarks.accuracy.gluon import KINDS, NUM_SMS, TILE_M, TILE_N, make_gluon_matmul
from mgpu import get_races, reset
from mgpu.launch.device_choice import device


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("rows", "columns"), [(2, 3), (12, 12)])
def test_values(kind: str, rows: int, columns: int) -> None:
    assert (rows * columns > NUM_SMS) == (rows == 12), "the larger one has more tiles than SMs"
    m, n, k = rows * TILE_M, columns * TILE_N, 256
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    reset()
    with device("h100"):
        out = np.asarray(make_gluon_matmul(kind, m, n, k)(a, b), np.float32)
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))
    assert not get_races()
