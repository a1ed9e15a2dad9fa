"""Profiles for the dashboard's tests: a real small matmul on the simulator, and a ring worked out by hand."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import jax.numpy as jnp
import numpy as np
import pytest

import mgpu as plgpu
import profiler
from dashboard.store import LaunchStore, LoadedLaunch
from dashboard.work import PARTS
from mgpu.profile_dir import save_launch
from support.captures import ring_capture
from support.source_tree import ROOT


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def matmul_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile directory with two launches of the example's matmul, 512 x 512 x 512: two stages, then three."""
    folder = tmp_path_factory.mktemp("profile")
    generator = np.random.default_rng(0)
    a, b = (generator.standard_normal((512, 512)).astype(jnp.bfloat16) for _ in range(2))
    params = plgpu.CompilerParams(profile_space=512, profile_dir=str(folder))
    for stages in (2, 3):
        np.asarray(_example("04_warp_specialized_matmul").make_matmul(512, 512, stages=stages, params=params)(a, b))
    assert [launch.name for launch in profiler.open_profile(folder)] == ["matmul-0001", "matmul-0002"]
    return folder


@pytest.fixture(scope="session")
def attention(tmp_path_factory: pytest.TempPathFactory) -> LoadedLaunch:
    """The example's causal attention of 512 queries, loaded: three rings, two of them with two slots."""
    folder = tmp_path_factory.mktemp("attention")
    generator = np.random.default_rng(0)
    q, k, v = (generator.standard_normal((1, 512, 128)).astype(jnp.bfloat16) for _ in range(3))
    params = plgpu.CompilerParams(approx_math=True, profile_space=512, profile_dir=str(folder))
    np.asarray(_example("05_attention").make_attention(1, 512, causal=True, params=params)(q, k, v))
    return load_only(folder)


@pytest.fixture(scope="session")
def ring_profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A profile directory with the hand-made ring of `support.captures`."""
    folder = tmp_path_factory.mktemp("ring")
    save_launch(folder, ring_capture())
    return folder


@pytest.fixture(scope="session")
def ring(ring_profile: Path) -> LoadedLaunch:
    """The hand-made ring, loaded."""
    return load_only(ring_profile)


@pytest.fixture(scope="session")
def matmul(matmul_profile: Path) -> LoadedLaunch:
    """The matmul with three stages, loaded."""
    store = LaunchStore(matmul_profile)
    launch = store.find("matmul-0002")
    assert launch is not None
    return store.load(launch, PARTS)


def load_only(folder: Path) -> LoadedLaunch:
    store = LaunchStore(folder)
    launch = store.find("")
    assert launch is not None
    return store.load(launch, PARTS)
