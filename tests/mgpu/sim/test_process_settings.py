"""What simulations set in the process: shared by those that run at once, and restored by the last of them."""

import gc
import threading

import numpy as np
import pytest
import threadpoolctl

from mgpu.sim.process_settings import simulation_settings


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"}


@pytest.fixture(autouse=True)
def several_threads():
    assert np.ones((2, 2)).dot(np.ones((2, 2))).sum() == 8  # BLAS is loaded
    with threadpoolctl.threadpool_limits(limits=2, user_api="blas"):
        yield


def test_they_hold_while_any_simulation_runs():
    """The second one begins inside the first, in another thread, and ends after it."""
    begun, may_end, seen = threading.Event(), threading.Event(), []

    def second():
        with simulation_settings:
            begun.set()
            may_end.wait(10)
            seen.append((blas_threads(), gc.isenabled()))

    assert gc.isenabled()
    thread = threading.Thread(target=second)
    with simulation_settings:
        thread.start()
        assert begun.wait(10)
        assert (blas_threads(), gc.isenabled()) == ({1}, False)
    may_end.set()
    thread.join()
    assert seen == [({1}, False)]
    assert (blas_threads(), gc.isenabled()) == ({2}, True)


def test_an_error_restores_them():
    with pytest.raises(ZeroDivisionError), simulation_settings:
        raise ZeroDivisionError
    assert (blas_threads(), gc.isenabled()) == ({2}, True)


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with simulation_settings:
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
