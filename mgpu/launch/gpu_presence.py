"""Lets JAX kernels be traced on a machine without a GPU, for the one that is simulated.

Kernels ask while they are traced how many SMs there are and which CUDA runtime compiles them. Those questions are
answered for the simulated GPU for as long as the trace takes.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

import jax

from mgpu.jax_internals import is_internal
from mgpu.launch.device_choice import DeviceChoice

# The CUDA runtime that the simulated GPU is taken to be programmed with: 13.0. Its only use is to be asked for.
CUDA_RUNTIME_VERSION = 13000

_NOT_THERE = object()
_tracing = threading.RLock()


@contextlib.contextmanager
def as_if_on_gpu(choice: DeviceChoice) -> Iterator[None]:
    """Answers a kernel's questions about its GPU with the simulated one while a `with` block traces.

    The devices that `jax.devices()` lists have the simulated number of SMs as their `core_count`, and modules that took
    `cuda_versions` from a jaxlib without CUDA (it is None there) get a stand-in. Other threads that trace wait.
    """
    versions = types.SimpleNamespace(cuda_runtime_get_version=lambda: CUDA_RUNTIME_VERSION)
    device_class: Any = type(jax.devices()[0])
    with _tracing, contextlib.ExitStack() as undo:
        _replace(undo, device_class, "core_count", property(lambda _: choice.num_sms))
        for module in list(sys.modules.values()):
            if _lacks_cuda(module):
                _replace(undo, module, "cuda_versions", versions)
        yield


def _replace(undo: contextlib.ExitStack, owner: Any, name: str, value: Any) -> None:
    previous = vars(owner).get(name, _NOT_THERE)
    setattr(owner, name, value)
    if previous is _NOT_THERE:
        undo.callback(delattr, owner, name)
    else:
        undo.callback(setattr, owner, name, previous)


def _lacks_cuda(module: Any) -> bool:
    names = getattr(module, "__dict__", {})
    return names.get("cuda_versions", _NOT_THERE) is None and not is_internal(module)
