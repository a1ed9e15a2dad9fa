"""Compiles one warpgroup of a program to a Python generator function."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np

from mgpu.devices import Device
from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Allocation, Path, ref_aval, regions_of, scoped_allocations
from mgpu.jax_internals import SourceLine, source_line
from mgpu.lang.warps import mesh_of_region
from mgpu.passes.loaded_data import find_loaded
from mgpu.passes.sites import SitePlan
from mgpu.sim.compile import operations, race_hooks, refs, scalars, tiles
from mgpu.sim.compile.context import Context, Known, Local, Options, Storage
from mgpu.sim.compile.control import Control
from mgpu.sim.compile.emitter import Emitter
from mgpu.sim.compile.recording import skip_event
from mgpu.sim.compile.storage_choice import find_byte_exact, find_slotted
from mgpu.sim.compile.warps import compile_warp_region, has_warp_regions, refuse_in_warp
from mgpu.sim.warp_schedulers import lone_warp_cycles


@dataclasses.dataclass(frozen=True)
class WarpgroupCode:
    """The code of one warpgroup.

    Attributes:
      start: makes the generator of a running warpgroup (`mgpu.sim.warpgroup.Warpgroup`).
      text: the generated source, for people who debug the compiler.
      file: file name that the generated code has in tracebacks.
      source_of: the user's source line behind a line number of the generated code.
      sources: the user's source line of each generated line.
      registers_at_end: as of `Context`.
    """

    start: Callable[[Any], Generator[int | None, None, None]]
    text: str
    file: str
    source_of: Callable[[int], SourceLine]
    sources: tuple[SourceLine, ...] = ()
    registers_at_end: int | None = 0


_PREAMBLE = (
    "engine = wg.engine; process = wg.process; cta = wg.cta; run_work = wg.run_work; record = wg.record",
    "memory = cta.memory; sm_index = cta.sm.index; owed = lead = 0",
)
# `NO_VALUES` is the value of everything that follows from loaded data when only time is simulated.
_NAMESPACE = {
    "zeros": np.zeros,
    "partial": partial,
    "NO_VALUES": np.zeros(()),
    "no_write": lambda: None,
    "skip_event": skip_event,
    **scalars.NAMESPACE,
    **tiles.NAMESPACE,
    **refs.NAMESPACE,
    **operations.NAMESPACE,
}


class WarpgroupCompiler:
    """Compiles the equations of one warpgroup; see `compile_warpgroup`."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._control = Control(self._equation)
        self._rules = {
            **operations.RULES,
            **self._control.rules,
            **_AXIS_RULES,
            "core_map": self._warp_region,
            "mpmd_map": self._warp_region,
        }

    def compile(self) -> WarpgroupCode:
        """Compiles the whole program."""
        context, emitter = self._context, self._context.emitter
        for line in (*_PREAMBLE, *([race_hooks.PREAMBLE] if context.options.detect_races else [])):
            emitter.prologue(line)
        self._bind_operands()
        self._control.region(context, context.program.jaxpr, ())
        emitter.flush()
        emitter.line("return; yield")  # a generator even if nothing in it waits
        text = emitter.text("run_warpgroup", "wg")
        file = f"<mgpu {context.program.name} warpgroup {context.warpgroup}>"
        namespace = {**_NAMESPACE, **emitter.namespace}
        exec(compile(text, file, "exec"), namespace)  # our own generated code
        start, sources = namespace["run_warpgroup"], tuple(emitter.sources)
        return WarpgroupCode(start, text, file, emitter.source_of, sources, context.registers_at_end)

    def _warp_region(self, context: Context, equation: Any, path: Path) -> None:
        compile_warp_region(context, equation, path, self._control.region)

    def _bind_operands(self) -> None:
        context, program = self._context, self._context.program
        for number, (var, name) in enumerate(zip(program.jaxpr.invars, program.operand_names, strict=True)):
            context.emitter.prologue(f"G{number} = cta.gmem[{number}]")
            context.values[var] = Storage(Allocation(number, name, ref_aval(var), ()), f"G{number}")
        for number, var in enumerate(program.jaxpr.constvars):
            context.emitter.prologue(f"K{number}_ = cta.consts[{number}]")
            context.values[var] = Local(f"K{number}_")

    def _equation(self, context: Context, equation: Any, path: Path) -> None:
        line = source_line(equation.source_info)
        if line.line:
            context.emitter.source = line
        is_used = any(out in context.used for out in equation.outvars)
        # What happens inside a region stays worth simulating: JAX does not count stores to scratch as effects.
        if not is_used and not equation.effects and not regions_of(equation):
            return
        if mesh_of_region(equation) is not None:
            self._warp_region(context, equation, path)
            return
        refuse_in_warp(context, equation.primitive.name)
        rule = self._rules.get(equation.primitive.name)
        if rule is not None:
            rule(context, equation, path)
        elif not (scalars.compile_scalar(context, equation) or tiles.compile_tile(context, equation)):
            raise context.unsupported(
                f"operation {equation.primitive.name}",
                "Express it with element-wise operations, reductions and slices.",
            )


def _axis_index(context: Context, equation: Any, path: Path) -> None:
    name = equation.params["axis_name"]
    axes = context.axes
    if name not in axes:
        raise context.unsupported(f"axis_index({name!r}) of an axis outside the kernel", "Pass it in as an operand.")
    context.values[equation.outvars[0]] = axes[name]


def _program_id(context: Context, equation: Any, path: Path) -> None:
    launch = context.program.launch
    context.values[equation.outvars[0]] = context.axes[launch.grid_names[equation.params["axis"]]]


def _num_programs(context: Context, equation: Any, path: Path) -> None:
    context.values[equation.outvars[0]] = Known(context.program.launch.grid[equation.params["axis"]])


def _delay(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    emitter.flush()
    nanoseconds = context.expression(equation.invars[0])
    emitter.line(f"yield round({nanoseconds} * {context.device.clock_hz / 1e9!r})")


_AXIS_RULES = {"delay": _delay, "axis_index": _axis_index, "program_id": _program_id, "num_programs": _num_programs}


def compile_warpgroup(
    program: KernelProgram, plan: SitePlan, device: Device, options: Options, warpgroup: int
) -> WarpgroupCode:
    """Compiles the code of warpgroup number `warpgroup`.

    Args:
      program: the traced kernel, already checked.
      plan: its sites.
      device: numbers of the device that is simulated.
      options: what is recorded, and whether values are computed.
      warpgroup: index of the warpgroup, a constant in its code.

    Raises:
      Unsupported: an operation that the simulator does not run; names the user's line.
    """
    emitter = Emitter(dict(options.compute_scale).get(warpgroup, 1), partial(lone_warp_cycles, device=device))
    emitter.source = program.source
    launch = program.launch
    axes: dict[str, Known | Local] = {}
    for number, name in enumerate((*launch.grid_names, *launch.cluster_names)):
        emitter.prologue(f"axis{number} = wg.cta.axes[{name!r}]")
        axes[name] = Local(f"axis{number}")
    if launch.thread_name is not None:
        axes[launch.thread_name] = Known(warpgroup)
    allocations = {
        (path, index): allocation
        for path, found in scoped_allocations(program).items()
        for index, allocation in enumerate(found)
    }
    context = Context(
        emitter,
        program,
        plan,
        warpgroup,
        device,
        options,
        axes,
        {},
        allocations,
        byte_exact=find_byte_exact(program),
        slotted=find_slotted(program) if options.numerics else {},
        loaded=None if options.numerics else find_loaded(program),
        has_warp_regions=has_warp_regions(program),
    )
    return WarpgroupCompiler(context).compile()
