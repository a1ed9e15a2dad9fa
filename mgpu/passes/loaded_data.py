"""Finds control flow that depends on loaded data, which a run that simulates time only does not have.

Such a run moves no tiles: what TMA loads bring, what wgmmas compute, and all that follows from it has no values. Those
values are followed through operations, refs, branches and loops until nothing more is found. What a kernel reads from
GMEM by itself is there, as long as it is an input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import jax
from jax.extend import core as jex_core

from mgpu.errors import Unsupported
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Allocation, Step, regions_of, walk
from mgpu.lang.primitive import View, unflatten_operands, views_of
from mgpu.passes.recorded_loops import body_region, carried_variables

_LOADS = {"copy_gmem_to_smem": 1, "copy_smem_to_gmem": 1, "wgmma": 0}
"""For each operation that moves no values, which of its operands it would have written."""

_TMA_OPERATIONS = ("copy_gmem_to_smem", "copy_smem_to_gmem", "async_prefetch")
_STORES = ("swap", "addupdate", "store", "atomic", "async_store_smem")
_PREDICATED = (*_TMA_OPERATIONS, "barrier_arrive")
_BY_VALUE = ("delay", "semaphore_signal", "semaphore_wait", "mgpu_semaphore_signal", "mgpu_semaphore_wait")


def check_time_only(program: KernelProgram) -> None:
    """Checks that time can be simulated without values.

    Raises:
      Unsupported: a branch, a loop, an index or a predicate depends on loaded data; names the user's line.
    """
    loaded = find_loaded(program)
    for step in walk(program):
        for what, atom in _steering(step):
            if loaded.has(atom):
                raise Unsupported(
                    f"{step.source} kernel {program.name}: {what} depends on data that the kernel loads, and "
                    "numerics=False simulates time without values. Use numerics=True, or read it from GMEM directly."
                )


def find_read_operands(program: KernelProgram) -> frozenset[int]:
    """Returns the numbers of the GMEM operands that a kernel accesses by itself, or that an output begins as.

    When time alone is simulated, nobody asks for the values of the others.
    """
    found = {number for number, _ in program.input_output_aliases}
    for step in walk(program):
        equation = step.equation
        if regions_of(equation) or equation.primitive.name in _TMA_OPERATIONS:
            continue
        variables = [atom for atom in equation.invars if not isinstance(atom, jex_core.Literal)]
        accessed = [step.refs[variable] for variable in variables if variable in step.refs]
        found.update(allocation.number for allocation in accessed if not allocation.path)
    return frozenset(found)


def find_loaded(program: KernelProgram) -> LoadedData:
    """Returns what of a program has no values when time alone is simulated."""
    steps = list(walk(program))
    loaded = LoadedData()
    while loaded.follow(steps):
        pass
    return loaded


class LoadedData:
    """What has no values: variables, and refs by the number of their allocation. Both only grow."""

    def __init__(self) -> None:
        self._variables: set[Any] = set()  # asked, never iterated
        self._allocations: set[int] = set()

    def has(self, atom: Any) -> bool:
        """True if a variable or literal has no value."""
        return not isinstance(atom, jex_core.Literal) and atom in self._variables

    def fills(self, allocation: int) -> bool:
        """True if what an allocation holds has, or may have, no values."""
        return allocation in self._allocations

    def follow(self, steps: Iterable[Step]) -> bool:
        """Goes through the program once. Returns True if something was found."""
        before = len(self._variables) + len(self._allocations)
        for step in steps:
            regions = regions_of(step.equation)
            for region in regions:
                for inner, outer in region.inputs:
                    self._pass_on(outer, inner)
            if regions:
                self._follow_results(step)
            else:
                self._follow_operation(step)
        return len(self._variables) + len(self._allocations) > before

    def _pass_on(self, source: Any, target: Any) -> None:
        if self.has(source):
            self._variables.add(target)

    def _follow_operation(self, step: Step) -> None:
        equation, name = step.equation, step.equation.primitive.name
        refs = [step.refs[view.ref] for view in views_of(equation) if view.ref in step.refs]
        if name in _LOADS:
            operands = unflatten_operands(equation.params["tree"], equation.invars)
            written = operands[_LOADS[name]]
            assert isinstance(written, View)
            self._allocations.add(step.refs[written.ref].number)
        read = any(allocation.number in self._allocations for allocation in refs)
        if name in _STORES and any(self.has(atom) for atom in equation.invars):
            self._allocations.update(allocation.number for allocation in refs)
        if read or any(self.has(atom) for atom in equation.invars):
            self._variables.update(equation.outvars)

    def _follow_results(self, step: Step) -> None:
        equation, regions = step.equation, regions_of(step.equation)
        name = equation.primitive.name
        if name in ("scan", "while"):
            for begin, end in zip(*carried_variables(equation), strict=True):
                self._pass_on(end, begin)
            if name == "while":
                condition, body = regions[0].jaxpr, regions[1].jaxpr
                for begin, end in zip(condition.invars[::-1], body.outvars[::-1], strict=False):
                    self._pass_on(end, begin)
            regions = (regions[body_region(equation)],)
        if name == "run_state":
            self._follow_state(step)
            return
        for region in regions:
            for end, out in zip(region.jaxpr.outvars, equation.outvars, strict=False):
                self._pass_on(end, out)
        if name == "while":  # a loop that never turns returns what it was given
            for begin, out in zip(equation.invars[-len(equation.outvars) :], equation.outvars, strict=False):
                self._pass_on(begin, out)

    def _follow_state(self, step: Step) -> None:
        """Arrays are the first values of refs that the equation allocates, and its results their last ones."""
        equation, (region,) = step.equation, regions_of(step.equation)
        allocations: dict[Any, Allocation] = dict(zip(region.allocated, step.allocated, strict=True))
        for inner, atom, out in zip(region.jaxpr.invars, equation.invars, equation.outvars, strict=True):
            if inner not in allocations:
                continue
            number = allocations[inner].number
            if self.has(atom):
                self._allocations.add(number)
            if number in self._allocations:
                self._variables.add(out)


def _steering(step: Step) -> list[tuple[str, Any]]:
    """Returns the operands of an equation that decide what happens or where, each with what it decides."""
    equation, name = step.equation, step.equation.primitive.name
    if name == "cond":
        return [("a branch", equation.invars[0])]
    if name == "while":
        return [("the end of a loop", atom) for atom in regions_of(equation)[0].jaxpr.outvars]
    found: list[tuple[str, Any]] = []
    for view in views_of(equation):
        found += [("an index", leaf) for leaf in _variables(jax.tree.leaves(view.transforms))]
    if name in _PREDICATED:
        operands = unflatten_operands(equation.params["tree"], equation.invars)
        found += [("a predicate", atom) for atom in operands if not isinstance(atom, View) and atom is not None]
    if name in _BY_VALUE:
        found += [(f"an operand of {name}", atom) for atom in _variables(equation.invars)]
    return found


def _variables(atoms: Sequence[Any]) -> list[Any]:
    return [atom for atom in atoms if isinstance(atom, jex_core.Var)]
