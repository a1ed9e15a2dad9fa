"""How the values of buffers are stored, decided for the whole program.

- Buffers whose bytes are seen as another dtype are stored in their own dtype instead of a carrier.
- SMEM that only TMA loads write, slot by slot, is slotted (`mgpu.sim.slots`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import Any

import numpy as np
from jax.experimental import pallas as pl

from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Allocation, Step, regions_of, walk
from mgpu.jax_internals import BitcastTransform, NDIndexer, TransposeTransform
from mgpu.lang.memory import SMEM
from mgpu.lang.primitive import View, views_of
from mgpu.lang.ref_union import UnionMemberTransform
from mgpu.sim.slots import Slots

_READS = ("wgmma", "load", "get")
_READS_OF_GMEM = ("load", "get", "copy_gmem_to_smem", "async_prefetch")


def find_byte_exact(program: KernelProgram) -> frozenset[int]:
    """Returns the numbers of the allocations that some operation bitcasts or takes as member of a union."""
    found = set()
    for step in walk(program):
        for view in views_of(step.equation):
            if any(isinstance(transform, (BitcastTransform, UnionMemberTransform)) for transform in view.transforms):
                found.add(step.refs[view.ref].number)
    return _with_aliases(program, found)


def find_slotted(program: KernelProgram) -> Mapping[int, Slots]:
    """Returns the slotted buffers by the number of their allocation.

    Every TMA load into one fills a slot, from an operand that the kernel does not write. Otherwise it is only read,
    within a slot.
    """
    refused = set(find_byte_exact(program))
    changing = _changing_operands(program) | refused
    accesses = [(step, allocation, view) for step in walk(program) for allocation, view in _smem_accesses(step)]
    loads = [(allocation.number, _loaded_slots(step, view, changing)) for step, allocation, view in accesses]
    found = {number: slots for number, slots in loads if slots is not None}
    for (step, allocation, view), (number, slots) in zip(accesses, loads, strict=True):
        divided = found.get(allocation.number)
        if divided is None or not (slots == divided or _reads_within(step, view, divided)):
            refused.add(number)
    return {number: slots for number, slots in found.items() if number not in refused}


def _with_aliases(program: KernelProgram, operands: set[int]) -> frozenset[int]:
    """Adds the operands that are the same memory as some of these, which is stored in one way."""
    for number, output in program.input_output_aliases:
        pair = {number, len(program.in_avals) + output}
        operands = operands | pair if pair & operands else operands
    return frozenset(operands)


def _changing_operands(program: KernelProgram) -> frozenset[int]:
    """Returns the numbers of the GMEM operands on which some operation does more than read."""
    found = set()
    for step in walk(program):
        if step.equation.primitive.name not in _READS_OF_GMEM and not regions_of(step.equation):
            refs = [step.refs.get(atom) for atom in step.equation.invars if not hasattr(atom, "val")]
            found.update(ref.number for ref in refs if ref is not None and not ref.path)
    return _with_aliases(program, found)


def _smem_accesses(step: Step) -> Iterator[tuple[Allocation, View | None]]:
    """Yields the SMEM buffers that an equation accesses; without a view if it is not known how."""
    if regions_of(step.equation):
        return
    views = views_of(step.equation)
    known = [view.ref for view in views]
    unknown = [atom for atom in step.equation.invars if not hasattr(atom, "val") and atom not in known]
    for ref, view in [*zip(known, views, strict=True), *((atom, None) for atom in unknown)]:
        allocation = step.refs.get(ref)
        if allocation is not None and getattr(allocation.aval.memory_space, "kind", None) is SMEM:
            yield allocation, view


def _loaded_slots(step: Step, view: View | None, changing: Set[int]) -> Slots | None:
    """Returns how a TMA load into a view divides its buffer; None for other accesses, and loads of other kinds."""
    equation = step.equation
    if view is None or equation.primitive.name != "copy_gmem_to_smem" or equation.params["collective_axes"]:
        return None
    source_view = views_of(equation)[0]
    source = step.refs[source_view.ref]
    indexed = _leading_indices(view)
    shape = tuple(view.base.shape)
    is_plain = all(isinstance(transform, NDIndexer) for transform in view.transforms)
    if source.path or source.number in changing or not is_plain:
        return None
    if view.shape != shape[indexed:] or source_view.shape != view.shape:
        return None
    return Slots(shape[:indexed], shape[indexed:])


def _reads_within(step: Step, view: View | None, slots: Slots) -> bool:
    return (
        view is not None
        and step.equation.primitive.name in _READS
        and _leading_indices(view) >= len(slots.counts)
        and all(isinstance(transform, (NDIndexer, TransposeTransform)) for transform in view.transforms)
    )


def _leading_indices(view: View) -> int:
    """Returns how many leading dimensions a view takes one index of."""
    indices: tuple[Any, ...] = ()
    if view.transforms and isinstance(view.transforms[0], NDIndexer):
        indices = tuple(view.transforms[0].indices)
    for count, index in enumerate(indices):
        if isinstance(index, pl.Slice) or np.shape(getattr(index, "aval", index)) != ():
            return count
    return len(indices)
