"""Adds the recorder to an unmodified kernel of JAX's Mosaic GPU module, by splicing equations into its jaxpr.

A recorder equation takes no operand but a barrier's slot, and gives no result: nothing in the kernel has to be threaded
through loops and branches. The kernel gets one more output, the words, of which its first and last equation know.
Instrument outermost: `jax.vmap` of an instrumented kernel would trace its Python body again, without a recorder.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import jax
from jax.core import ShapedArray
from jax.extend import core as jex_core

from mgpu.frontend.pallas_launch import axis_names, import_launch, kernel_name
from mgpu.frontend.pallas_names import find_author, operand_names
from mgpu.frontend.pallas_rules.translator import is_jaxpr, open_jaxpr
from mgpu.frontend.program import KernelProgram, Launch
from mgpu.frontend.regions import Path, regions_of
from mgpu.gpu.foreign_sites import FOREIGN, is_barrier, operand_views
from mgpu.gpu.recorder import Recorder, RecordFormat
from mgpu.gpu.references import slot_number, slot_terms
from mgpu.gpu.target import words_of_cta, words_type
from mgpu.jax_internals import AbstractRef, source_line
from mgpu.params import CompilerParams, TraceScope
from mgpu.passes.recorded_loops import RecordedLoop, body_region, carried_variables
from mgpu.passes.sites import SitePlan, plan_sites
from mgpu.profile_window import EVERYTHING, ProfileWindow
from mgpu.sites import Edge


@dataclasses.dataclass(frozen=True, eq=False)
class InstrumentedKernel:
    """A kernel equation with a recorder in it.

    Attributes:
      program: the kernel, as far as a capture tells about it; its jaxpr holds JAX's own primitives.
      plan: what is recorded.
      record_format: how.
      bind: launches it on the equation's operands: (results of the equation, words).
    """

    program: KernelProgram
    plan: SitePlan
    record_format: RecordFormat
    bind: Callable[..., tuple[list[jax.Array], jax.Array]]


def is_recorded(equation: Any) -> bool:
    """True for a kernel equation that has a recorder already: of a kernel with a `profile_space` of its own."""
    jaxpr, _ = open_jaxpr(equation.params["jaxprs"][0])
    functions = (inner.params.get("mgpu_fn") for inner in _all_equations(jaxpr))
    return any(getattr(function, "__module__", None) == Recorder.__module__ for function in functions)


def instrument(
    equation: Any,
    capacity: int,
    trace_scope: TraceScope,
    window: ProfileWindow = EVERYTHING,
    trees: tuple[Any, Any] | None = None,
) -> InstrumentedKernel:
    """Adds a recorder to a kernel.

    Args:
      equation: a kernel equation (`mgpu.frontend.from_pallas.is_kernel_equation`).
      capacity: events that each track can store. They go straight to GMEM, so the kernel needs no room for them.
      trace_scope: a track for each warpgroup, or each warp.
      window: the part of the launch that is recorded.
      trees: trees of the kernel's arguments and of its results, if known: they tell the names of its operands.

    Raises:
      ParamsError: the launch, or its loops, have no such part.
    """
    program = _program(equation, trees)
    plan = plan_sites(program, FOREIGN, window)
    layout = RecordFormat(capacity, program.launch.num_threads, trace_scope, in_smem=False, window=window)
    words = words_type(layout, program.launch)
    (mesh,) = equation.params["meshes"]
    launch = import_launch(mesh, {name: name for name in axis_names(mesh)})
    instrumented = _Splicer(program, launch, plan, layout).kernel(words)
    params = dict(equation.params)
    (original,) = params["jaxprs"]
    params["jaxprs"] = (_like(original, instrumented),)
    params["out_avals"] = (*params["out_avals"], ShapedArray(words.shape, words.dtype))

    def bind(*operands: Any) -> tuple[list[jax.Array], jax.Array]:
        *results, recorded = equation.primitive.bind(*operands, **params)
        return results, recorded

    return InstrumentedKernel(program, plan, layout, bind)


def _program(equation: Any, trees: tuple[Any, Any] | None) -> KernelProgram:
    """Describes a kernel in the words of `mgpu.from_pallas`, so that a simulated capture can be laid beside."""
    (mesh,) = equation.params["meshes"]
    jaxpr, _ = open_jaxpr(equation.params["jaxprs"][0])
    author = find_author(jaxpr, source_line(equation.source_info))
    return KernelProgram(
        name=kernel_name(equation.params, mesh, author),
        source=author.source,
        jaxpr=jaxpr,
        launch=import_launch(mesh, axis_names(mesh)),
        in_avals=tuple(ShapedArray(atom.aval.shape, atom.aval.dtype) for atom in equation.invars),
        out_avals=tuple(equation.params["out_avals"]),
        operand_names=tuple(operand_names(author, trees, len(equation.invars), len(equation.params["out_avals"]))),
        num_consts=0,
        params=CompilerParams(),  # JAX keeps its own; the recorder does not depend on them
    )


def _all_equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for region in regions_of(equation):
            yield from _all_equations(region.jaxpr)


class _Splicer:
    """Makes the jaxpr of one kernel with recorder equations in it; `launch` has the names that axes have in there."""

    def __init__(self, program: KernelProgram, launch: Launch, plan: SitePlan, layout: RecordFormat) -> None:
        self._program = program
        self._launch = launch
        self._plan = plan
        self._format = layout
        # Only `begin` and `end` look at the words.
        self._events = Recorder(layout, None, unrecorded=plan.unrecorded)

    def kernel(self, words: jax.ShapeDtypeStruct) -> Any:
        """Returns the whole kernel, with a ref to `words` as its last input."""
        jaxpr = self._program.jaxpr
        ref_aval = next(var.aval for var in jaxpr.invars if isinstance(var.aval, AbstractRef))
        launch = self._launch

        def record(ref: Any) -> None:
            mine, row = words_of_cta(ref, self._format, launch)
            recorder = Recorder(self._format, mine, row=row)
            recorder.begin()
            recorder.end()

        axes = [(name, size) for name, size in launch.axis_sizes.items() if name != launch.thread_name]
        frame, _ = open_jaxpr(
            jax.make_jaxpr(record, axis_env=axes)(ref_aval.update(inner_aval=ShapedArray(words.shape, words.dtype)))
        )
        inner = self._region(jaxpr, ())
        *begin, end = frame.eqns
        info = inner.debug_info
        return inner.replace(
            invars=[*inner.invars, *frame.invars],
            eqns=[*begin, *inner.eqns, end],
            effects=inner.effects | frame.effects,
            debug_info=info._replace(arg_names=(*info.arg_names, "words")) if info.arg_names is not None else info,
        )

    def _region(self, jaxpr: Any, path: Path) -> Any:
        equations: list[Any] = []
        open_scopes: tuple[int, ...] = ()
        for index, equation in enumerate(jaxpr.eqns):
            here = (*path, index)
            wanted = self._plan.scopes.get(here, ())
            equations += self._switch_scopes(open_scopes, wanted)
            open_scopes = wanted
            loop = self._plan.loops.get(here)
            if loop is None:
                equations += self._recorded(equation, here)
            else:
                equations += self._settled()
                equations += self._windowed(equation, here, loop)
        equations += self._switch_scopes(open_scopes, ())
        equations += self._settled()
        return jaxpr.replace(eqns=equations, effects=jaxpr.effects | _effects(equations))

    def _with_regions(self, equation: Any, path: Path) -> list[Any]:
        """Returns an equation with recorder equations in the jaxprs that it holds, and what ends the run before it."""
        regions = regions_of(equation)
        if not regions:
            return [equation]
        settled = self._settled()
        made = [self._region(region.jaxpr, (*path, number)) for number, region in enumerate(regions)]
        added = _effects(e for jaxpr in made for e in jaxpr.eqns)
        new = equation.replace(params=_with_jaxprs(equation, made), effects=equation.effects | added)
        return [*settled, new]

    def _settled(self) -> list[Any]:
        return _traced(self._events.settle, [])

    def _windowed(self, equation: Any, path: Path, loop: RecordedLoop) -> list[Any]:
        """Returns the equations of a loop of which only some iterations are recorded."""
        body = body_region(equation)
        made = [self._region(region.jaxpr, (*path, n)) for n, region in enumerate(regions_of(equation)) if n < body]
        self._events.level = loop.level + 1
        inner = self._region(regions_of(equation)[body].jaxpr, (*path, body))
        self._events.level = loop.level
        counter = [] if loop.counter is None else [carried_variables(equation)[0][loop.counter]]
        first = _traced(lambda *values: self._events.iteration(loop, *values), counter)
        made.append(inner.replace(eqns=[*first, *inner.eqns], effects=inner.effects | _effects(first)))
        enter, leave = (
            _traced(lambda act=act: act(loop), []) for act in (self._events.enter_loop, self._events.leave_loop)
        )
        added = _effects(e for jaxpr in made for e in jaxpr.eqns)
        new = equation.replace(params=_with_jaxprs(equation, made), effects=equation.effects | added)
        return [*enter, new, *leave]

    def _recorded(self, equation: Any, path: Path) -> list[Any]:
        site = self._plan.operations.get(path, -1)
        if site < 0:
            return self._with_regions(equation, path)
        slot = _slot(equation)
        if self._plan.sites[site].kind.is_instant:
            return [*self._event(site, Edge.INSTANT, slot), *self._with_regions(equation, path)]
        begin = self._event(site, Edge.BEGIN, slot)
        return [*begin, *self._with_regions(equation, path), *self._event(site, Edge.END, slot)]

    def _switch_scopes(self, current: Sequence[int], wanted: Sequence[int]) -> list[Any]:
        common = 0
        while common < min(len(current), len(wanted)) and current[common] == wanted[common]:
            common += 1
        ends = [e for site in reversed(current[common:]) for e in self._event(site, Edge.END)]
        return ends + [e for site in wanted[common:] for e in self._event(site, Edge.BEGIN)]

    def _event(self, site: int, edge: Edge, slot: Sequence[tuple[Any, int]] = ()) -> list[Any]:
        """Returns the equations that record an event; `slot` has terms over atoms of the kernel's jaxpr."""
        is_known = [not isinstance(atom, jex_core.Var) for atom, _ in slot]
        atoms = [atom for (atom, _), known in zip(slot, is_known, strict=True) if not known]

        def record(*values: Any) -> None:
            given = iter(values)
            terms = [
                (int(getattr(atom, "val", atom)) if known else next(given), stride)
                for (atom, stride), known in zip(slot, is_known, strict=True)
            ]
            self._events.event(site, edge, slot_number(terms))

        return _traced(record, atoms)


