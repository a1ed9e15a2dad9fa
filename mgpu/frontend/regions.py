"""Walking a program: control flow as regions, refs resolved to what was allocated, scopes and source lines.

An equation such as `cond` or `scan` holds jaxprs: **regions**. Inside one, refs have other variables than outside; a
`Region` says which belongs to which. `walk` visits every equation once, in program order, and tells for each ref
variable its **allocation**: the GMEM operand, SMEM buffer, barrier array or accumulator that it stands for.

A **path** names an equation: its index in the top jaxpr, then (region number, index) for each level down. The same
jaxpr may stand at two paths (a jitted helper called twice), so paths, not equations, are the keys of every table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax.extend import core as jex_core

from mgpu.frontend.program import KernelProgram
from mgpu.jax_internals import AbstractRef, SourceLine, named_scopes, source_line

Path = tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Region:
    """A jaxpr inside an equation.

    Attributes:
      jaxpr: the inner jaxpr.
      inputs: for each inner variable that is bound from outside, the outer variable or literal.
      allocated: inner variables that the equation allocates (`run_scoped`).
    """

    jaxpr: Any
    inputs: tuple[tuple[Any, Any], ...]
    allocated: tuple[Any, ...] = ()


def regions_of(equation: Any) -> tuple[Region, ...]:
    """Returns the regions of an equation: the branches of a cond, condition and body of a while, and so on."""
    name, params, atoms = equation.primitive.name, equation.params, equation.invars
    if name == "run_scoped":
        jaxpr = _open(params["jaxpr"])
        return (Region(jaxpr, _pair(jaxpr.constvars, atoms), tuple(jaxpr.invars)),)
    if name == "run_state":
        return (_state_region(_open(params["jaxpr"]), atoms),)
    if name == "core_map":
        jaxpr = _open(params["jaxpr"])
        return (Region(jaxpr, _pair(jaxpr.constvars, atoms), tuple(jaxpr.invars)),)
    if name == "mpmd_map":
        return tuple(_region(jaxpr, atoms[: len(_open(jaxpr).invars)]) for jaxpr in params["jaxprs"][:1])
    if name == "cond":
        return tuple(_region(branch, atoms[1:]) for branch in params["branches"])
    if name == "while":
        num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
        carry = atoms[num_cond + num_body :]
        return (
            _region(params["cond_jaxpr"], [*atoms[:num_cond], *carry]),
            _region(params["body_jaxpr"], [*atoms[num_cond : num_cond + num_body], *carry]),
        )
    found = [value for _, value in sorted(params.items()) if isinstance(value, (jex_core.Jaxpr, jex_core.ClosedJaxpr))]
    return tuple(_region(jaxpr, atoms) for jaxpr in found[:1])


def _open(jaxpr: Any) -> Any:
    return getattr(jaxpr, "jaxpr", jaxpr)


def _region(jaxpr: Any, atoms: Sequence[Any]) -> Region:
    inner = _open(jaxpr)
    return Region(inner, _pair(inner.invars, atoms))


def _state_region(jaxpr: Any, atoms: Sequence[Any]) -> Region:
    """Refs from outside are passed on; arrays become the initial values of refs that the equation allocates."""
    pairs = _pair(jaxpr.invars, atoms)
    outer = tuple(pair for pair in pairs if isinstance(pair[1].aval, AbstractRef))
    allocated = tuple(inner for inner, atom in pairs if not isinstance(atom.aval, AbstractRef))
    return Region(jaxpr, outer, allocated)


def _pair(inner: Sequence[Any], outer: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    return tuple(zip(inner, outer, strict=True))


def read_variables(jaxpr: Any) -> set[Any]:
    """Returns the variables that some equation of a jaxpr, or its result, reads. To be asked, not iterated.

    (JAX marks unread results as DropVar, but not in all jaxprs of all versions.)
    """
    atoms = [atom for equation in jaxpr.eqns for atom in equation.invars] + list(jaxpr.outvars)
    return {atom for atom in atoms if _is_var(atom)}


@dataclasses.dataclass(frozen=True)
class Allocation:
    """What a ref stands for.

    Attributes:
      number: order of allocation in the program, GMEM operands first.
      name: the kernel's own name for it.
      aval: aval of the whole ref: shape, dtype, memory space.
      path: the equation that allocates it, `run_scoped` or `get_global`; () for a GMEM operand.
      collective: one for the whole CTA, not one for each warpgroup.
    """

    number: int
    name: str
    aval: AbstractRef
    path: Path
    collective: bool = True


@dataclasses.dataclass(frozen=True)
class Step:
    """One equation on a walk.

    Attributes:
      path: its name.
      equation: the equation.
      refs: allocation of each ref variable in its region.
      scopes: named scopes around it within its region, outermost first (see `jax_internals.named_scopes`).
      outer_scopes: names of the scopes around its region.
      region: path of the region: of the equation that holds it, and its number there.
      source: the user's line.
      allocated: what the equation allocates, in argument order.
    """

    path: Path
    equation: Any
    refs: Mapping[Any, Allocation]
    scopes: tuple[Any, ...]
    outer_scopes: tuple[str, ...]
    region: Path
    source: SourceLine
    allocated: tuple[Allocation, ...] = ()


def walk(program: KernelProgram) -> Iterator[Step]:
    """Visits every equation of a program in program order; an equation comes before those of its regions."""
    allocations: list[Allocation] = []
    for var, name in zip(program.jaxpr.invars, program.operand_names, strict=True):
        allocations.append(Allocation(len(allocations), name, ref_aval(var), ()))
    refs = dict(zip(program.jaxpr.invars, allocations, strict=True))
    yield from _walk(program.jaxpr, refs, (), (), program.source, allocations)


def ref_aval(var: Any) -> AbstractRef:
    """Returns the aval of a ref variable."""
    assert isinstance(var.aval, AbstractRef)
    return var.aval


def scoped_allocations(program: KernelProgram) -> dict[Path, list[Allocation]]:
    """Returns what each `run_scoped` or `get_global` allocates, by its path, in argument order."""
    return {step.path: list(step.allocated) for step in walk(program) if step.allocated}


def _walk(
    jaxpr: Any,
    refs: Mapping[Any, Allocation],
    region: Path,
    outer: tuple[str, ...],
    caller: SourceLine,
    allocations: list[Allocation],
) -> Iterator[Step]:
    refs = dict(refs)
    for index, equation in enumerate(jaxpr.eqns):
        path = (*region, index)
        inner_regions = regions_of(equation)
        own = _allocate(equation, inner_regions, path, allocations)
        refs |= {var: allocation for var, allocation in own.items() if var in equation.outvars}
        scopes = named_scopes(equation.source_info)
        source = source_line(equation.source_info)
        # Equations of jitted JAX functions have no line of the user's; the call has.
        source = source if source.line else caller
        yield Step(path, equation, refs, scopes, outer, region, source, tuple(own.values()))
        names = (*outer, *(scope.name for scope in scopes))
        for number, inner in enumerate(inner_regions):
            bound = {var: refs[atom] for var, atom in inner.inputs if _is_var(atom) and atom in refs}
            bound |= {var: own[var] for var in inner.allocated}
            yield from _walk(inner.jaxpr, bound, (*path, number), names, source, allocations)


def _allocate(
    equation: Any, regions: Sequence[Region], path: Path, allocations: list[Allocation]
) -> dict[Any, Allocation]:
    """Numbers what an equation allocates, in the order of its variables, and adds it to `allocations`."""
    if equation.primitive.name == "get_global":
        name = f"global{sum(each.name.startswith('global') for each in allocations)}"
        named = [(equation.outvars[0], name)]
    else:
        named = [pair for region in regions for pair in zip(region.allocated, _argument_names(region), strict=True)]
    collective = equation.primitive.name == "get_global" or bool(equation.params.get("collective_axes"))
    own = {}
    for var, name in named:
        own[var] = Allocation(len(allocations), name, ref_aval(var), path, collective)
        allocations.append(own[var])
    return own


def _is_var(atom: Any) -> bool:
    return not isinstance(atom, jex_core.Literal)


def _argument_names(region: Region) -> list[str]:
    """Names of what a `run_scoped` allocates: of its function's parameters."""
    if not region.allocated:
        return []
    info = getattr(region.jaxpr, "debug_info", None)
    names = list(info.arg_names or ()) if info is not None else []
    fallback = [f"scoped{index}" for index in range(len(region.allocated))]
    return (
        [name or other for name, other in zip(names, fallback, strict=True)]
        if len(names) == len(fallback)
        else fallback
    )
