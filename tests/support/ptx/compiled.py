"""Recorded kernels as jaxlib's compiler made them, kept as text, so that they run where the compiler is not.

MGPU_CUDA_PACKAGES=folder python -m support.ptx.compiled        writes them anew
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import tempfile
from pathlib import Path

import mgpu as plgpu
from mgpu.params import TraceScope
from support.gpu_kernels import KERNELS
from support.gpu_lowering import kernel_modules, lower_for_gpu
from support.ptx.host import Executable, compile_executable
from support.ptx.machine import Launch
from support.ptx.parse import parse_kernel

FOLDER = Path(__file__).parents[2] / "mgpu" / "gpu" / "compiled"

# For each file: a kernel of `support.gpu_kernels`, the events of a track, and what a track is.
CASES = {
    "ring_copy_smem": ("ring_copy", 64, TraceScope.WARPGROUP),
    "ring_copy_gmem": ("ring_copy", 30_000, TraceScope.WARP),
    "cluster_multicast_smem": ("cluster_multicast", 8, TraceScope.WARPGROUP),
}


def load_compiled(case: str) -> Executable:
    """Returns a kept kernel and its launch."""
    head, _, text = (FOLDER / f"{case}.ptx").read_text().partition("\n")
    fields = json.loads(head.removeprefix("// "))
    shapes = {name: tuple(fields[name]) for name in ("grid", "block", "cluster")}
    launch = Launch(**shapes, shared_bytes=fields["shared_bytes"], params=bytes.fromhex(fields["params"]))
    return Executable(text, parse_kernel(text), launch)


def compile_case(case: str) -> str:
    """Compiles a kernel; returns its file's text, without the lines that name files of the machine."""
    name, space, scope = CASES[case]
    params = plgpu.CompilerParams(profile_space=space, profile_dir="unused", profile_trace_scope=scope)
    kernel, operands, _ = KERNELS[name](params)
    (module,) = kernel_modules(lower_for_gpu(kernel, *operands))
    with tempfile.TemporaryDirectory() as folder:
        made = compile_executable(module, len(operands) + 2, Path(folder))
    head = json.dumps(dataclasses.asdict(made.launch) | {"params": made.launch.params.hex()})
    text = re.sub(r"^\s*\.(?:loc|file|section)\b.*\n|^\s*//.*\n|^\s*\n", "", made.ptx, flags=re.M)
    return f"// {head}\n{text}"


if __name__ == "__main__":
    os.environ["MGPU_TARGET"] = "gpu"
    for _case in CASES:
        (FOLDER / f"{_case}.ptx").write_text(compile_case(_case))
