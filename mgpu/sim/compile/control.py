"""Control flow and scopes: branches, loops, inlined calls, allocation, and named scopes.

A role branch on the warpgroup's own index is decided while compiling, so each warpgroup's code holds only its role.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from mgpu.frontend.regions import Allocation, Path, Region, read_variables, regions_of
from mgpu.jax_internals import scan_split
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.hopper import AccumulatorSpace
from mgpu.lang.memory import SMEM
from mgpu.lang.semaphores import SemaphoreSpace
from mgpu.sim.compile.context import Context, Known, Local, Storage
from mgpu.sim.compile.race_hooks import note, note_scope
from mgpu.sim.compile.recording import record, windowed_loop
from mgpu.sim.compile.scalars import assign_value, is_integer_scalar
from mgpu.sim.compile.tensor_core import read_accumulators, wait_for_mma, zero_accumulator
from mgpu.sim.compile.turns import note_scan_turn, note_while_turn
from mgpu.sim.cta import Scope
from mgpu.sim.values import carrier_dtype, uninitialised
from mgpu.sites import Edge

CompileEquation = Callable[[Context, Any, Path], None]


class Control:
    """Compiles equations that hold regions.

    Args:
      compile_equation: compiles any equation; called back for those of a region.
    """

    def __init__(self, compile_equation: CompileEquation) -> None:
        self._compile_equation = compile_equation
        self.rules: dict[str, CompileEquation] = {
            "cond": self._cond,
            "scan": self._scan,
            "while": self._while,
            "run_scoped": self._run_scoped,
            "run_state": self._run_state,
        }
        for name in (
            "jit",
            "pjit",
            "closed_call",
            "core_call",
            "custom_jvp_call",
            "custom_vjp_call",
            "checkpoint",
            "remat2",
        ):
            self.rules[name] = self._call

    def region(self, context: Context, jaxpr: Any, path: Path) -> list[Any]:
        """Compiles a region whose inputs are bound, and returns the values of its outputs."""
        context.used |= read_variables(jaxpr)
        open_scopes: tuple[int, ...] = ()
        for index, equation in enumerate(jaxpr.eqns):
            here = (*path, index)
            open_scopes = _switch_scopes(context, open_scopes, context.plan.scopes.get(here, ()))
            self._compile_equation(context, equation, here)
        _switch_scopes(context, open_scopes, ())
        return [context.read(atom) for atom in jaxpr.outvars]

    def _bind(self, context: Context, region: Region) -> None:
        for inner, outer in region.inputs:
            context.values[inner] = context.read(outer)

    def _call(self, context: Context, equation: Any, path: Path) -> None:
        (region,) = regions_of(equation)
        self._bind(context, region)
        results = self.region(context, region.jaxpr, (*path, 0))
        for out, value in zip(equation.outvars, results, strict=True):
            context.values[out] = value

    def _cond(self, context: Context, equation: Any, path: Path) -> None:
        regions = regions_of(equation)
        which = context.read(equation.invars[0])
        if isinstance(which, Known):
            number = min(max(int(which.value), 0), len(regions) - 1)
            self._bind(context, regions[number])
            results = self.region(context, regions[number].jaxpr, (*path, number))
            for out, value in zip(equation.outvars, results, strict=True):
                context.values[out] = value
            return
        emitter, text = context.emitter, context.expression(which)
        names = [emitter.fresh() for _ in equation.outvars]
        for position, number in enumerate(reversed(range(len(regions)))):
            # The last branch takes every larger index and the first every smaller one, as lax.switch clamps.
            if len(regions) == 2:
                header = f"if {text}:" if number else "else:"
            else:
                header = "else:" if number == 0 else f"{'if' if position == 0 else 'elif'} {text} >= {number}:"
            with emitter.block(header):
                self._bind(context, regions[number])
                results = self.region(context, regions[number].jaxpr, (*path, number))
                self._assign(context, names, results)
        for out, name in zip(equation.outvars, names, strict=True):
            context.values[out] = Local(name)

    def _assign(self, context: Context, names: Sequence[str], values: Sequence[Any]) -> None:
        if names:
            texts = [context.expression(value) for value in values]
            context.emitter.hand_over_events()  # which may name what changes here
            context.emitter.line(f"{', '.join(names)} = {', '.join(texts)}")

    def _scan(self, context: Context, equation: Any, path: Path) -> None:
        emitter, params = context.emitter, equation.params
        (region,) = regions_of(equation)
        consts, carry, xs = scan_split(params, equation.invars)
        length = int(params["length"])
        inner = region.jaxpr.invars
        num_consts, num_carry = len(consts), len(carry)
        for var, atom in zip(inner[:num_consts], consts, strict=True):
            context.values[var] = context.read(atom)
        names = [emitter.fresh("c") for _ in carry]
        self._assign(context, names, carry)
        ys = [emitter.assign(f"[None] * {length}", "ys") for _ in equation.outvars[num_carry:]]
        counter = emitter.fresh("n")
        window = windowed_loop(context, path)
        steps = f"range({length - 1}, -1, -1)" if params["reverse"] else f"range({length})"
        with emitter.block(f"for {counter} in {steps}:"):
            for var, name in zip(inner[num_consts : num_consts + num_carry], names, strict=True):
                context.values[var] = Local(name)
            for var, atom in zip(inner[num_consts + num_carry :], xs, strict=True):
                context.values[var] = Local(assign_value(context, var, f"{context.expression(atom)}[{counter}]"))
            note_scan_turn(context, counter, length, reverse=params["reverse"])
            emitter.spend(cycles=2)  # loop counter and branch
            context.loop_depth += 1
            with window.iteration(_counter(context, path, names, counter)) if window else contextlib.nullcontext():
                results = self.region(context, region.jaxpr, (*path, 0))
            context.loop_depth -= 1
            self._assign(context, names, results[:num_carry])
            for name, value in zip(ys, results[num_carry:], strict=True):
                emitter.line(f"{name}[{counter}] = {context.expression(value)}")
        if window:
            window.close()
        for out, name in zip(equation.outvars, names, strict=False):
            context.values[out] = Local(name)
        for out, name in zip(equation.outvars[num_carry:], ys, strict=True):
            dtype = carrier_dtype(out.aval.dtype).name
            stacked = f"asarray({name}, {dtype!r}).reshape({tuple(out.aval.shape)})"
            context.values[out] = Local(assign_value(context, out, stacked))

    def _while(self, context: Context, equation: Any, path: Path) -> None:
        emitter = context.emitter
        condition, body = regions_of(equation)
        num_carry = len(equation.outvars)
        names = [emitter.fresh("c") for _ in equation.outvars]
        self._assign(context, names, equation.invars[len(equation.invars) - num_carry :])
        window = windowed_loop(context, path)
        turn = emitter.assign("-1", "n") if window else ""
        with emitter.block("while True:"):
            for region in (condition, body):
                self._bind(context, region)
                carried = region.jaxpr.invars[len(region.jaxpr.invars) - num_carry :]
                for var, name in zip(carried, names, strict=True):
                    context.values[var] = Local(name)
            emitter.spend(cycles=2)  # loop counter and branch
            (goes_on,) = self.region(context, condition.jaxpr, (*path, 0))
            # Every turn is an event, so that a loop that never ends meets the engine's limit.
            emitter.flush()
            emitter.line(f"if not {context.expression(goes_on)}: break")
            note_while_turn(context, condition.jaxpr, condition.jaxpr.invars[-num_carry:])
            context.loop_depth += 1
            if window:
                emitter.line(f"{turn} += 1")
            with window.iteration(_counter(context, path, names, turn)) if window else contextlib.nullcontext():
                results = self.region(context, body.jaxpr, (*path, 1))
            context.loop_depth -= 1
            self._assign(context, names, results)
        if window:
            window.close()
        for out, name in zip(equation.outvars, names, strict=True):
            context.values[out] = Local(name)

    def _run_scoped(self, context: Context, equation: Any, path: Path) -> None:
        (region,) = regions_of(equation)
        self._bind(context, region)
        allocations = [context.allocations[path, index] for index in range(len(region.allocated))]
        shared = [_is_shared(allocation) for allocation in allocations]
        if any(shared):
            self._enter_scope(context, path, [a for a, is_shared in zip(allocations, shared, strict=True) if is_shared])
        for var, allocation in zip(region.allocated, allocations, strict=True):
            context.values[var] = _storage(context, allocation)
        results = self.region(context, region.jaxpr, (*path, 0))
        for out, value in zip(equation.outvars, results, strict=True):
            context.values[out] = value

    def _run_state(self, context: Context, equation: Any, path: Path) -> None:
        """Arrays become registers that the region may write; the results are what they hold at its end.

        What the region returns, if anything, comes before that, as in Mosaic GPU.
        """
        emitter = context.emitter
        (region,) = regions_of(equation)
        initial = [context.read(atom) for atom in equation.invars]
        self._bind(context, region)
        for index, var in enumerate(region.allocated):
            storage = _storage(context, context.allocations[path, index])
            context.values[var] = storage
            value = initial[list(region.jaxpr.invars).index(var)]
            if context.holds_values(storage.allocation):
                emitter.line(f"{storage.name}[...] = {context.expression(value)}")
        returned = self.region(context, region.jaxpr, (*path, 0))
        if any(isinstance(var.aval.memory_space, AccumulatorSpace) for var in region.allocated):
            wait_for_mma(context, 0, -1)
            read_accumulators(context)
        finals = iter([*returned, *(self._final_value(context, var) for var in region.allocated)])
        for out, var in zip(equation.outvars, region.jaxpr.invars, strict=True):
            context.values[out] = next(finals) if var in region.allocated else context.read(var)

    def _final_value(self, context: Context, var: Any) -> Any:
        storage = context.read(var)
        if not isinstance(storage, Storage):
            return storage
        suffix = ".item()" if is_integer_scalar(var.aval.inner_aval) else ".copy()"
        return Local(context.emitter.assign(f"{storage.name}{suffix}"))

    def _enter_scope(self, context: Context, path: Path, allocations: list[Allocation]) -> None:
        emitter = context.emitter
        scope = emitter.constant(Scope(path, tuple(allocations), context.byte_exact, context.slotted))
        entries = _entries(allocations[0])
        if context.warp is not None:
            raise context.unsupported(
                "allocating SMEM or barriers inside a warp-level region", "Allocate it around the region."
            )
        emitter.prologue(f"{entries} = 0")
        late = [allocation for allocation in allocations if _is_late(allocation)]
        names = ", ".join(_late_name(a) if a in late else _storage_name(a) for a in allocations)
        is_top = len(path) == 1
        emitter.flush()
        emitter.line(f"{names}, = cta.enter({scope}, {entries})")
        for allocation in late:
            storage = _shared_storage(context, allocation)
            # A warp of its own shares the locals of its warpgroup and cannot set them.
            emitter.line(storage.take(_late_name(allocation)) if context.has_warp_regions else f"{storage.name} = None")
        emitter.line(f"{entries} += 1")
        if is_top and context.program.launch.cluster_size > 1:
            # Behind the initialisation stands a cluster barrier, whose time belongs to the CTA's setup.
            emitter.line("yield 1")
        if not is_top and context.program.launch.num_threads > 1:
            # Barriers must be initialised before anybody uses them. The top scope's are, before the CTA starts.
            note(context, "meet")
            emitter.line("if not cta.sync.arrive_and_wait(process): yield None")
            note(context, "met")
        if not is_top:
            note_scope(context, path, [(a, _late_name(a)) for a in late if _is_buffer(a)])


def _counter(context: Context, path: Path, carried: Sequence[str], turn: str) -> str:
    """Returns the local that holds the number of an iteration: what the loop counts with itself, else its turns."""
    number = context.plan.loops[path].counter
    return turn if number is None else carried[number]


def _is_shared(allocation: Allocation) -> bool:
    space = allocation.aval.memory_space
    return isinstance(space, (BarrierSpace, SemaphoreSpace)) or getattr(space, "kind", None) is SMEM


def _is_buffer(allocation: Allocation) -> bool:
    return getattr(allocation.aval.memory_space, "kind", None) is SMEM


def _is_late(allocation: Allocation) -> bool:
    return _is_shared(allocation) and not isinstance(allocation.aval.memory_space, SemaphoreSpace)


def _late_name(allocation: Allocation) -> str:
    return f"L{allocation.number}"


def _entries(allocation: Allocation) -> str:
    """Returns the local that counts how often the scope of a shared allocation has been entered."""
    return f"entries{'_'.join(map(str, allocation.path))}"


def _storage_name(allocation: Allocation) -> str:
    letter = "B" if isinstance(allocation.aval.memory_space, BarrierSpace) else "S"
    return f"{letter}{allocation.number}"


def _shared_storage(context: Context, allocation: Allocation) -> Storage:
    """Returns where a buffer, or a barrier array apart from its phase, is that all warpgroups of the CTA share."""
    late = _late_name(allocation) if _is_late(allocation) and not context.has_warp_regions else ""
    storage = Storage(allocation, _storage_name(allocation), entry=_entries(allocation), late=late)
    slots = context.slotted.get(allocation.number)
    return storage if slots is None else dataclasses.replace(storage, tiles=f"T{allocation.number}", slots=slots)


def _storage(context: Context, allocation: Allocation) -> Storage:
    """Emits what makes a fresh allocation, and returns where it is."""
    emitter, aval = context.emitter, allocation.aval
    if isinstance(aval.memory_space, BarrierSpace):
        phase = f"phase{allocation.number}"
        emitter.line(f"{phase} = 0")
        if context.has_warp_regions:
            emitter.line(f"{phase}_warps = [0, 0, 0, 0]")
        return dataclasses.replace(_shared_storage(context, allocation), phase=phase)
    if _is_shared(allocation):
        return _shared_storage(context, allocation)
    name = f"R{allocation.number}"
    if isinstance(aval.memory_space, AccumulatorSpace):
        emitter.line(f"{name} = {zero_accumulator(context, allocation)}")
    else:
        make = emitter.constant(uninitialised)
        shape, dtype = tuple(aval.shape), emitter.constant(aval.dtype)
        emitter.line(f"{name} = {make}({shape}, {dtype})")
    return Storage(allocation, name)


def _switch_scopes(context: Context, current: tuple[int, ...], wanted: tuple[int, ...]) -> tuple[int, ...]:
    """Emits ends and begins of named scopes between two equations."""
    common = next(
        (i for i, (a, b) in enumerate(zip(current, wanted, strict=False)) if a != b), min(len(current), len(wanted))
    )
    for site in reversed(current[common:]):
        record(context, site, Edge.END)
    for site in wanted[common:]:
        record(context, site, Edge.BEGIN)
    return wanted
