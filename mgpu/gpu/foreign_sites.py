"""Sites of kernels written for JAX's own Mosaic GPU module: what its primitives mean to the profiler.

Names and parameters are those of JAX 0.10.2 and 0.12, which differ in a trailing `_p` and in where a count is kept.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import jax

from mgpu.frontend.inline_barriers import awaited_barrier
from mgpu.frontend.inline_code import Operand
from mgpu.frontend.pallas_rules.control import short_name
from mgpu.frontend.regions import Allocation, Step
from mgpu.jax_internals import AbstractRef
from mgpu.lang.inline_mgpu import InlinedFunction
from mgpu.lang.transforms import bits_of
from mgpu.passes.sites import Vocabulary, named_barrier_site
from mgpu.sites import BarrierInfo, SiteKind


def _barrier_info(number: int, allocation: Allocation) -> BarrierInfo | None:
    dtype: Any = allocation.aval.dtype
    if type(dtype).__name__ not in ("BarrierType", "ClusterBarrierType"):
        return None
    return BarrierInfo(number, short_name(allocation.name), math.prod(allocation.aval.shape), dtype.num_arrivals)


def is_barrier(aval: Any) -> bool:
    """True for the aval of a barrier ref of JAX's module."""
    return isinstance(aval, AbstractRef) and type(aval.dtype).__name__ in ("BarrierType", "ClusterBarrierType")


