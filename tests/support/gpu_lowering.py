"""Lowers kernels for a GPU on a machine without one, and reads the Mosaic GPU modules that come out."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.experimental.mosaic import gpu as mosaic
from jax.extend.mlir import ir, passmanager
from jax.interpreters import mlir

from mgpu.capture import unpack_tags
from mgpu.sites import Edge, Site


def lower_for_gpu(function: Callable[..., Any], *operands: Any) -> Any:
    """Returns `function` lowered for CUDA. Kernels of `mgpu.kernel` in it need MGPU_TARGET=gpu."""
    return jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",))


def kernel_modules(lowered: Any) -> list[bytes]:
    """Returns the Mosaic GPU modules of a lowered function, as jaxlib's compiler gets them."""
    found: list[bytes] = []

    def visit(operation: Any) -> Any:
        operation = operation.operation
        if operation.name == "stablehlo.custom_call" and "mosaic_gpu" in str(operation.attributes["call_target_name"]):
            config = ir.DictAttr(operation.attributes["mhlo.backend_config"])
            found.append(ir.StringAttr(config["module"]).value_bytes)
        return ir.WalkResult.ADVANCE

    lowered.compiler_ir("stablehlo").operation.walk(visit)
    return found


def kernel_texts(lowered: Any) -> list[str]:
    """Returns the Mosaic GPU modules of a lowered function as MLIR text."""
    texts = []
    for module_bytes in kernel_modules(lowered):
        with mlir.make_ir_context() as context:
            dialect: Any = mosaic.dialect  # pyright: ignore[reportPrivateImportUsage]
            dialect.register_dialect(context)
            context.allow_unregistered_dialects = True
            module = ir.Module.parse(module_bytes)
            passmanager.PassManager.parse("builtin.module(mosaic_gpu-serde{serialize=false})").run(module.operation)
            assert module.operation.verify()
            texts.append(str(module))
    return texts


def recorded_edges(text: str) -> list[tuple[int, Edge]]:
    """Returns the (site, edge) pairs that a kernel records, sorted; an unrolled loop's are listed once."""
    tags = {int(tag) for tag in re.findall(r"(?:mov\.b32 tag|mad\.lo\.u32 tag, \$0, 65536), (\d+);", text)}
    sites, edges, _ = unpack_tags(np.array(sorted(tags), np.uint32))
    return sorted({(int(site), Edge(edge)) for site, edge in zip(sites, edges, strict=True)})


def expected_edges(sites: Sequence[Site]) -> list[tuple[int, Edge]]:
    """Returns the (site, edge) pairs that make a whole record of these sites."""
    edges = {True: [Edge.INSTANT], False: [Edge.BEGIN, Edge.END]}
    return [(site.id, edge) for site in sites for edge in edges[site.kind.is_instant]]


def program_of(kernel: Any, *operands: Any) -> Any:
    """Returns the KernelProgram of a kernel for these operands."""
    flat, tree = jax.tree.flatten(operands)
    return kernel._program(tree, flat)[0]
