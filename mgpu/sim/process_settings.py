"""What simulations set in the process while any of them runs: BLAS on one thread, and no cyclic collection.

Both settings belong to the process, and several simulations may run in threads: the first one to begin sets them, the
last one to end restores what was there before.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
from collections.abc import Sequence

import threadpoolctl


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
