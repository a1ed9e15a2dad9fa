"""Code that is inlined from the GPU compiler's own API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
from jax.experimental.pallas import mosaic_gpu

from mgpu.gpu.allocations import layout_transform
from mgpu.gpu.rules.accesses import register_layout
from mgpu.gpu.rules.base import Call, Rule
from mgpu.lang.inline_mgpu import InlinedFunction, RefType, ShapeDtypeStruct


def _inline(call: Call) -> list[Any]:
    inlined: InlinedFunction = call.params["inlined"]
    arguments = jax.tree.unflatten(jax.tree.structure(inlined.arg_types), call.operands)
    decorate: Any = mosaic_gpu.inline_mgpu(
        arg_types=jax.tree.map(_argument_type, inlined.arg_types),
        return_type=jax.tree.map(_array_type, inlined.return_type),
    )
    return jax.tree.leaves(decorate(inlined.function)(*arguments))


def _argument_type(kind: Any) -> Any:
    if isinstance(kind, RefType):
        return mosaic_gpu.RefType(tuple(map(layout_transform, kind.transforms)))
    return register_layout(kind)


def _array_type(kind: ShapeDtypeStruct) -> Any:
    return mosaic_gpu.ShapeDtypeStruct(kind.shape, kind.dtype, register_layout(kind.layout))


RULES: Mapping[str, Rule] = {"inline_mgpu": _inline}
"""For the operation, what calls it in JAX's module."""
