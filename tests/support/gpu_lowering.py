"""Lowers kernels for a GPU on a machine without one, and reads the Mosaic GPU modules that come out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.experimental.mosaic import gpu as mosaic
from jax.extend.mlir import ir, passmanager
from jax.interpreters import mlir


def lower_for_gpu(function: Callable[..., Any], *operands: Any) -> Any:
    """Returns `function` lowered for CUDA. Kernels of `mgpu.kernel` in it need MGPU_TARGET=gpu."""
    return jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",))


def kernel_modules(lowered: Any) -> list[bytes]:
    """Returns the Mosaic GPU modules of a lowered function, as jaxlib's compiler gets them."""
    found: list[bytes] = []

    def visit(operation: Any) -> Any:
        operation = operation.operation
        if operation.name == "stablehlo.custom_call" and "mosaic_gpu" in str(operation.attributes["call_target_name"]):
            found.append(ir.DictAttr(operation.attributes["mhlo.backend_config"])["module"].value_bytes)
        return ir.WalkResult.ADVANCE

    lowered.compiler_ir("stablehlo").operation.walk(visit)
    return found


def kernel_texts(lowered: Any) -> list[str]:
    """Returns the Mosaic GPU modules of a lowered function as MLIR text."""
    texts = []
    for module_bytes in kernel_modules(lowered):
        with mlir.make_ir_context() as context:
            mosaic.dialect.register_dialect(context)
            context.allow_unregistered_dialects = True
            module = ir.Module.parse(module_bytes)
            passmanager.PassManager.parse("builtin.module(mosaic_gpu-serde{serialize=false})").run(module.operation)
            assert module.operation.verify()
            texts.append(str(module))
    return texts


def count_events(text: str) -> int:
    """Returns how many places of a kernel record an event."""
    return text.count("mov.u32 clock, %clock;")


def program_of(kernel: Any, *operands: Any) -> Any:
    """Returns the KernelProgram of a kernel for these operands."""
    flat, tree = jax.tree.flatten(operands)
    return kernel._program(tree, flat)[0]