def _traced(function: Callable[..., None], atoms: Sequence[Any]) -> list[Any]:
    """Returns the equations of a function of some atoms of the kernel's jaxpr."""
    traced, _ = open_jaxpr(jax.make_jaxpr(function)(*(atom.aval for atom in atoms)))
    outer = dict(zip(traced.invars, atoms, strict=True))
    return [e.replace(invars=[_substitute(atom, outer) for atom in e.invars]) for e in traced.eqns]


def _substitute(atom: Any, outer: Mapping[Any, Any]) -> Any:
    return outer.get(atom, atom) if isinstance(atom, jex_core.Var) else atom


def _effects(equations: Iterable[Any]) -> frozenset[Any]:
    """Effects of equations that name no variable of their region."""
    return frozenset().union(*map(_free_effects, equations))


def _free_effects(equation: Any) -> frozenset[Any]:
    """Effects of an equation that name no variable of its region."""
    return frozenset(effect for effect in equation.effects if type(effect).__name__ in _NAMELESS)


_NAMELESS = ("_WGMMAPipelineEffect", "MemoryEffect")


def _slot(equation: Any) -> list[tuple[Any, int]]:
    """Returns the slot of the first barrier among the operands, as terms over atoms."""
    for ref, transforms in operand_views(equation):
        if is_barrier(ref.aval):
            return slot_terms(ref.aval.shape, transforms)
    return []


def _with_jaxprs(equation: Any, jaxprs: Sequence[Any]) -> dict[str, Any]:
    """Returns the parameters of an equation with its jaxprs replaced, in the order in which `regions_of` gives them."""
    params, rest = dict(equation.params), list(jaxprs)
    names = {"cond": ("branches",), "while": ("cond_jaxpr", "body_jaxpr")}.get(equation.primitive.name)
    if names is None:
        names = [name for name, value in sorted(params.items()) if _holds_jaxpr(value)][:1]
    for name in names:
        old = params[name]
        params[name] = (
            tuple(_like(each, rest.pop(0)) for each in old) if isinstance(old, tuple) else _like(old, rest.pop(0))
        )
    return params


def _holds_jaxpr(value: Any) -> bool:
    return is_jaxpr(value) or (isinstance(value, tuple) and any(map(is_jaxpr, value)))


def _like(old: Any, jaxpr: Any) -> Any:
    """Returns an open jaxpr, closed as `old` is."""
    return old.replace(jaxpr=jaxpr) if isinstance(old, jex_core.ClosedJaxpr) and hasattr(old, "jaxpr") else jaxpr
