"""Replays a program inside a kernel of JAX's Mosaic GPU module: the same jaxpr, with that module's refs and operations.

Plain JAX equations are bound again as they are; loops and branches are traced anew with refs as closures; the
language's operations go through `mgpu.gpu.rules`. Recording is added around an equation, so that no rule knows of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import mosaic_gpu
from jax.extend import core as jex_core

from mgpu.errors import Unsupported
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Path, Region, read_variables, regions_of
from mgpu.gpu.allocations import allocation_type
from mgpu.gpu.recorder import Recorder, WindowedLoop
from mgpu.gpu.references import UnionRefs, apply_transforms, is_barrier, slot_number, slot_terms
from mgpu.gpu.rules import RULES, WITHOUT_COUNTERPART, Call
from mgpu.jax_internals import NDIndexer, SourceLine, at_equation, scan_split, source_line
from mgpu.lang.hopper import AccumulatorSpace
from mgpu.lang.primitive import KernelEffect, View, unflatten_operands
from mgpu.lang.ref_union import RefUnionRef
from mgpu.lang.warps import mesh_of_region
from mgpu.passes.sites import SitePlan
from mgpu.sites import Edge

_INLINED = ("jit", "pjit", "closed_call", "core_call", "custom_jvp_call", "custom_vjp_call", "checkpoint")


class Replay:
    """Replays one program; make one for each time the kernel is traced.

    Args:
      program: what is replayed.
      plan: its sites.
      recorder: records events; None to record nothing.
    """

    def __init__(self, program: KernelProgram, plan: SitePlan, recorder: Recorder | None) -> None:
        self._program = program
        self._plan = plan
        self._recorder = recorder
        self._values: dict[Any, Any] = {}
        self._read_somewhere: set[Any] = set()
        self._caller = [program.source]
        self._warp_axes: dict[Any, Any] = {}
        self._control: Mapping[str, Callable[[Any, Path], Sequence[Any]]] = {
            "cond": self._cond,
            "scan": self._scan,
            "while": self._while,
            "run_scoped": self._run_scoped,
            "get_global": self._get_global,
            "run_state": self._run_state,
            "get": self._get,
            "swap": self._swap,
            "addupdate": self._addupdate,
            "program_id": self._program_id,
            "num_programs": self._num_programs,
            "axis_index": self._axis_index,
            "core_map": self._warps,
            "mpmd_map": self._warps,
        } | dict.fromkeys(_INLINED, self._call)

    def run(self, consts: Sequence[Any], refs: Sequence[Any]) -> None:
        """Replays the whole program.

        Args:
          consts: values of the closed-over arrays.
          refs: GMEM refs, inputs before outputs.
        """
        self._values.update(zip(self._program.jaxpr.constvars, consts, strict=True))
        self._values.update(zip(self._program.jaxpr.invars, refs, strict=True))
        self._region(self._program.jaxpr, ())

    def _region(self, jaxpr: Any, path: Path) -> list[Any]:
        self._read_somewhere |= read_variables(jaxpr)
        open_scopes: tuple[int, ...] = ()
        for index, equation in enumerate(jaxpr.eqns):
            here = (*path, index)
            open_scopes = self._switch_scopes(open_scopes, self._plan.scopes.get(here, ()))
            self._equation(equation, here)
        self._switch_scopes(open_scopes, ())
        self._settle()
        return [self._read(atom) for atom in jaxpr.outvars]

    def _settle(self) -> None:
        if self._recorder is not None:
            self._recorder.settle()

    def _switch_scopes(self, current: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
        if self._recorder is not None:
            common = 0
            while common < min(len(current), len(wanted)) and current[common] == wanted[common]:
                common += 1
            for site in reversed(current[common:]):
                self._recorder.event(site, Edge.END)
            for site in wanted[common:]:
                self._recorder.event(site, Edge.BEGIN)
        return wanted

    def _equation(self, equation: Any, path: Path) -> None:
        source = source_line(equation.source_info)
        self._caller.append(source if source.line else self._caller[-1])
        control = self._control.get(equation.primitive.name)
        with at_equation(equation):
            if control is not None:
                if regions_of(equation):
                    self._settle()
                results = control(equation, path)
            elif any(isinstance(effect, KernelEffect) for effect in equation.effects):
                results = self._operation(equation, path)
            else:
                results = self._plain(equation)
        self._caller.pop()
        self._values.update(zip(equation.outvars, results, strict=True))

    def _read(self, atom: Any) -> Any:
        if isinstance(atom, jex_core.Literal):
            aval: Any = atom.aval
            return np.asarray(atom.val, aval.dtype)
        return self._values[atom]

    def _plain(self, equation: Any) -> Sequence[Any]:
        """Binds an equation of JAX's own again."""
        values = list(map(self._read, equation.invars))
        if equation.primitive.name == "delay" and isinstance(values[0], np.ndarray):
            values[0] = values[0].item()  # JAX's lowering takes a Python number only
        result = equation.primitive.bind(*values, **equation.primitive.get_bind_params(equation.params))
        return result if equation.primitive.multiple_results else [result]

    # The language's operations.

    def _operation(self, equation: Any, path: Path) -> Sequence[Any]:
        name = equation.primitive.name
        rule = RULES.get(name)
        if rule is None:
            instead = WITHOUT_COUNTERPART.get(
                name, "JAX has no such operation. Set MGPU_TARGET=sim to simulate the kernel."
            )
            raise self._unsupported(name, instead)
        params = {key: value for key, value in equation.params.items() if key != "tree"}
        views = unflatten_operands(equation.params["tree"], equation.invars)
        operands = tuple(map(self._operand, views))
        site = self._plan.operations.get(path, -1)
        recorded = self._recorder is not None and site >= 0
        slot = self._slot(views) if recorded else 0
        is_instant = recorded and self._plan.sites[site].kind.is_instant
        if recorded:
            self._record(site, Edge.INSTANT if is_instant else Edge.BEGIN, slot)
        result = rule(
            Call(name, operands, params, self._caller[-1], tuple(map(self._view, views)), bool(self._warp_axes))
        )
        if recorded and not is_instant:
            self._record(site, Edge.END, slot)
        if not equation.primitive.multiple_results:
            return [result]
        return [] if result is None else list(result)

    def _record(self, site: int, edge: Edge, slot: Any) -> None:
        assert self._recorder is not None
        self._recorder.event(site, edge, slot)

    def _slot(self, views: Sequence[Any]) -> Any:
        for view in views:
            if is_barrier(view):
                return slot_number(slot_terms(view.base.shape, self._transforms(view.transforms)))
        return 0

    def _operand(self, operand: Any) -> Any:
        if isinstance(operand, View):
            return self._applied(operand.ref, operand.transforms)
        return None if operand is None else self._read(operand)

    def _view(self, operand: Any) -> tuple[Any, list[Any]] | None:
        return (self._read(operand.ref), self._transforms(operand.transforms)) if isinstance(operand, View) else None

    def _applied(self, ref: Any, transforms: Sequence[Any]) -> Any:
        try:
            return apply_transforms(self._read(ref), self._transforms(transforms))
        except Unsupported as error:
            raise Unsupported(f"{self._caller[-1]} {error}") from None

    def _transforms(self, transforms: Sequence[Any]) -> list[Any]:
        """Puts values in the place of the variables that transforms hold."""
        return jax.tree.map(self._leaf, list(transforms), is_leaf=_is_atom)

    def _leaf(self, leaf: Any) -> Any:
        return self._read(leaf) if _is_atom(leaf) else leaf

    # JAX's own reads and writes of refs.

    def _access(self, equation: Any, num_values: int) -> tuple[Any, Any]:
        """Returns the ref and the index of a get or swap, whose transforms come after the values."""
        leaves = map(self._read, equation.invars[1 + num_values :])
        transforms = list(jax.tree.unflatten(equation.params["tree"], list(leaves)))
        index = transforms.pop().indices if transforms and isinstance(transforms[-1], NDIndexer) else (...,)
        return apply_transforms(self._read(equation.invars[0]), transforms), tuple(index)

    def _get(self, equation: Any, path: Path) -> Sequence[Any]:
        ref, index = self._access(equation, 0)
        return [ref[index]]

    def _swap(self, equation: Any, path: Path) -> Sequence[Any]:
        if isinstance(equation.invars[0].aval.memory_space, AccumulatorSpace):
            value = mosaic_gpu.layout_cast(self._read(equation.invars[1]), mosaic_gpu.Layout.WGMMA)
            self._read(equation.invars[0])[...] = value
            return [None]
        ref, index = self._access(equation, 1)
        old = ref[index] if equation.outvars[0] in self._read_somewhere else None
        ref[index] = self._read(equation.invars[1])
        return [old]

    def _addupdate(self, equation: Any, path: Path) -> Sequence[Any]:
        ref, index = self._access(equation, 1)
        ref[index] = ref[index] + self._read(equation.invars[1])
        return []

    # Control flow.

    def _inside(self, region: Region, path: Path) -> list[Any]:
        """Replays a region whose inputs come from outside unchanged."""
        for inner, outer in region.inputs:
            self._values[inner] = self._read(outer)
        return self._region(region.jaxpr, path)

    def _call(self, equation: Any, path: Path) -> Sequence[Any]:
        (region,) = regions_of(equation)
        return self._inside(region, (*path, 0))

    def _cond(self, equation: Any, path: Path) -> Sequence[Any]:
        def branch(number: int, region: Region) -> Callable[[], list[Any]]:
            return lambda: self._typed(self._inside(region, (*path, number)), equation.outvars)

        branches = [branch(number, region) for number, region in enumerate(regions_of(equation))]
        which = self._read(equation.invars[0])
        if len(branches) == 2:
            return lax.cond(which != 0, branches[1], branches[0])
        return lax.switch(which, branches)

    def _typed(self, values: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        """Gives values the exact types of variables: a literal would be weakly typed."""
        return [jnp.asarray(value, var.aval.dtype) for value, var in zip(values, variables, strict=True)]

    def _scan(self, equation: Any, path: Path) -> Sequence[Any]:
        (region,) = regions_of(equation)
        consts, carry, xs = scan_split(equation.params, equation.invars)
        if xs or len(equation.outvars) != len(carry):
            raise self._unsupported(
                "scan over arrays",
                "Registers cannot be indexed by a loop counter: loop with fori_loop and index a ref.",
            )
        inner = region.jaxpr.invars
        for var, atom in zip(inner[: len(consts)], consts, strict=True):
            self._values[var] = self._read(atom)
        carried = inner[len(consts) :]

        loop = self._windowed(path)

        def body(values: Sequence[Any], _: None) -> tuple[list[Any], None]:
            self._values.update(zip(carried, values, strict=True))
            with loop.iteration(values):
                return self._typed(self._region(region.jaxpr, (*path, 0)), carried), None

        start = self._typed(list(map(self._read, carry)), carried)
        params = equation.params
        with loop:
            end, _ = lax.scan(
                body, start, None, length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
            )
        return end

    def _windowed(self, path: Path) -> WindowedLoop:
        return WindowedLoop(self._recorder, self._plan.loops.get(path))

    def _while(self, equation: Any, path: Path) -> Sequence[Any]:
        condition, body = regions_of(equation)
        num_carry = len(equation.outvars)

        def replay(region: Region, number: int, values: Sequence[Any]) -> list[Any]:
            inputs, carried = (
                region.inputs[: len(region.inputs) - num_carry],
                region.inputs[len(region.inputs) - num_carry :],
            )
            for inner, outer in inputs:
                self._values[inner] = self._read(outer)
            self._values.update(zip([inner for inner, _ in carried], values, strict=True))
            return self._region(region.jaxpr, (*path, number))

        loop = self._windowed(path)

        def turn(values: Sequence[Any]) -> list[Any]:
            with loop.iteration(values):
                return self._typed(replay(body, 1, values), equation.outvars)

        start = self._typed(
            [self._read(atom) for atom in equation.invars[len(equation.invars) - num_carry :]], equation.outvars
        )
        with loop:
            return lax.while_loop(lambda values: replay(condition, 0, values)[0], turn, start)

    def _run_scoped(self, equation: Any, path: Path) -> Sequence[Any]:
        (region,) = regions_of(equation)
        if mesh_of_region(equation) is not None:
            return self._warps(equation, path)
        types = [allocation_type(var.aval) for var in region.allocated]
        for var, kind in zip(region.allocated, types, strict=True):
            if kind is None:
                raise self._unsupported(f"memory space {var.aval.memory_space}", "Run the kernel on the simulator.")

        def body(*refs: Any) -> tuple[Any, ...]:
            for var, ref in zip(region.allocated, refs, strict=True):
                is_union = isinstance(var.aval, RefUnionRef)
                self._values[var] = UnionRefs(var.aval.groups, ref) if is_union else ref
            return tuple(self._inside(region, (*path, 0)))

        return pl.run_scoped(body, *types, collective_axes=equation.params.get("collective_axes") or ())

    def _get_global(self, equation: Any, path: Path) -> Sequence[Any]:
        return [pl.get_global(allocation_type(equation.params["what"]))]

    def _warps(self, equation: Any, path: Path) -> Sequence[Any]:
        """Replays a region that each warp of the warpgroup runs on its own."""
        (region,) = regions_of(equation)
        axis = mesh_of_region(equation)

        def body(warp: Any) -> None:
            self._warp_axes[axis] = warp
            self._inside(region, (*path, 0))
            del self._warp_axes[axis]

        mosaic_gpu.warp_map(body)
        return []

    def _run_state(self, equation: Any, path: Path) -> Sequence[Any]:
        """Replays a region in which arrays become refs, such as an accumulator that starts from an array."""
        (region,) = regions_of(equation)
        initial = dict(zip(region.jaxpr.invars, equation.invars, strict=True))

        def body(refs: Sequence[Any]) -> Any:
            self._values.update(zip(region.allocated, refs, strict=True))
            return self._inside(region, (*path, 0))

        start = [_initial_state(var.aval, self._read(initial[var])) for var in region.allocated]
        final = dict(zip(region.allocated, pl.run_state(body)(start), strict=True))
        return [final[var] if var in final else self._read(initial[var]) for var in region.jaxpr.invars]

    def _axis_index(self, equation: Any, path: Path) -> Sequence[Any]:
        name = equation.params["axis_name"]
        return [self._warp_axes[name] if name in self._warp_axes else lax.axis_index(name)]

    def _program_id(self, equation: Any, path: Path) -> Sequence[Any]:
        return [lax.axis_index(self._program.launch.grid_names[equation.params["axis"]])]

    def _num_programs(self, equation: Any, path: Path) -> Sequence[Any]:
        return [np.int32(self._program.launch.grid[equation.params["axis"]])]

    def _unsupported(self, what: str, instead: str) -> Unsupported:
        source: SourceLine = self._caller[-1]
        return Unsupported(f"{source} kernel {self._program.name}: {what} is not available on the GPU. {instead}")


def _initial_state(aval: Any, value: Any) -> Any:
    return mosaic_gpu.WGMMAAccumulatorRef.init(value) if isinstance(aval.memory_space, AccumulatorSpace) else value


def _is_atom(value: Any) -> bool:
    return isinstance(value, (jex_core.Var, jex_core.Literal))
