"""Which buffers are stored in their own dtype instead of a carrier: those whose bytes are seen as another dtype."""

from __future__ import annotations

from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import walk
from mgpu.jax_internals import BitcastTransform
from mgpu.lang.primitive import views_of
from mgpu.lang.ref_union import UnionMemberTransform


def find_byte_exact(program: KernelProgram) -> frozenset[int]:
    """Returns the numbers of the allocations that some operation bitcasts or takes as member of a union."""
    found = set()
    for step in walk(program):
        for view in views_of(step.equation):
            if any(isinstance(transform, (BitcastTransform, UnionMemberTransform)) for transform in view.transforms):
                found.add(step.refs[view.ref].number)
    for number, output in program.input_output_aliases:  # one memory is stored in one way
        pair = {number, len(program.in_avals) + output}
        found |= pair if pair & found else set()
    return frozenset(found)
