"""The thread that multiplies ahead of the simulation."""

import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import pallas as pl

import mgpu
from mgpu.sim import multiplier as multiplier_module
from mgpu.sim import products
from mgpu.sim.multiplier import Multiplier, new_multiplier
from support.kernels import swizzled


class Job:
    def __init__(self, begins=None, result=None, computed=None):
        self.begins = begins
        self.done = threading.Event()
        self.thread = None
        self.result = result
        self.computed = computed  # list that it adds itself to

    def compute(self):
        self.thread = threading.current_thread()
        if self.begins is not None:
            self.begins.wait(10)
        if isinstance(self.result, Exception):
            raise self.result
        if self.computed is not None:
            self.computed.append(self)
        self.done.set()


def test_jobs_are_computed_in_another_thread_newest_first():
    multiplier, may_begin = Multiplier(), threading.Event()
    first = Job(begins=may_begin)
    multiplier.submit(first)
    while first.thread is None:
        pass
    order = []
    later = [Job(computed=order), Job(computed=order)]
    for job in later:
        multiplier.submit(job)
    may_begin.set()
    assert all(job.done.wait(10) for job in (first, *later))
    assert first.thread is not threading.current_thread()
    assert order == later[::-1]
    multiplier.close()
    assert not first.thread.is_alive()


def test_closing_drops_what_has_not_begun():
    multiplier, may_begin = Multiplier(), threading.Event()
    first, second = Job(begins=may_begin), Job()
    multiplier.submit(first)
    while first.thread is None:
        pass
    multiplier.submit(second)
    threading.Timer(0.05, may_begin.set).start()
    multiplier.close()
    assert first.done.is_set()
    assert not second.done.is_set()


def test_without_jobs_there_is_no_thread():
    before = threading.active_count()
    multiplier = Multiplier()
    assert threading.active_count() == before
    multiplier.close()


@pytest.mark.parametrize(("cores", "found"), [({0}, False), ({0, 1}, True)])
def test_one_core_has_nobody_to_multiply_ahead(monkeypatch, cores, found):
    monkeypatch.setattr(multiplier_module.os, "sched_getaffinity", lambda _: cores, raising=False)
    assert (new_multiplier() is not None) == found


def multiply_on_tensor_core(a, b):
    def body(a, b, out, a_smem, b_smem, barrier):
        mgpu.copy_gmem_to_smem(a, a_smem, barrier)
        mgpu.copy_gmem_to_smem(b, b_smem, barrier)
        mgpu.barrier_wait(barrier)

        def accumulate(acc):
            mgpu.wgmma(acc, a_smem, b_smem)
            return acc[...]

        out[...] = pl.run_scoped(accumulate, mgpu.ACC((64, 64)))

    return mgpu.kernel(
        body,
        out_type=jax.ShapeDtypeStruct((64, 64), jnp.float32),
        scratch_types=[swizzled(64, 64, dtype=jnp.bfloat16)] * 2 + [mgpu.Barrier(num_arrivals=2)],
    )(a, b)


@pytest.fixture
def always_ahead(monkeypatch):
    """Every product is computed by the thread before it is added up."""
    monkeypatch.setattr(products, "FULL_FLOPS", 1)
    monkeypatch.setattr(multiplier_module.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    finish, found = products.Product.finish, []

    def wait_and_finish(self):
        while self._product is None:
            pass
        found.append(self)
        finish(self)

    monkeypatch.setattr(products.Product, "finish", wait_and_finish)
    return found


@pytest.mark.parametrize("wrap", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_kernel_multiplies_ahead_with_subnormal_numbers(always_ahead, wrap):
    """XLA's threads flush these to zero, and a thread inherits how the one that starts it treats them."""
    a, b = np.full((64, 64), 2.0**-130, jnp.bfloat16), np.eye(64, dtype=jnp.bfloat16)
    np.testing.assert_array_equal(np.asarray(wrap(multiply_on_tensor_core)(a, b)), np.float32(2.0**-130))
    assert len(always_ahead) == 1


def test_a_job_that_fails_is_left_to_the_simulation(monkeypatch):
    errors = []
    monkeypatch.setattr(threading, "excepthook", errors.append)
    multiplier = Multiplier()
    failing = Job(result=MemoryError())
    multiplier.submit(failing)
    while not errors:
        pass
    multiplier.submit(Job())
    multiplier.close()
    assert errors[0].exc_type is MemoryError
