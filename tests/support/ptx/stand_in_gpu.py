"""A machine without a GPU runs JAX programs with Mosaic GPU kernels: the CPU is told to lower them as a GPU does.

JAX lowers and jaxlib compiles each kernel as for a GPU; where XLA would launch it, a handler runs its PTX on
`support.ptx.machine`. What is around a kernel (`jit`, `scan`, `vmap`, callbacks, several devices) is XLA's on the CPU.
It reaches into JAX's internals, and needs a C compiler and the packages of `support.mosaic_compiler`, whose compiler is
that of JAX 0.12 and reads the modules of JAX 0.10 too.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax._src.interpreters import mlir
from jax._src.pallas import mpmd, pallas_call
from jax.experimental.mosaic.gpu import core
from jax.experimental.pallas.ops.gpu import attention_mgpu

from support import mosaic_compiler
from support.ptx.host import Executable, compile_executable, output_like
from support.ptx.machine import Machine

TARGET = "mosaic_gpu_v2"
NUM_SMS = 4


class CudaVersions:
    """What a CUDA runtime of version 13.0 says of itself."""

    @staticmethod
    def cuda_runtime_get_version() -> int:
        """Returns the version as CUDA counts."""
        return 13000


# A handler of XLA's foreign function interface that hands a launch to Python.
_HANDLER = """
#include <stdint.h>
#include <string.h>
#include "xla/ffi/api/c_api.h"
typedef const char *(*hook_t)(const char *module, size_t size, int count, int arguments, void **data, int *types,
                              int64_t *elements);
static hook_t hook;
void set_hook(hook_t given) { hook = given; }
static void add(XLA_FFI_Buffer *buffer, int at, void **data, int *types, int64_t *elements) {
  data[at] = buffer->data; types[at] = buffer->dtype; elements[at] = 1;
  for (int64_t i = 0; i < buffer->rank; i++) elements[at] *= buffer->dims[i];
}
XLA_FFI_Error *handler(XLA_FFI_CallFrame *frame) {
  for (__auto_type e = frame->extension_start; e; e = e->next)
    if (e->type == XLA_FFI_Extension_Metadata) {
      XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)e)->metadata;
      metadata->api_version.major_version = XLA_FFI_API_MAJOR;
      metadata->api_version.minor_version = XLA_FFI_API_MINOR;
      return NULL;
    }
  XLA_FFI_ByteSpan *module = NULL;
  for (int64_t i = 0; i < frame->attrs.size; i++)
    if (frame->attrs.names[i]->len == 6 && !memcmp(frame->attrs.names[i]->ptr, "module", 6))
      module = frame->attrs.attrs[i];
  void *data[64]; int types[64], count = 0; int64_t elements[64];
  for (int64_t i = 0; i < frame->args.size; i++) add(frame->args.args[i], count++, data, types, elements);
  for (int64_t i = 0; i < frame->rets.size; i++) add(frame->rets.rets[i], count++, data, types, elements);
  const char *message = hook(module->ptr, module->len, count, frame->args.size, data, types, elements);
  if (!message) return NULL;
  XLA_FFI_Error_Create_Args args = {sizeof args, NULL, message, XLA_FFI_Error_Code_INTERNAL};
  return frame->api->XLA_FFI_Error_Create(&args);
}
"""

# Bytes of the XLA types that kernels here have (XLA_FFI_DataType).
_TYPE_BYTES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 8, 6: 1, 7: 2, 8: 4, 9: 8, 10: 2, 11: 4, 12: 8, 16: 2}


class StandInGpu:
    """Runs the kernels of a process; `launches` holds the machine of each, in order.

    Args:
      folder: for what is compiled.

    Attributes:
      options: arguments of `Machine` for the launches to come, such as `seed`.
      launches: the machines that ran, in the order of the launches.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._executables: dict[bytes, Executable] = {}
        self._lock = threading.Lock()
        self._message = b""
        self._now = 1 << 33
        self.options: dict[str, Any] = {}
        self.launches: list[Machine] = []

    def handle(self, module: Any, size: int, count: int, num_inputs: int, data: Any, types: Any, elements: Any) -> Any:
        """Runs a launch on the buffers that XLA gives; returns a message if it fails."""
        # One launch after another, on one time line, as on the stream of one device.
        with self._lock:
            try:
                self._run(ctypes.string_at(module, size), count, num_inputs, data, types, elements)
            except Exception as error:
                self._message = f"{type(error).__name__}: {error}".encode()
                return self._message
            return None

    def _run(self, module: bytes, count: int, num_inputs: int, data: Any, types: Any, elements: Any) -> None:
        key = hashlib.sha256(module).digest()
        if key not in self._executables:
            folder = self._folder / f"kernel{len(self._executables)}"
            folder.mkdir(parents=True)
            self._executables[key] = compile_executable(module, count, folder)
        arrays = []
        for number in range(count):
            num_bytes = elements[number] * _TYPE_BYTES[types[number]]
            view = (ctypes.c_uint8 * num_bytes).from_address(data[number]) if num_bytes else b""
            arrays.append(np.frombuffer(view, np.uint8))
        inputs = {data[number] for number in range(num_inputs)}
        for number in range(num_inputs, count):
            if data[number] not in inputs:  # not aliased to an input
                arrays[number][:] = output_like(arrays[number].shape, np.dtype(np.uint8))
        options = {"num_sms": NUM_SMS, "start": self._now} | self.options
        machine = self._executables[key].run(arrays, **options)
        self._now = machine.time + 4000
        self.launches.append(machine)


