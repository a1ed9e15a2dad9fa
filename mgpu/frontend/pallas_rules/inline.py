"""`inline_mgpu` of JAX's kernels: the same function, called with our refs and arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax

from mgpu.errors import Unsupported
from mgpu.frontend.pallas_rules.arrays import our_layout
from mgpu.frontend.pallas_rules.refs import take_view
from mgpu.frontend.pallas_rules.translator import Rule, Translator
from mgpu.jax_internals import current_source_line
from mgpu.lang.inline_mgpu import RefType, ShapeDtypeStruct, inline_mgpu


def _inline(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    params = equation.params
    count = len(params["flat_arg_types"])
    transforms = jax.tree.unflatten(params["pytree_ref_transforms"], operands[count:])
    arguments = [_argument(*each) for each in zip(operands[:count], transforms, strict=True)]
    types = [_argument_type(kind) for kind in params["flat_arg_types"]]
    returned = [ShapeDtypeStruct(kind.shape, kind.dtype, our_layout(kind.layout)) for kind in params["flat_ret_ty"]]
    call = inline_mgpu(
        arg_types=jax.tree.unflatten(params["pytree_args"], types),
        return_type=jax.tree.unflatten(params["pytree_ret_ty"], returned),
    )(params["mgpu_fn"])
    return jax.tree.leaves(call(*jax.tree.unflatten(params["pytree_args"], arguments)))


def _argument(operand: Any, transforms: Any) -> Any:
    if transforms is None:
        return operand
    leaves, tree = jax.tree.flatten(tuple(transforms))
    return take_view(operand, tree, leaves)


def _argument_type(kind: Any) -> Any:
    if not hasattr(kind, "transforms"):
        return our_layout(kind)
    if kind.transforms:
        raise Unsupported(
            f"{current_source_line()} inline_mgpu: the simulator cannot run this function: it takes a tiled ref. "
            "Inline code that takes RefType() without transforms, or run the kernel on a GPU."
        )
    return RefType()


RULES: Mapping[str, Rule] = {"inline_mgpu": _inline}
