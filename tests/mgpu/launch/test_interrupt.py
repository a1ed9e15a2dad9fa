"""Ctrl-C while JAX, or another thread, runs a simulation that would take minutes: it ends, and says how far it came."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import mgpu
from mgpu.sim.interrupts import Interrupts
from mgpu.sim.machine import Machine

X = np.ones(128, np.float32)


def endless(x, out):
    lax.fori_loop(0, 100_000_000, lambda _, carry: out.__setitem__(..., x[...]) or carry, 0)


def wait_in_jit(kernel):
    """Catching ordinary exceptions does not keep the loop alive."""
    while True:
        with contextlib.suppress(Exception):
            jax.jit(kernel)(X).block_until_ready()


def handle_what_a_loop_in_jit_raises(kernel):
    """The handler of JAX's own error is left before it does anything."""
    try:
        jax.jit(lambda x: lax.fori_loop(0, 3, lambda _, y: kernel(y), x))(X).block_until_ready()
    except Exception:
        os._exit(0)


def wait_for_a_thread_of_jax(kernel):
    """A kernel whose operand is not there yet runs on a thread of JAX's."""
    product = jax.jit(lambda a: (a @ a @ a)[0, :128])
    a = jnp.ones((1500, 1500), jnp.float32)
    product(a).block_until_ready()
    jax.jit(kernel)(product(a)).block_until_ready()


def wait_for_own_threads(kernel):
    """Both threads stop, so the process can end."""
    jax.jit(kernel).lower(X)  # the main thread has traced a kernel

    def run():
        try:
            kernel(X)
        except KeyboardInterrupt as interrupt:
            os.write(sys.stderr.fileno(), f"{interrupt}\n".encode())  # in one piece

    threads = [threading.Thread(target=run) for _ in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        time.sleep(0.01)  # an interrupted join would take its thread for finished


_ALL = (wait_in_jit, handle_what_a_loop_in_jit_raises, wait_for_a_thread_of_jax, wait_for_own_threads)
WAYS = {way.__name__: way for way in _ALL}


@pytest.mark.parametrize(("way", "simulations"), [(name, 2 if "own" in name else 1) for name in WAYS])
def test_ctrl_c_ends_simulations(way, simulations):
    command = [sys.executable, "-W", "ignore", __file__, way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            for _ in range(simulations):
                assert child.stdout is not None
                assert child.stdout.readline() == "simulating\n"
            time.sleep(0.2)  # so that there is something to be said about how far it came
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=60)
        finally:
            child.kill()
    assert child.returncode != 0
    assert "KeyboardInterrupt" in errors
    said = "kernel endless: simulation stopped at cycle "
    assert errors.count(said) >= simulations, errors


def test_only_those_ctrl_c_count_that_the_program_does_not_handle():
    before = signal.set_wakeup_fd(-1)
    interrupts, handled = Interrupts(), []
    handler = signal.signal(signal.SIGINT, lambda *_: handled.append(True))
    try:
        interrupts.listen()
        signal.raise_signal(signal.SIGINT)
        assert handled == [True]
        assert interrupts.count() == 0
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        assert interrupts.count() == 1
        assert interrupts.count() == 1
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.set_wakeup_fd(before)


def test_a_descriptor_that_an_event_loop_uses_is_left_alone():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer)
    try:
        Interrupts().listen()
        assert signal.set_wakeup_fd(writer) == writer
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


if __name__ == "__main__":
    launch = Machine.launch

    def told(*args):
        os.write(sys.stdout.fileno(), b"simulating\n")  # in one piece
        launch(*args)

    setattr(Machine, "launch", told)  # noqa: B010, its parameters have names
    WAYS[sys.argv[1]](mgpu.kernel(endless, out_type=jax.ShapeDtypeStruct((128,), jnp.float32)))
