"""Functions of `inline_mgpu`: a call of the lanes for each stretch that computes, and the meetings between them."""

from __future__ import annotations

import math
from typing import Any

from mgpu.frontend.inline_barriers import NamedBarrierStep
from mgpu.frontend.inline_code import Operand
from mgpu.frontend.regions import Path
from mgpu.lang.inline_mgpu import InlinedFunction
from mgpu.lang.memory import SMEM
from mgpu.lang.primitive import View
from mgpu.sim.compile.boxes import box_of
from mgpu.sim.compile.context import Context, Local, Rule
from mgpu.sim.compile.race_hooks import note, note_parts
from mgpu.sim.compile.recording import operands_of, record, site_of
from mgpu.sim.compile.refs import Selection, select
from mgpu.sim.compile.scalars import is_integer_scalar
from mgpu.sim.inline.lanes import Position
from mgpu.sites import Edge
from mgpu.units import LANES_PER_WARP, LANES_PER_WARPGROUP, WARPS_PER_WARPGROUP

_MAX_GRID_YZ = 65535  # CUDA C++ programming guide, technical specifications: largest y and z of a grid


def operand_type(operand: Any) -> Operand:
    """Returns the type of an argument: of a `View` of a ref, or of an array's variable or literal."""
    if isinstance(operand, View):
        return Operand(operand.shape, operand.dtype, operand.space is SMEM)
    return Operand(tuple(operand.aval.shape), operand.aval.dtype)


def _inline(context: Context, equation: Any, path: Path) -> None:
    from mgpu.frontend.inline_reader import read_inline_code  # loads the Mosaic GPU compiler's API
    from mgpu.sim.inline.program import Fence, InlineProgram, Stretch

    emitter, source = context.emitter, context.emitter.source
    inlined: InlinedFunction = equation.params["inlined"]
    operands = operands_of(equation)
    types = tuple(map(operand_type, operands))
    program = InlineProgram(read_inline_code(inlined, types, source), types, context.device, source)
    if context.warp is not None and not program.only_meets:
        raise context.unsupported(
            "inline_mgpu in a warp-level region", "Only its barriers run there: move the rest out."
        )
    selections = [select(context, operand) if isinstance(operand, View) else None for operand in operands]
    name = emitter.constant(program)
    computes = context.options.numerics or program.only_meets
    values = [
        context.expression(operand) if selection is None else selection.text
        for operand, selection in zip(operands, selections, strict=True)
    ]
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    emitter.flush()
    lanes = ""
    if computes:
        lanes = emitter.assign(f"{name}.begin(({''.join(value + ', ' for value in values)}), {_position(context)})")
    for number, part in enumerate(program.parts):
        if isinstance(part, Stretch):
            emitter.spend(work=part.cost.work)
            if part.cost.chain_cycles:
                emitter.depend((), emitter.fresh("chain"), part.cost.chain_cycles)
            emitter.flush()
            _take_time(context, program, selections)
            if computes:
                emitter.line(f"cta.multiply_ended(); {name}.run({lanes}, {number})")
                _note_accesses(context, program, selections, f"{name}.touched({lanes}")
        elif isinstance(part, Fence):
            emitter.spend(cycles=context.device.fence_proxy_async_cycles)
            note(context, "commit")
        else:
            _meet(context, part, lanes)
    record(context, site, Edge.END)
    _take_results(context, equation, f"{name}.end({lanes})" if computes else f"{name}.nothing()")


def _take_results(context: Context, equation: Any, results: str) -> None:
    if not equation.outvars:
        return
    returned = context.emitter.assign(results)
    for number, out in enumerate(equation.outvars):
        text = f"{returned}[{number}]" + (".item()" if is_integer_scalar(out.aval) else "")
        context.values[out] = Local(context.emitter.assign(text))


def _note_accesses(context: Context, program: Any, selections: list[Selection | None], touched: str) -> None:
    """Tells those who look for races which elements of its refs a stretch has accessed; `touched` begins a call."""
    for number, (selection, kind) in enumerate(zip(selections, program.accesses, strict=True)):
        if selection is not None and kind:
            for each in ("read", "write") if kind == "update" else (kind,):
                note_parts(context, selection, each, f"{touched}, {number}, {each!r})")


def _take_time(context: Context, program: Any, selections: list[Selection | None]) -> None:
    """Spends the time of the accesses to the refs of a stretch that lie in GMEM."""
    emitter = context.emitter
    for selection, kind in zip(selections, program.accesses, strict=True):
        if selection is None or not kind or selection.storage.allocation.path:
            continue
        box = box_of(context, selection).box
        if kind != "write":
            emitter.line(f"yield memory.read(engine.now, sm_index, {box}) - engine.now")
        if kind != "read":
            emitter.line(f"yield max(0, memory.write(engine.now, sm_index, {box}) - engine.now)")


def _meet(context: Context, part: NamedBarrierStep, lanes: str) -> None:
    emitter, device = context.emitter, context.device
    if part.is_own and context.warp is None:
        cycles = device.named_barrier_cycles + WARPS_PER_WARPGROUP * device.named_barrier_cycles_per_warp
        emitter.spend(cycles=cycles)
        return
    emitter.flush()
    number = str(part.number) if part.number is not None else emitter.assign(f"{lanes}.uniform({part.value})", "bar")
    threads = LANES_PER_WARPGROUP if context.warp is None else LANES_PER_WARP
    note(context, "arrive_named", number, threads, part.num_threads)
    waiting = ", process" if part.waits else ""
    emitter.line(f"cta.named_barrier({number}).arrive({threads}, {part.num_threads}{waiting})")
    if part.waits:
        emitter.line("yield None")
        note(context, "waited_named", number)


def _position(context: Context) -> str:
    """Returns the expression of where the lanes are; the grid's last axis is the hardware's x."""
    launch = context.program.launch
    threads = f"{context.warpgroup}, {launch.num_threads}"
    position = context.emitter.constant(Position)
    if math.prod(launch.cluster) > 1:
        return f"{position}({threads}, None)"
    axes = [context.expression(context.axes[name]) for name in launch.grid_names]
    *outer, y, x = ["0"] * max(0, 3 - len(axes)) + axes
    sizes = [1] * max(0, 3 - len(axes)) + list(launch.grid)
    z = "0"
    for axis, size in zip(outer, sizes, strict=False):
        z = f"({z} * {size} + {axis})"
    block = f"(({x}, {y}, {z}), ({sizes[-1]}, {sizes[-2]}, {math.prod(sizes[:-2])}))"
    return f"{position}({threads}, {block})"


RULES: dict[str, Rule] = {"inline_mgpu": _inline}
