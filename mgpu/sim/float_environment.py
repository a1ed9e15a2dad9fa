"""The floating-point environment of a simulation: subnormal numbers are numbers, as on the device.

XLA runs callbacks on threads that flush subnormal numbers to zero. NumPy's arithmetic there would do so too, and
a kernel would give other values inside `jax.jit` than outside.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import sys
from collections.abc import Iterator

_Environment = ctypes.c_char * 256  # room enough: glibc's fenv_t has 32 bytes on x86-64 and 8 on aarch64
_DEFAULT_ENVIRONMENT = ctypes.c_void_p(-1)  # FE_DFL_ENV of glibc and musl


@contextlib.contextmanager
def subnormal_numbers() -> Iterator[None]:
    """Keeps subnormal numbers in this thread while it is open. Does nothing where the C library is not Linux's."""
    if not sys.platform.startswith("linux"):
        yield
        return
    library, saved = _c_library(), _Environment()
    library.fegetenv(saved)
    library.fesetenv(_DEFAULT_ENVIRONMENT)
    try:
        yield
    finally:
        library.fesetenv(saved)


@functools.cache
def _c_library() -> ctypes.CDLL:
    """Kept, because each of these objects makes classes, which only a cyclic collection would free."""
    return ctypes.CDLL(None)
