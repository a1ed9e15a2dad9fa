"""Which buffers are stored in their own dtype instead of a carrier: those whose bytes are seen as another dtype."""

from __future__ import annotations

from typing import Any

import jax

from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import walk
from mgpu.jax_internals import BitcastTransform
from mgpu.lang.primitive import View, unflatten_operands
from mgpu.lang.ref_union import UnionMemberTransform

_PALLAS_ACCESSES = {"get": 1, "swap": 2, "addupdate": 2}


def find_byte_exact(program: KernelProgram) -> frozenset[int]:
    """Returns the numbers of the allocations that some operation bitcasts or takes as member of a union."""
    found = set()
    for step in walk(program):
        for view in _views(step.equation):
            if any(isinstance(transform, (BitcastTransform, UnionMemberTransform)) for transform in view.transforms):
                found.add(step.refs[view.ref].number)
    for number, output in program.input_output_aliases:  # one memory is stored in one way
        pair = {number, len(program.in_avals) + output}
        found |= pair if pair & found else set()
    return frozenset(found)


def _views(equation: Any) -> list[View]:
    """Returns the ref operands of an equation: of the language's own operations, and of JAX's get and swap."""
    name, tree = equation.primitive.name, equation.params.get("tree")
    if name in _PALLAS_ACCESSES:
        leaves = equation.invars[_PALLAS_ACCESSES[name] :]
        return [View(equation.invars[0], tuple(jax.tree.unflatten(tree, leaves)))]
    if tree is None:
        return []
    return [operand for operand in unflatten_operands(tree, equation.invars) if isinstance(operand, View)]
