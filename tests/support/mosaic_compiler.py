"""jaxlib's Mosaic GPU compiler on a machine without a GPU: modules down to PTX, ptxas's report and SASS.

Needs a C compiler and the folder that MGPU_CUDA_PACKAGES names, with these packages of PyPI in it:

    pip install --no-deps --target FOLDER \
        jax-cuda13-pjrt jax-cuda13-plugin nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-nvdisasm

The compiler asks the CUDA driver for the compute capability and hands it the result; a stand-in answers. The compiler
runs in a process of its own, since it reads its settings from the environment once.
"""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

PACKAGES = "MGPU_CUDA_PACKAGES"

# Every function of the driver that the compiler calls; 75 and 76 are the capability's attributes (CUDA driver API).
_DRIVER = """
#include <stddef.h>
int cuInit(unsigned f) { return 0; }
int cuDriverGetVersion(int *v) { *v = 13000; return 0; }
int cuDeviceGetCount(int *n) { *n = 1; return 0; }
int cuDeviceGet(int *d, int i) { *d = 0; return 0; }
int cuCtxGetCurrent(void **c) { *c = (void *)1; return 0; }
int cuCtxSetCurrent(void *c) { return 0; }
int cuCtxGetDevice(int *d) { *d = 0; return 0; }
int cuDeviceGetAttribute(int *v, int a, int d) { *v = a == 75 ? MAJOR : a == 76 ? 0 : 232448; return 0; }
int cuGetErrorString(int e, const char **s) { *s = "stand-in driver"; return 0; }
int cuGetErrorName(int e, const char **s) { *s = "stand-in driver"; return 0; }
int cuModuleLoadData(void **m, const void *i) { *m = (void *)1; return 0; }
int cuModuleLoadDataEx(void **m, const void *i, unsigned n, void *o, void *v) { *m = (void *)1; return 0; }
int cuModuleGetFunction(void **f, void *m, const char *n) { *f = (void *)1; return 0; }
int cuModuleUnload(void *m) { return 0; }
int cuModuleGetGlobal_v2(void **p, size_t *n, void *m, const char *s) { *p = NULL; return 500; }
int cuFuncSetAttribute(void *f, int a, int v) { return 0; }
int cuFuncGetAttribute(int *v, int a, void *f) { *v = 0; return 0; }
int cuLibraryLoadData(void **l, const void *i, void *o, void *v, unsigned n, void *p, void *q, unsigned m) {
  *l = (void *)1; return 0;
}
int cuLibraryGetModule(void **m, void *l) { *m = (void *)1; return 0; }
int cuLibraryGetKernel(void **k, void *l, const char *n) { *k = (void *)1; return 0; }
int cuKernelGetFunction(void **f, void *k) { *f = (void *)1; return 0; }
int cuKernelSetAttribute(int a, int v, void *k, int d) { return 0; }
int cuLibraryUnload(void *l) { return 0; }
"""

_COMPILE = """
import ctypes, sys
compile = ctypes.CDLL(sys.argv[1]).MosaicGpuCompile
compile.argtypes, compile.restype = [ctypes.c_char_p, ctypes.c_int], ctypes.c_void_p
module = open(sys.argv[2], "rb").read()
sys.exit(0 if compile(module, len(module)) else "MosaicGpuCompile refused the module")
"""


@dataclasses.dataclass(frozen=True)
class Compiled:
    """What the compiler made of a module: PTX text, ptxas's report, SASS text."""

    ptx: str
    report: str
    sass: str

    @property
    def registers(self) -> int:
        """Registers per thread."""
        return int(re.findall(r"Used (\d+) registers", self.report)[0])

    @property
    def spill_bytes(self) -> int:
        """Bytes of spill stores and loads, and of stack."""
        return sum(map(int, re.findall(r"(\d+) bytes (?:stack frame|spill)", self.report)))

    def count(self, instruction: str) -> int:
        """Returns how often a SASS instruction occurs."""
        return len(re.findall(rf"\b{re.escape(instruction)}\b", self.sass))


def is_available() -> bool:
    """True if the compiler can run here."""
    return bool(os.environ.get(PACKAGES))


def compile_module(module: bytes, folder: Path, *, capability: int = 9) -> Compiled:
    """Compiles a Mosaic GPU module for a GPU of a major compute capability; `folder` is for its files."""
    driver = build_driver(folder / f"driver{capability}", capability)
    number = len(list(folder.glob("dump*")))
    dump = folder / f"dump{number}"
    dump.mkdir()
    (dump / "module.bc").write_bytes(module)
    settings = environment(driver) | {
        "MOSAIC_GPU_DUMP_PTX": "1",
        "MOSAIC_GPU_DUMP_PTXAS": "1",
        "MOSAIC_GPU_DUMP_SASS": "1",
        "MOSAIC_GPU_DUMP_TO": str(dump),
    }
    command = [sys.executable, "-c", _COMPILE, str(plugin_library()), str(dump / "module.bc")]
    result = subprocess.run(command, env=settings, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-3000:]
    texts = (sorted(dump.glob(pattern)) for pattern in ("*.ptx", "*.ptxas", "*.sass*"))
    return Compiled(*("".join(path.read_text() for path in paths) for paths in texts))


def build_driver(folder: Path, capability: int, more: str = "") -> Path:
    """Builds the stand-in driver, with more functions in C if given, in `folder` once; returns `folder`."""
    if not folder.exists():
        folder.mkdir(parents=True)
        (folder / "cuda.c").write_text(_DRIVER + more)
        output = ["-o", str(folder / "libcuda.so.1"), str(folder / "cuda.c")]
        subprocess.run(["cc", "-shared", "-fPIC", f"-DMAJOR={capability}", *output], check=True)
    return folder


def plugin_library() -> Path:
    """Returns the library that the compiler is in."""
    return Path(os.environ[PACKAGES]) / "jax_plugins" / "xla_cuda13" / "xla_cuda_plugin.so"


def environment(driver: Path) -> dict[str, str]:
    """Returns the environment of a process that uses the compiler, with the stand-in driver in folder `driver`."""
    packages = Path(os.environ[PACKAGES])
    cuda = packages / "nvidia" / "cu13"
    return os.environ | {
        "LD_LIBRARY_PATH": str(driver),
        "PATH": f"{cuda / 'bin'}:{os.environ['PATH']}",
        "MOSAIC_GPU_CUDA_ROOT": str(cuda),
        "MOSAIC_GPU_RUNTIME_LIB_PATH": str(packages / "jax_cuda13_plugin" / "libmosaic_gpu_runtime.so"),
    }
