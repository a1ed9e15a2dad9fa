"""A kernel written for JAX's module runs after its import is exchanged for `mgpu`, and does what `from_pallas` does.

The sources of the kernels that ship inside the jax package are compiled with that one line changed, under their own
file names, so that both doors record the same source lines.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas.ops.gpu import (
    attention_mgpu,
    hopper_matmul_mgpu,
    hopper_mixed_type_matmul_mgpu,
    ragged_dot_mgpu,
    transposed_ragged_dot_mgpu,
)

import mgpu
from mgpu.capture import Capture, unpack_tags
from mgpu.launch.device_choice import current_choice
from mgpu.launch.gpu_presence import as_if_on_gpu

IMPORTS = (
    "import jax.experimental.pallas.mosaic_gpu as plgpu",
    "from jax.experimental.pallas import mosaic_gpu as plgpu",
)


def exchange_import(module, monkeypatch, **recorded):
    """Returns `module` with its import of JAX's language exchanged for ours, recording every kernel."""
    with open(module.__file__) as file:
        source = file.read()
    assert sum(line in source for line in IMPORTS) == 1
    for line in IMPORTS:
        source = source.replace(line, "import mgpu as plgpu")
    exchanged = types.ModuleType("exchanged_" + module.__name__.rsplit(".", 1)[-1])
    monkeypatch.setitem(sys.modules, exchanged.__name__, exchanged)  # dataclasses look their module up
    exec(compile(source, module.__file__, "exec"), exchanged.__dict__)
    vars(exchanged)["plgpu"] = Recording(recorded)
    return exchanged


class Recording(types.ModuleType):
    """`mgpu`, whose compiler parameters ask for a recording."""

    def __init__(self, recorded):
        super().__init__("mgpu")
        self._recorded = recorded

    def __getattr__(self, name):
        if name == "CompilerParams":
            return lambda **fields: mgpu.CompilerParams(**fields, **self._recorded)
        return getattr(mgpu, name)


def run_both(module, call, tmp_path, monkeypatch):
    """Runs `call(module, wrapper)` through both doors, and returns the two results and the two captures."""
    doors = [{"profile_space": 2048, "profile_dir": str(tmp_path / door)} for door in ("imported", "exchanged")]
    imported = call(module, lambda function: mgpu.from_pallas(function, compiler_params=doors[0]))
    exchanged_module = exchange_import(module, monkeypatch, **doors[1])
    with as_if_on_gpu(current_choice()):
        exchanged = call(exchanged_module, lambda function: function)
    captures = [Capture.load(next((tmp_path / door).glob("*/capture.npz"))) for door in ("imported", "exchanged")]
    return np.asarray(imported).astype(np.float32), np.asarray(exchanged).astype(np.float32), *captures


def events_of(capture, *, with_lines):
    """Returns, for each track, the kinds (and lines) of its events, and their times from the track's begin."""
    kinds = [(site.kind, site.line if with_lines else 0) for site in capture.header.sites]
    tracks, first = [], 0
    for track in capture.tracks:
        words = capture.words[first : first + int(track["count"])]
        first += len(words)
        sites, edges, _ = unpack_tags(words[:, 0])
        names = [(*kinds[site], int(edge)) for site, edge in zip(sites, edges, strict=True)]
        tracks.append((names, words[:, 1].astype(np.int64) - int(track["clock_begin"])))
    return tracks


def compare(ours, theirs, *, with_lines):
    return zip(events_of(ours, with_lines=with_lines), events_of(theirs, with_lines=with_lines), strict=True)


def integers(*shape, seed, dtype: Any = np.float16):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def matmul(module, door):
    a, b = integers(512, 512, seed=1), integers(512, 512, seed=2)
    config = module.TuningConfig(128, 128, 64, 4, cluster_dimension=module.MatmulDimension.M)
    return door(module.matmul)(a, b, None, config)


def mixed_matmul(module, door):
    a, b = integers(256, 256, seed=1, dtype=np.int8), integers(256, 512, seed=2, dtype=jnp.bfloat16)
    run = door(module.mixed_matmul_kernel)
    return run(a, b, out_dtype=jnp.float32, config=module.TuningConfig(64, 128, 64, 4))


def attention(module, door):
    q, k, v = (np.random.default_rng(s).standard_normal((1, 256, 2, 64)).astype(np.float16) for s in range(3))
    return door(module._attention_forward)(q, k, v, module.TuningConfig(64, 64, 2, causal=True))


BLOCKS = {"block_m": 64, "block_n": 64, "block_k": 64, "max_concurrent_steps": 2, "grid_block_n": 1}
SIZES = np.array([100, 0, 27, 129], np.int32)


def ragged_dot(module, door):
    lhs, rhs = integers(256, 128, seed=1), integers(4, 128, 128, seed=2)
    return door(module.ragged_dot)(lhs, rhs, group_sizes=SIZES, **BLOCKS)


def transposed_ragged_dot(module, door):
    lhs, rhs = integers(256, 128, seed=1), integers(256, 128, seed=2)
    return door(module.transposed_ragged_dot)(lhs, rhs, group_sizes=SIZES, **BLOCKS)


@pytest.mark.filterwarnings("ignore::mgpu.errors.RaceWarning")  # see test_from_pallas_kernels
@pytest.mark.parametrize(
    ("module", "call", "same_lines"),
    [
        (attention_mgpu, attention, True),
        (hopper_matmul_mgpu, matmul, False),
        (hopper_mixed_type_matmul_mgpu, mixed_matmul, False),
        (ragged_dot_mgpu, ragged_dot, False),
        (transposed_ragged_dot_mgpu, transposed_ragged_dot, False),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)).rsplit(".", 1)[-1],
)
def test_results_and_timeline_are_the_same(module, call, same_lines, tmp_path, monkeypatch):
    """A pipeline's own barriers may be attributed to the line that makes the pipeline or to the one that runs it."""
    imported, exchanged, ours, theirs = run_both(module, call, tmp_path, monkeypatch)
    np.testing.assert_array_equal(imported, exchanged)
    for (names, times), (other_names, other_times) in compare(ours, theirs, with_lines=same_lines):
        assert names == other_names
        np.testing.assert_array_equal(times, other_times)
    np.testing.assert_array_equal(ours.ctas["end"] - ours.ctas["begin"], theirs.ctas["end"] - theirs.ctas["begin"])
