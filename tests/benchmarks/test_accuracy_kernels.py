"""The kernels behind the accuracy page compute what their originals compute."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.accuracy import attention
from benchmarks.accuracy.attention import Attention, make_attention
from benchmarks.accuracy.blocked import Blocked, make_blocked_matmul
from benchmarks.accuracy.matmuls import Matmul, make_matmul
from benchmarks.accuracy.rings import make_ring, ring_steps
from benchmarks.accuracy.timing import F16, F32, time_kernel
from mgpu import device, get_races, profile, reset
from mgpu.devices import load_device


@pytest.mark.parametrize(
    "shape", [Blocked(128, 256, 128, 2), Blocked(64, 256, 64, 1, 2, 2), Blocked(128, 128, 64, 2, 4)], ids=str
)
def test_matmuls_of_one_tile(shape: Blocked) -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, size).astype(np.float16) for size in ((256, 512), (512, 512)))
    reset()
    with device("h100"):
        out = np.asarray(make_blocked_matmul(shape, 256, 512, 512)(a, b), np.float32)
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))
    assert not get_races()


_TOGETHER = Matmul(
    128, 256, stages=3, consumers=2, release_early=True, num_ctas=2, cluster=2, joint_store=True, handoff_cycles=400
)


def test_a_persistent_matmul_whose_consumers_store_together() -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(-3, 4, size).astype(np.float16) for size in ((512, 256), (256, 512)))
    reset()
    with device("h100"):
        out = np.asarray(make_matmul(_TOGETHER, 512, 512, 256, F16, F32)(a, b))
    np.testing.assert_array_equal(out, a.astype(np.float32) @ b.astype(np.float32))
    assert not get_races()


def test_a_handoff_is_charged_between_two_tiles() -> None:
    def cycles(tiles: int, handoff_cycles: int) -> int:
        kernel = make_matmul(
            dataclasses.replace(_TOGETHER, handoff_cycles=handoff_cycles), 256, 256 * tiles, 1024, F16, F32
        )
        shapes = [((256, 1024), F16), ((1024, 256 * tiles), F16)]
        return time_kernel(kernel, shapes, load_device("h100")).resident_cycles

    assert cycles(1, 400) == cycles(1, 0)
    # Three times 100 dependent multiplications of 4 cycles; a lane's value to begin with, a test and a fence take 40.
    assert cycles(4, 400) - cycles(4, 0) == pytest.approx(3 * 440, abs=30)


@pytest.mark.parametrize(
    ("shape", "length"),
    [
        (Attention(head_dim=64, consumers=3, block=128), 384),
        (Attention(head_dim=256, block=80), 640),
        (Attention(overlap=False), 1408),
        (Attention(ping_pong=False, specialised=False), 1408),
    ],
    ids=str,
)
def test_attention_computes_several_tiles_in_a_cta(shape: Attention, length: int, monkeypatch) -> None:
    monkeypatch.setattr(attention, "NUM_CTAS", 2)
    heads, head_dim = 2, shape.head_dim
    random = np.random.default_rng(0)
    q, k, v = (random.standard_normal((heads * length, head_dim)).astype(np.float16) for _ in range(3))
    reset()
    with device("h100"):
        out = np.asarray(make_attention(shape, heads, length)(q, k, v), np.float32)
    assert not get_races()
    for head in range(heads):
        rows = slice(head * length, (head + 1) * length)
        scores = q[rows].astype(np.float64) @ k[rows].T.astype(np.float64) / np.sqrt(head_dim)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected = weights / weights.sum(axis=1, keepdims=True) @ v[rows].astype(np.float64)
        np.testing.assert_allclose(out[rows], expected, atol=2e-3)


def test_a_ring_reads_every_byte_once() -> None:
    ctas, warps, box_bytes = 2, 2, 16 * 1024
    nbytes = ctas * warps * ring_steps(ctas, warps, box_bytes) * box_bytes
    with device("h100"):
        _, (capture,) = profile(make_ring(ctas, warps, box_bytes))(jnp.zeros((nbytes // 128, 64), jnp.bfloat16))
    assert capture.header.traffic_bytes["hbm_read"] == nbytes