_HookType = ctypes.CFUNCTYPE(
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_int),
    ctypes.POINTER(ctypes.c_int64),
)
_installed: dict[str, Any] = {}
_current: list[StandInGpu] = []


def unavailable() -> str:
    """Returns why there is no stand-in here; empty if there is one."""
    available = mosaic_compiler.is_available()
    return "" if available else f"{mosaic_compiler.PACKAGES} does not name the compiler's packages"


@contextlib.contextmanager
def stand_in_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInGpu]:
    """Makes a GPU of the CPU for the `with` block: `mgpu` takes the GPU's path, and kernels run on the machine."""
    _install(folder)
    gpu = StandInGpu(folder)
    monkeypatch.setenv("MGPU_TARGET", "gpu")
    # What JAX's kernels ask for while they are traced.
    monkeypatch.setattr(type(jax.devices()[0]), "core_count", property(lambda _: NUM_SMS), raising=False)
    monkeypatch.setattr(attention_mgpu, "cuda_versions", CudaVersions)
    for module in ("mgpu.gpu.launch", "mgpu.gpu.recording"):
        monkeypatch.setattr(f"{module}.on_gpu", lambda: True)
    _current.append(gpu)
    try:
        yield gpu
        jax.effects_barrier()
    finally:
        _current.remove(gpu)


def _install(folder: Path) -> None:
    """Has XLA's CPU call the handler, and JAX lower kernels for the CPU as for a GPU; once in a process."""
    if _installed:
        return
    source, library = folder / "handler.c", folder / "handler.so"
    source.write_text(_HANDLER)
    subprocess.run(["cc", "-shared", "-fPIC", f"-I{jax.ffi.include_dir()}", "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))

    def call(module: Any, size: int, count: int, num_inputs: int, data: Any, types: Any, elements: Any) -> Any:
        if not _current:
            return ctypes.cast(ctypes.c_char_p(b"no stand-in GPU is in use"), ctypes.c_void_p).value
        message = _current[-1].handle(module, size, count, num_inputs, data, types, elements)
        return None if message is None else ctypes.cast(ctypes.c_char_p(message), ctypes.c_void_p).value

    hook = _HookType(call)
    loaded.set_hook(hook)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(loaded.handler), platform="cpu")

    def as_for_cuda(rule: Any) -> Any:
        def lower(ctx: Any, *nodes: Any, **params: Any) -> Any:
            if not params.get("interpret"):
                module_context = ctx.module_context.replace(platforms=("cuda",))
                ctx = ctx.replace(module_context=module_context, platforms=None)
            return rule(ctx, *nodes, **params)

        return lower

    for primitive in (mpmd.mpmd_map_p, pallas_call.pallas_call_p):
        mlir.register_lowering(primitive, as_for_cuda(mlir._lowerings[primitive].rule), platform="cpu")
    mlir.register_lowering(core.mosaic_gpu_p, core._mosaic_gpu_lowering_rule, platform="cpu")
    _installed.update(hook=hook, library=loaded)