def operand_views(equation: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """Returns the ref operands of one of JAX's equations, each with its transforms over the equation's atoms.

    An equation has its operands first, then the flat transforms of each; parameters hold their trees, in that order.
    """
    # A tree is None for an operand without transforms, or that is an array; then it takes no part of the flat ones.
    trees = [equation.params[name] for name in _TREES if name in equation.params]
    refs = [atom for atom in equation.invars if isinstance(atom.aval, AbstractRef)]
    first = len(trees) or len(refs)
    operands, leaves = list(equation.invars[:first]), list(equation.invars[first:])
    views = []
    for position, operand in enumerate(operands):
        tree = trees[position] if position < len(trees) else None
        count = 0 if tree is None else tree.num_leaves
        transforms = () if tree is None else tuple(jax.tree.unflatten(tree, leaves[:count]))
        leaves = leaves[count:]
        if isinstance(operand.aval, AbstractRef):
            views.append((operand, transforms))
    return views


# Transform trees in the order of the operands that they belong to.
_TREES = (
    "src_transforms_treedef",
    "dst_transforms_treedef",
    "barrier_transforms_treedef",
    "transforms_treedef",
    "acc_transforms_tree",
    "a_transforms_tree",
    "b_transforms_tree",
)


def _shape(view: tuple[Any, tuple[Any, ...]]) -> tuple[tuple[int, ...], Any]:
    aval = view[0].aval
    for transform in view[1]:
        aval = transform.transform_type(aval)
    return tuple(aval.shape), aval.dtype


def _size_bytes(view: tuple[Any, tuple[Any, ...]]) -> int:
    shape, dtype = _shape(view)
    return math.prod(shape) * bits_of(dtype) // 8


def _name(step: Step, view: tuple[Any, tuple[Any, ...]]) -> str:
    allocation = step.refs.get(view[0])
    return short_name(allocation.name) if allocation is not None else "ref"


def _barrier_site(kind: SiteKind, verb: str) -> Callable[[Step], dict[str, Any]]:
    def describe(step: Step) -> dict[str, Any]:
        name = _name(step, operand_views(step.equation)[0])
        return {"kind": kind, "name": f"{verb} {name}", "barrier": name}

    return describe


def _load(step: Step) -> dict[str, Any]:
    _, dst, *barrier = operand_views(step.equation)
    buffer = _name(step, dst)
    return {
        "kind": SiteKind.TMA_LOAD,
        "name": f"load {buffer}",
        "buffer": buffer,
        "barrier": _name(step, barrier[0]) if barrier else "",
        "size_bytes": _size_bytes(dst),
    }


def _store(step: Step) -> dict[str, Any]:
    src, dst = operand_views(step.equation)[:2]
    return {
        "kind": SiteKind.TMA_STORE,
        "name": f"store {_name(step, dst)}",
        "buffer": _name(step, src),
        "size_bytes": _size_bytes(src),
    }


def _wgmma(step: Step) -> dict[str, Any]:
    acc, *operands = operand_views(step.equation)
    (m, n), _ = _shape(acc)
    (k, _), dtype = _shape(operands[-1])
    return {
        "kind": SiteKind.MMA_ISSUE,
        "name": "wgmma",
        "buffer": _name(step, operands[0]) if len(operands) == 2 else "",
        "flops": 2 * m * n * k,
        "operand_bits": bits_of(dtype),
    }


def _wgmma_wait(step: Step) -> dict[str, Any]:
    params, atoms = step.equation.params, step.equation.invars  # the count is an operand in 0.10.2
    left = params["n"] if "n" in params else atoms[0].val
    return {"kind": SiteKind.MMA_WAIT, "name": "wait wgmma", "in_flight": int(left)}


def _store_wait(step: Step) -> dict[str, Any]:
    params, atoms = step.equation.params, step.equation.invars  # the count is an operand
    left = params["n"] if "n" in params else atoms[0].val
    return {"kind": SiteKind.STORE_WAIT, "name": "wait stores", "in_flight": int(left)}


def _accumulator_load(step: Step) -> dict[str, Any] | None:
    left = step.equation.params.get("wait_n", 0)
    if left is None:
        return None
    return {"kind": SiteKind.MMA_WAIT, "name": "wait wgmma (read acc)", "in_flight": int(left)}


def _inline(step: Step) -> dict[str, Any] | None:
    params, atoms = step.equation.params, step.equation.invars
    kinds = params["flat_arg_types"]
    transforms = jax.tree.unflatten(params["pytree_ref_transforms"], atoms[len(kinds) :])
    operands = []
    for atom, applied in zip(atoms, transforms, strict=False):
        shape, dtype = _shape((atom, tuple(applied or ())))
        operands.append(Operand(shape, dtype, in_smem="smem" in str(getattr(atom.aval, "memory_space", "")).lower()))
    inlined = InlinedFunction(
        params["mgpu_fn"],
        jax.tree.unflatten(params["pytree_args"], kinds),
        jax.tree.unflatten(params["pytree_ret_ty"], params["flat_ret_ty"]),
    )
    return named_barrier_site(awaited_barrier(inlined, operands))


def _fixed(kind: SiteKind, name: str) -> Callable[[Step], dict[str, Any]]:
    return lambda _: {"kind": kind, "name": name}


_DESCRIBE: Mapping[str, Callable[[Step], dict[str, Any] | None]] = {
    "barrier_wait": _barrier_site(SiteKind.BARRIER_WAIT, "wait"),
    "barrier_arrive_and_wait": _barrier_site(SiteKind.BARRIER_WAIT, "arrive and wait"),
    "barrier_arrive": _barrier_site(SiteKind.BARRIER_ARRIVE, "arrive"),
    "copy_gmem_to_smem": _load,
    "copy_smem_to_gmem": _store,
    "wait_smem_to_gmem": _store_wait,
    "wgmma_ref": _wgmma,
    "wgmma_wait": _wgmma_wait,
    "wgmma_accumulator_deref": _accumulator_load,
    "tcgen05_mma": _fixed(SiteKind.MMA_ISSUE, "tcgen05 mma"),
    "wait_load_tmem": _fixed(SiteKind.MMA_WAIT, "wait TMEM loads"),
    "commit_smem": _fixed(SiteKind.COMMIT_SMEM, "commit_smem"),
    "set_max_registers": _fixed(SiteKind.SET_REGISTERS, "set_max_registers"),
    "semaphore_wait": _fixed(SiteKind.SYNC, "wait semaphore"),
    "inline_mgpu": _inline,
}

FOREIGN = Vocabulary(_DESCRIBE | {f"{name}_p": describe for name, describe in _DESCRIBE.items()}, _barrier_info)
"""Meaning of the primitives of JAX's own module."""
