"""Asynchronous copies of JAX's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import Unsupported
from mgpu.frontend.pallas_rules.refs import split_leaves, take_view
from mgpu.frontend.pallas_rules.translator import Rule, Translator
from mgpu.jax_internals import current_source_line


def _given(**keywords: Any) -> dict[str, Any]:
    """Returns the keywords that are not at their defaults (None, or no axes)."""
    return {name: value for name, value in keywords.items() if value is not None and not _is_empty(value)}


def _is_empty(value: Any) -> bool:
    return isinstance(value, tuple) and not value  # a predicate may be traced, and so not be compared


def _load(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    params = equation.params
    if not params.get("has_barrier", True):
        raise Unsupported(
            f"{current_source_line()} copy_gmem_to_smem: a copy without a barrier cannot be imported. "
            "Pass a barrier and wait for it."
        )
    src, dst, barrier, *rest = operands
    trees = [params[f"{name}_transforms_treedef"] for name in ("src", "dst", "barrier")]
    src_leaves, dst_leaves, barrier_leaves, rest = split_leaves(rest, *trees)
    src = take_view(src, trees[0], src_leaves)
    dst = take_view(dst, trees[1], dst_leaves)
    barrier = take_view(barrier, trees[2], barrier_leaves)
    keywords = _given(
        collective_axes=params["collective_axes"],
        leader_tracked=_partition(params["leader_tracked"]),
        oob_mode=_oob_mode(params.get("oob_mode")),
        predicate=rest[0] if rest else None,
    )
    mgpu.copy_gmem_to_smem(src, dst, barrier, **keywords)
    return []


def _partition(partition: Any) -> Any:
    """Returns our way to divide a collective copy among its CTAs for JAX's; None stays None."""
    if partition is None:
        return None
    axis = getattr(partition, "axis", None)
    return mgpu.CopyPartition.REPLICATED if axis is None else mgpu.CopyPartition.PARTITIONED(axis)


def _oob_mode(mode: Any) -> Any:
    """Returns our fill mode for elements out of bounds, or None for the default."""
    name = getattr(mode, "name", None)
    if name is None or name == _DEFAULT_FILL:
        return None
    return mgpu.OOBFillMode[name]


_DEFAULT_FILL = "ZEROS"


def _store(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    params = equation.params
    src, dst, *rest = operands
    trees = [params[f"{name}_transforms_treedef"] for name in ("src", "dst")]
    src_leaves, dst_leaves, rest = split_leaves(rest, *trees)
    mgpu.copy_smem_to_gmem(
        take_view(src, trees[0], src_leaves),
        take_view(dst, trees[1], dst_leaves),
        rest[0] if rest else None,
        commit_group=params["commit_group"],
        **_given(reduction_op=params["reduction_op"]),
    )
    return []


def _wait_stores(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    count = operands[0] if operands else equation.params["n"]  # an operand in JAX 0.10.2
    mgpu.wait_smem_to_gmem(int(count), wait_read_only=equation.params["wait_read_only"])
    return []


def _commit_smem(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator, equation, operands
    mgpu.commit_smem()
    return []


def _commit_group(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator, equation, operands
    mgpu.commit_smem_to_gmem_group()
    return []


def _prefetch(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator
    params = equation.params
    ref, *rest = operands
    leaves, rest = split_leaves(rest, params["ref_transforms_treedef"])
    view = take_view(ref, params["ref_transforms_treedef"], leaves)
    keywords = _given(
        collective_axes=params["collective_axes"],
        leader_tracked=_partition(params["leader_tracked"]),
    )
    if rest:
        pl.when(rest[0])(lambda: mgpu.async_prefetch(view, **keywords))
    else:
        mgpu.async_prefetch(view, **keywords)
    return []


def _store_remote(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    params = equation.params
    value, ref, barrier, cluster_index, *leaves = operands
    trees = params["ref_transforms_treedef"], params["barrier_transforms_treedef"]
    ref_leaves, barrier_leaves, _ = split_leaves(leaves, *trees)
    mgpu.async_store_smem(
        value,
        take_view(ref, trees[0], ref_leaves),
        take_view(barrier, trees[1], barrier_leaves),
        cluster_idx=cluster_index,
        cluster_dim=translator.axis_name(params["cluster_dim"]),
        optimized=params["optimized"],
        **_given(atomic=params["atomic"]),
    )
    return []


def _grid_dependency(name: str) -> Rule:
    def rule(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
        del translator, equation, operands
        getattr(mgpu, name)()
        return []

    return rule


RULES: Mapping[str, Rule] = {
    "copy_gmem_to_smem": _load,
    "copy_smem_to_gmem": _store,
    "wait_smem_to_gmem": _wait_stores,
    "commit_smem": _commit_smem,
    "commit_group": _commit_group,
    "async_prefetch": _prefetch,
    "async_store_smem": _store_remote,
    **{name: _grid_dependency(name) for name in ("griddepcontrol_wait", "griddepcontrol_launch_dependents")},
}
