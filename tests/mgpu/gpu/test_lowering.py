"""Every operation is lowered to a Mosaic GPU module, as jaxlib's compiler would get it, without a GPU."""

from __future__ import annotations

import importlib
import pkgutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jex_core

import mgpu as plgpu
import mgpu.lang
from mgpu.gpu.rules import RULES, WITHOUT_COUNTERPART
from mgpu.passes.sites import plan_sites
from support.gpu_compositions import COMPOSITIONS
from support.gpu_kernels import KERNELS
from support.gpu_lowering import (
    expected_edges,
    kernel_modules,
    kernel_texts,
    lower_for_gpu,
    program_of,
    recorded_edges,
)

ALL = KERNELS | COMPOSITIONS


@pytest.fixture(autouse=True)
def _on_gpu(monkeypatch):
    monkeypatch.setenv("MGPU_TARGET", "gpu")


def recording(tmp_path, **fields):
    return plgpu.CompilerParams(profile_space=64, profile_dir=str(tmp_path), **fields)


@pytest.mark.parametrize("name", ALL)
def test_kernel_lowers_to_a_valid_module(name):
    kernel, operands, _ = ALL[name](None)
    (text,) = kernel_texts(lower_for_gpu(kernel, *operands))
    assert "gpu.launch" in text
    assert recorded_edges(text) == []


@pytest.mark.parametrize("semantics", ["Lane", "Warpgroup"])
@pytest.mark.parametrize("name", ALL)
def test_recorded_kernel_has_an_event_for_each_edge_of_each_site(name, semantics, tmp_path):
    kernel, operands, _ = ALL[name](recording(tmp_path, lowering_semantics=plgpu.LoweringSemantics[semantics]))
    (text,) = kernel_texts(lower_for_gpu(kernel, *operands))
    sites = plan_sites(program_of(kernel, *operands)).sites
    assert recorded_edges(text) == expected_edges(sites)


@pytest.mark.parametrize("scope", list(plgpu.TraceScope))
def test_tracks_are_declared_once_and_written_once(scope, tmp_path):
    kernel, operands, _ = KERNELS["ring_copy"](recording(tmp_path, profile_trace_scope=scope))
    (text,) = kernel_texts(lower_for_gpu(kernel, *operands))
    assert text.count(".reg .pred mgpu_on;") == 1
    assert text.count("mov.u32 sm, %smid;") == 1


def test_module_is_the_same_when_nothing_is_recorded(tmp_path):
    make = KERNELS["ring_copy"]
    (plain,) = kernel_texts(lower_for_gpu(*_call(make(None))))
    assert kernel_texts(lower_for_gpu(*_call(make(plgpu.CompilerParams())))) == [plain]
    (recorded,) = kernel_texts(lower_for_gpu(*_call(make(recording(tmp_path)))))
    assert recorded != plain


def test_lowering_twice_gives_equal_bytes(tmp_path):
    first, second = (kernel_modules(lower_for_gpu(*_call(KERNELS["ring_copy"](recording(tmp_path))))) for _ in range(2))
    assert first == second


def _call(made):
    kernel, operands, _ = made
    return kernel, *operands


def primitives_of_the_language():
    names = set()
    for info in pkgutil.iter_modules(mgpu.lang.__path__):
        module = importlib.import_module(f"mgpu.lang.{info.name}")
        names |= {value.name for value in vars(module).values() if isinstance(value, jex_core.Primitive)}
    return names


def test_every_operation_has_a_rule_or_a_reason():
    names = primitives_of_the_language()
    assert "copy_gmem_to_smem" in names
    assert names == RULES.keys() | WITHOUT_COUNTERPART.keys()
    assert not RULES.keys() & WITHOUT_COUNTERPART.keys()


def test_kernels_of_this_test_use_every_rule():
    used = set()
    for make in KERNELS.values():
        kernel, operands, _ = make(None)
        used |= set(_primitives(program_of(kernel, *operands).jaxpr))
    # The simulator, which runs these kernels too, refuses inline_mgpu; test_inline_mgpu.py lowers it.
    assert RULES.keys() - used == {"inline_mgpu"}


def _primitives(jaxpr):
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in equation.params.values():
            for each in value if isinstance(value, tuple) else (value,):
                inner = getattr(each, "jaxpr", each)
                if hasattr(inner, "eqns"):
                    yield from _primitives(inner)


def test_kernel_inside_jax_transformations(tmp_path):
    kernel, (x, y), _ = KERNELS["arithmetic"](recording(tmp_path))
    stacked = np.stack([x, x, x])

    def in_loop(values, y):
        return jax.lax.scan(lambda carry, value: (carry + kernel(value, y), None), y, values)[0]

    for function in (jax.vmap(kernel, (0, None)), in_loop):
        texts = kernel_texts(lower_for_gpu(function, stacked, y))
        assert len(texts) == 1
        assert texts[0].count("mov.u32 sm, %smid;") == 1


def test_a_semaphore_keeps_its_scope():
    def body(out, semaphore):
        plgpu.semaphore_signal(semaphore, memory_scope="gpu")
        plgpu.semaphore_wait(semaphore, memory_scope="gpu")
        out[...] = jnp.zeros(128, jnp.float32)

    out = jax.ShapeDtypeStruct((128,), jnp.float32)
    (text,) = kernel_texts(lower_for_gpu(plgpu.kernel(body, out_type=out, scratch_types=[plgpu.SemaphoreType.REGULAR])))
    assert ".gpu.global." in text
    assert ".sys.global." not in text
