"""The host's side of a launch, run for real: jaxlib's compiled launch code against a stand-in CUDA driver.

The stand-in keeps what `cuTensorMapEncodeTiled` is given (as `support.ptx.copies.TensorMap`) and hands each
`cuLaunchKernelEx` to Python. So shapes, shared memory, tensor maps and parameters are those of jaxlib, not a guess.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from support import mosaic_compiler
from support.ptx.machine import Launch, Machine
from support.ptx.memory import UNINITIALISED, Region
from support.ptx.parse import Kernel, parse_kernel

# Argument buffers of a kernel get addresses of their own, far apart.
_FIRST_BUFFER, _BUFFER_STEP = 1 << 36, 1 << 32

_DRIVER = """
#include <stdint.h>
#include <string.h>
struct tensor_map {
  uint32_t magic; uint8_t element, rank, swizzle, fill;
  uint64_t address, sizes[5], strides[4]; uint16_t box[5];
} __attribute__((packed));
/* Bytes of the types of CUtensorMapDataType, in its order. */
static const uint8_t type_bytes[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
int cuTensorMapEncodeTiled(void *out, int type, unsigned rank, void *address, const uint64_t *sizes,
    const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2,
    int fill) {
  struct tensor_map map = {0x70614D54, type_bytes[type], rank, swizzle, fill, (uint64_t)address};
  if (interleave || fill || swizzle > 3) return 1;
  for (unsigned i = 0; i < rank; i++) {
    if (steps[i] != 1 || box[i] > 256 || (i + 1 < rank && strides[i] % 16)) return 1;
    map.sizes[i] = sizes[i]; map.box[i] = box[i];
    if (i + 1 < rank) map.strides[i] = strides[i];
  }
  memset(out, 0, 128); memcpy(out, &map, sizeof map);
  return 0;
}
struct attribute { int id; char pad[4]; unsigned value[16]; };
struct config { unsigned shape[7]; void *stream; struct attribute *attributes; unsigned count; };
typedef void (*hook_t)(const unsigned *shape, const unsigned *cluster, void **parameters);
static hook_t hook;
void stand_in_hook(hook_t given) { hook = given; }
int cuLaunchKernelEx(const struct config *config, void *function, void **parameters, void **extra) {
  unsigned cluster[3] = {1, 1, 1};
  for (unsigned i = 0; i < config->count; i++)
    if (config->attributes[i].id == 4) memcpy(cluster, config->attributes[i].value, sizeof cluster);
  hook(config->shape, cluster, parameters);
  return 0;
}
"""

_RUN = """
import ctypes, json, os, pathlib, sys
from support.ptx.parse import parse_kernel
library, module_path, buffers = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
launches, sizes = [], []
def launched(shape, cluster, parameters):
    data = [ctypes.string_at(parameters[i], size).hex() for i, size in enumerate(sizes)]
    launches.append({"shape": shape[:7], "cluster": cluster[:3], "params": data})
driver = ctypes.CDLL("libcuda.so.1")
U, P = ctypes.POINTER(ctypes.c_uint), ctypes.POINTER(ctypes.c_void_p)
hook = ctypes.CFUNCTYPE(None, U, U, P)(launched)
driver.stand_in_hook(hook)
plugin = ctypes.CDLL(library)
compile = plugin.MosaicGpuCompile
compile.argtypes, compile.restype = [ctypes.c_char_p, ctypes.c_int], P
module = open(module_path, "rb").read()
made = compile(module, len(module))
assert made, "MosaicGpuCompile refused the module"
(ptx,) = pathlib.Path(os.environ["MOSAIC_GPU_DUMP_TO"]).glob("*.ptx")
sizes += [size for _, size in parse_kernel(ptx.read_text()).params.values()]
# function, launch function, kernel; the launch function of the ABI of JAX 0.12 takes (kernel, function, stream,
# buffers, device).
launch = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3, P, ctypes.c_int)(made[1])
launch(made[2], made[0], None, (ctypes.c_void_p * len(buffers))(*buffers), 0)
print(json.dumps(launches))
"""


@dataclasses.dataclass(frozen=True)
class Executable:
    """A compiled kernel and how the host launches it; buffer i of its arguments is at `address(i)`."""

    ptx: str
    kernel: Kernel
    launch: Launch

    @staticmethod
    def address(number: int) -> int:
        """Returns the address that argument buffer `number` has in the launch."""
        return _FIRST_BUFFER + number * _BUFFER_STEP

    def run(self, arrays: list[np.ndarray], **options: int) -> Machine:
        """Runs the launch on argument buffers: inputs, then outputs, which it fills; options as for `Machine`."""
        memory = [
            Region(f"argument {number}", self.address(number), array.reshape(-1).view(np.uint8))
            for number, array in enumerate(arrays)
        ]
        machine = Machine(self.kernel, self.launch, memory, **options)
        machine.run()
        return machine


def output_like(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Returns an output buffer as a GPU gives it: full of what was there before."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.full(count, UNINITIALISED, np.uint8).view(dtype).reshape(shape)


def compile_executable(module: bytes, num_buffers: int, folder: Path, *, capability: int = 9) -> Executable:
    """Compiles a Mosaic GPU module and runs its host code once, for the launch that it makes."""
    path = folder / "module.bc"
    path.write_bytes(module)
    driver = mosaic_compiler.build_driver(folder / "launching", capability, _DRIVER)
    buffers = [Executable.address(number) for number in range(num_buffers)]
    command = [sys.executable, "-c", _RUN, str(mosaic_compiler.plugin_library()), str(path), json.dumps(buffers)]
    environment = mosaic_compiler.environment(driver) | {
        "MOSAIC_GPU_DUMP_PTX": "1",
        "MOSAIC_GPU_DUMP_TO": str(folder),
        "PYTHONPATH": str(Path(mosaic_compiler.__file__).parents[1]),
    }
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    (made,) = json.loads(result.stdout)
    (text,) = folder.glob("*.ptx")
    kernel = parse_kernel(text.read_text())
    params = bytearray(max(offset + size for offset, size in kernel.params.values()))
    for (offset, size), data in zip(kernel.params.values(), made["params"], strict=True):
        params[offset : offset + size] = bytes.fromhex(data)
    grid, block, cluster = (tuple(axes) for axes in (made["shape"][:3], made["shape"][3:6], made["cluster"]))
    return Executable(text.read_text(), kernel, Launch(grid, block, cluster, made["shape"][6], bytes(params)))
