"""Loads and stores of JAX's kernels, and the layouts of arrays in registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import primitives

import mgpu
from mgpu.errors import Unsupported
from mgpu.frontend.pallas_rules.refs import Cell, ImportedRef, take_view
from mgpu.frontend.pallas_rules.translator import Rule, Translator
from mgpu.jax_internals import NDIndexer, TransformedRef, current_source_line


def _flat(ref: ImportedRef, equation: Any, leaves: Sequence[Any]) -> tuple[Any, list[Any], Any]:
    """Returns our bare ref, and its transforms flattened as the primitives of JAX's refs take them."""
    view = take_view(ref, equation.params["tree"], leaves)
    transforms = view.transforms if isinstance(view, TransformedRef) else ()
    flat, tree = jax.tree.flatten(transforms)
    return (view.ref if isinstance(view, TransformedRef) else view), flat, tree


def _get(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    ref, *leaves = operands
    if isinstance(ref, Cell):
        _require_whole(equation, leaves)
        return [ref.value]
    bare, flat, tree = _flat(ref, equation, leaves)
    return [primitives.get_p.bind(bare, *flat, **{**equation.params, "tree": tree})]


def _swap(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    ref, value, *leaves = operands
    if isinstance(ref, Cell):
        _require_whole(equation, leaves)
        previous, ref.value = ref.value, value
        return [previous]
    bare, flat, tree = _flat(ref, equation, leaves)
    return [primitives.swap_p.bind(bare, value, *flat, **{**equation.params, "tree": tree})]


def _add_update(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    ref, value, *leaves = operands
    view = take_view(ref, equation.params["tree"], leaves)
    view[...] = view[...] + value
    return []


def _require_whole(equation: Any, leaves: Sequence[Any]) -> None:
    for transform in jax.tree.unflatten(equation.params["tree"], leaves):
        if not isinstance(transform, NDIndexer) or transform.get_indexer_shape() != tuple(transform.shape):
            raise Unsupported(
                f"{current_source_line()} run_state: a part of a plain value is read or written. Use the whole value."
            )


def _load(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    params = equation.params
    ref, *leaves = operands
    view = take_view(ref, params["tree"], leaves)
    keywords: dict[str, Any] = {"layout": our_layout(params.get("layout")), "optimized": params.get("optimized", True)}
    return [mgpu.load(view, (), **keywords)]


def _store(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    ref, value, *leaves = operands
    mgpu.store(take_view(ref, equation.params["tree"], leaves), value, optimized=equation.params.get("optimized", True))
    return []


# A layout that JAX keeps to itself, in which a lane holds the same elements as in the other, in registers of their own.
_SAME_PLACES = {"_WGMMA_ACC_32BIT": "WGMMA"}


def our_layout(layout: Any) -> Any:
    """Returns our layout for one of JAX's, by its name; None stays None.

    Raises:
      Unsupported: a layout that we do not have.
    """
    if layout is None:
        return None
    reduced = getattr(layout, "layout", None)
    if reduced is not None:  # a reduced layout: that of another one without some axes
        return our_layout(reduced).reduce(layout.axes)
    parameterised = getattr(layout, "layout_cls", None)
    name = getattr(parameterised or layout, "name", type(layout).__name__)
    found = getattr(mgpu.Layout, _SAME_PLACES.get(name, name), None)
    if found is None:
        raise Unsupported(
            f"{current_source_line()} layout {name} is not available on the simulated Hopper GPU. "
            f"Use one of {', '.join(member.name for member in mgpu.Layout)}."
        )
    return found(*layout.args, **dict(layout.kwargs)) if parameterised is not None else found


def _layout_cast(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    return [mgpu.layout_cast(operands[0], our_layout(equation.params["new_layout"]))]


def _print_layout(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    value, *leaves = operands
    mgpu.print_layout(equation.params["fmt"], take_view(value, equation.params["transforms_tree"], leaves))
    return []


def _reduce(reduction: Callable[..., Any]) -> Rule:
    def rule(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
        del translator
        return [reduction(operands[0], axis=equation.params["axes"])]

    return rule


RULES: Mapping[str, Rule] = {
    "get": _get,
    "swap": _swap,
    "addupdate": _add_update,
    "load": _load,
    "store": _store,
    "layout_cast": _layout_cast,
    "print_layout": _print_layout,
    # JAX 0.12: reductions whose instruction-level parallelism is chosen
    "mosaic_gpu_reduce_sum": _reduce(jnp.sum),
    "mosaic_gpu_reduce_max": _reduce(jnp.max),
    "mosaic_gpu_reduce_min": _reduce(jnp.min),
    "mosaic_gpu_reduce_prod": _reduce(jnp.prod),
}
