"""What simulations set in the process: BLAS threads, the cyclic collector, and what becomes of freed memory.

While any of them runs, BLAS uses one thread and nothing is collected. Both settings belong to the process, and several
simulations may run in threads: the first one to begin sets them, the last one to end restores what was there before.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
from collections.abc import Sequence

import numpy as np
import threadpoolctl

_LARGEST_LEARNT_BYTES = (32 << 20) - (1 << 16)  # with what malloc adds, below its limit of 32 MiB


class _SharedSettings:
    """The settings, and how many simulations rely on them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._undo = contextlib.ExitStack()

    def __enter__(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                _keep_freed_memory()
                # A tile's matmul is too small for several threads: they spin against each other.
                libraries = _blas().lib_controllers
                self._undo.callback(_set_blas_threads, [library.num_threads for library in libraries])
                _set_blas_threads([1] * len(libraries))
                # A run makes many objects and leaves no cycles behind, but a collection visits all that JAX has made.
                if gc.isenabled():
                    gc.disable()
                    self._undo.callback(gc.enable)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._undo.close()


@functools.cache
def _keep_freed_memory() -> None:
    """Lets glibc keep up to 64 MiB that are freed, for the next launch, which would have to wait for new pages.

    It keeps twice as much as the largest block of up to 32 MiB that it has taken from the system by itself and given
    back (mallopt(3), M_MMAP_THRESHOLD). No page of this one is touched; other C libraries just free it.
    """
    np.empty(_LARGEST_LEARNT_BYTES, np.uint8)


@functools.cache
def _blas() -> threadpoolctl.ThreadpoolController:
    """Finding the libraries means reading the process's memory map, so it is done once; NumPy and SciPy are loaded."""
    return threadpoolctl.ThreadpoolController().select(user_api="blas")


def _set_blas_threads(counts: Sequence[int]) -> None:
    for library, count in zip(_blas().lib_controllers, counts, strict=True):
        # From threadpoolctl 3.8 on, OpenBLAS obeys one Python thread until that lets go. Here the last simulation to
        # end restores what the first one set, from whichever thread.
        let_go = getattr(library, "clear_controlling_thread", None)
        if let_go is not None:
            let_go(force=True)
        library.set_num_threads(count)
        if let_go is not None:
            let_go(force=True)


simulation_settings = _SharedSettings()
"""Context of every simulation. One for the process, as what it sets is."""
