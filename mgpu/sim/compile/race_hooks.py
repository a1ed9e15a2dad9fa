"""Telling the race detector, from generated code, what is accessed and what orders it; nothing is emitted without it.

The generated code has two locals: `races` watches the CTA's SMEM and barriers, and is None in a CTA that is not watched
in full; `global_races` watches GMEM, in every CTA.
"""

from __future__ import annotations

import ast
import math
import re

import numpy as np

from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import Allocation, Path, walk
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.primitive import views_of
from mgpu.lang.transforms import bits_of
from mgpu.passes.budget import allocation_bytes
from mgpu.sim.compile.boxes import BoxText, overlap
from mgpu.sim.compile.context import Context
from mgpu.sim.compile.refs import Selection
from mgpu.sim.compile.tile_cuts import tiles_of
from mgpu.sim.races import Place
from mgpu.sim.races.cta import THREADS_PER_WARPGROUP
from mgpu.sim.races.report import REMOTE_ARRIVAL, REMOTE_ATOMIC, REMOTE_STORE, TMA_LOAD, TMA_REDUCTION, TMA_STORE, WGMMA
from mgpu.sim.races.reuse import Extent, ScopeExtents

PREAMBLE = "races = cta.races; global_races = cta.global_races"
_WRITES = frozenset(("swap", "addupdate", "store", "atomic", "copy_smem_to_gmem", "inline_mgpu"))


def written_operands(program: KernelProgram) -> frozenset[int]:
    """Returns the numbers of the GMEM operands that some operation of a program writes, and of all outputs.

    The others cannot race, and have been written before the launch.
    """
    written = set(range(len(program.in_avals), len(program.in_avals) + len(program.out_avals)))
    for step in walk(program):
        if step.equation.primitive.name in _WRITES:
            found = [step.refs[view.ref] for view in views_of(step.equation) if view.ref in step.refs]
            written.update(allocation.number for allocation in found if not allocation.path)
    for number, output in program.input_output_aliases:  # one memory under two names
        pair = {number, len(program.in_avals) + output}
        written |= pair if pair & written else set()
    return frozenset(written)


def thread_number(context: Context) -> int:
    """Returns the number under which the detector knows the warpgroup, or the warp, whose code is compiled."""
    return THREADS_PER_WARPGROUP * context.warpgroup + (0 if context.warp is None else 1 + context.warp)


def _is_watched(context: Context, selection: Selection) -> bool:
    return context.options.detect_races and selection.storage.allocation.number in context.options.written_operands


def _view_text(selection: Selection) -> str:
    """Returns the expression of a NumPy view of what is selected, also of a single element."""
    if selection.is_whole:
        return selection.base
    return f"{selection.base}[{', '.join([*(part.text for part in selection.parts), '...'])}]"


def inside_view(array: np.ndarray, starts: tuple[int, ...], sides: tuple[int, ...]) -> np.ndarray:
    """Returns the part of a box that lies inside an array, as a view."""
    return array[overlap(array.shape, starts, sides)[0]]


def _box_text(context: Context, box: BoxText) -> str:
    """Returns the expression of a view of a GMEM box, without what lies outside its array."""
    if box.inside == "True":
        return _view_text(box.selection)
    clipped = f"{context.emitter.constant(inside_view)}({box.selection.base}, {box.corner}, {box.sides})"
    return clipped if box.inside == "False" else f"({_view_text(box.selection)} if {box.inside} else {clipped})"


def _access(context: Context, what: str, selection: Selection, space: str, text: str) -> str:
    """Returns the arguments that tell the detector of an access: the place, the array, and the values of its indices.

    The view is not made at every access: the detector makes it when it meets a place with new values.

    Args:
      context: what is being compiled.
      what: see `Place`.
      selection: what is accessed.
      space: "SMEM" or "GMEM".
      text: expression of the view.
    """
    constants = context.emitter.namespace
    names = [node.id for node in ast.walk(ast.parse(text, mode="eval")) if isinstance(node, ast.Name)]
    array = next(name for name in re.findall(r"\w+", selection.base) if name in names and name not in constants)
    values = sorted({name for name in names if name not in constants} - {array})
    view = eval(f"lambda {', '.join([array, *values])}: {text}", dict(constants))  # our own generated code
    name, line = selection.storage.allocation.name, str(context.emitter.source)
    place = context.emitter.constant(Place(what, line, name, context.warpgroup, context.warp, space, view))
    return f"{place}, {array}, ({''.join(value + ', ' for value in values)})"


def _emit_access(
    context: Context, what: str, selection: Selection, text: str, call: str, condition: str, space: str
) -> None:
    """Emits a call for an access, or one for each row that an index array selects.

    Args:
      context, what, selection, space, text: as of `_access`.
      call: the call, with a place for the arguments of the access.
      condition: when it is made; "" for always.
    """
    emitter = context.emitter
    gathered = next((part for part in selection.parts if part.gathers), None)
    head = f"if {condition}:" if condition else ""
    if gathered is None:
        emitter.line(f"{head} {call.format(_access(context, what, selection, space, text))}".strip())
        return
    row = emitter.fresh("row")
    index = ", ".join([*(row if part is gathered else part.text for part in selection.parts), "..."])
    access = _access(context, what, selection, space, f"{selection.base}[{index}]")
    emitter.line(head or "if True:")
    emitter.line(f"    for {row} in {gathered.start}.tolist(): {call.format(access)}")


def note_access(context: Context, selection: Selection, kind: str) -> None:
    """Emits an access by the warpgroup itself to SMEM, or to an operand in GMEM that somebody writes.

    Args:
      context: what is being compiled.
      selection: what is accessed.
      kind: "read", "write", or "update" for atomics.
    """
    if not context.options.detect_races:
        return
    thread, what, text = thread_number(context), "atomic" if kind == "update" else kind, _view_text(selection)
    if selection.storage.allocation.path:
        _emit_access(context, what, selection, text, f"races.{kind}({thread}, {{}})", "races", "SMEM")
    elif _is_watched(context, selection):
        _emit_access(context, what, selection, text, f"global_races.{kind}_global({thread}, {{}})", "", "GMEM")


def part_of_view(view: np.ndarray, bounds: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Returns a box of a view, given (begin, end) along each dimension."""
    return view[tuple(slice(begin, end) for begin, end in bounds)]


def note_parts(context: Context, selection: Selection, kind: str, boxes: str) -> None:
    """Emits accesses by the warpgroup itself to parts of a selection in SMEM, or in GMEM that somebody writes.

    Args:
      context: what is being compiled.
      selection: what the parts belong to.
      kind: "read" or "write".
      boxes: expression of an iterable of the parts' bounds, as of `part_of_view`.
    """
    is_smem = bool(selection.storage.allocation.path)
    if not (context.options.detect_races and (is_smem or _is_watched(context, selection))):
        return
    emitter = context.emitter
    bounds = emitter.fresh("bounds")
    text = f"{emitter.constant(part_of_view)}({selection.text}, {bounds})"
    access = _access(context, kind, selection, "SMEM" if is_smem else "GMEM", text)
    watcher, method = ("races", kind) if is_smem else ("global_races", f"{kind}_global")
    emitter.line(f"if {watcher}:")
    emitter.line(f"    for {bounds} in {boxes}: {watcher}.{method}({thread_number(context)}, {access})")


def note_load(
    context: Context, target: Selection, box: BoxText, barrier: str, *, predicate: str = "", share: bool = False
) -> None:
    """Emits the start of a TMA load, or of a share of a collective one, to which the CTA's own arrival does not belong.

    Args:
      context: what is being compiled.
      target, box: to where, and from where.
      barrier: expression of the mbarrier that takes the bytes.
      predicate: expression of the condition under which the load starts; "" if it always does.
      share: whether it is a share of a collective load.
    """
    if not context.options.detect_races:
        return
    method = "load_share" if share else "load"
    condition = f" and {predicate}" if predicate else ""
    access = _access(context, TMA_LOAD, target, "SMEM", _view_text(target))
    context.emitter.line(f"if races{condition}: races.{method}({thread_number(context)}, {access}, {barrier})")
    note_global_load(context, box, barrier, predicate)


def note_global_load(context: Context, box: BoxText, barrier: str, predicate: str = "") -> None:
    """Emits that a TMA load reads GMEM, if somebody writes that operand."""
    if _is_watched(context, box.selection):
        call = f"global_races.load_global({thread_number(context)}, {{}}, {barrier})"
        _emit_access(context, TMA_LOAD, box.selection, _box_text(context, box), call, predicate, "GMEM")


def note_shares(context: Context, target: Selection, buffers: str, barriers: str, own: str) -> None:
    """Emits the start of this CTA's share of a multicast load.

    Args:
      context: what is being compiled.
      target: what it fills of a buffer.
      buffers, barriers: expressions of the lists of that buffer in all CTAs, and of the mbarriers that take the bytes.
      own: expression of its own mbarrier, on which it arrives.
    """
    if context.options.detect_races:
        thread, emitter = thread_number(context), context.emitter
        place, _, index = _access(context, TMA_LOAD, target, "SMEM", _view_text(target)).split(", ", 2)
        emitter.line("if races:")
        share = f"races.load_share({thread}, {place}, there, {index}, completing)"
        emitter.line(f"    for there, completing in zip({buffers}, {barriers}): {share}")
        emitter.line(f"    races.arrive({thread}, {own})")


def note_store(context: Context, source: Selection, box: BoxText, *, reduces: bool, predicate: str = "") -> None:
    """Emits the start of a TMA store or reduction, under a condition if there is one."""
    if not context.options.detect_races:
        return
    what, thread = TMA_REDUCTION if reduces else TMA_STORE, thread_number(context)
    condition = f" and {predicate}" if predicate else ""
    access = _access(context, TMA_STORE, source, "SMEM", _view_text(source))
    context.emitter.line(f"if races{condition}: races.store({thread}, {access})")
    call = f"global_races.store_global({thread}, {{}})"
    _emit_access(context, what, box.selection, _box_text(context, box), call, predicate, "GMEM")


def note_mma(context: Context, acc: Allocation, operands: list[Selection]) -> None:
    """Emits the start of a wgmma that adds to an accumulator and reads these operands from SMEM."""
    if context.options.detect_races:
        place = context.emitter.constant(Place(WGMMA, str(context.emitter.source), acc.name, context.warpgroup))
        accesses = [_access(context, WGMMA, selection, "SMEM", _view_text(selection)) for selection in operands]
        tuples = "".join(f"({access}), " for access in accesses)
        context.emitter.line(f"if races: races.mma({thread_number(context)}, {place}, {acc.number}, ({tuples}))")


def note_accumulator_read(context: Context, acc: Allocation) -> None:
    """Emits that a warpgroup reads an accumulator."""
    if context.options.detect_races:
        place = context.emitter.constant(Place("read", str(context.emitter.source), acc.name, context.warpgroup))
        note(context, "read_accumulator", place, acc.number)


def note_remote_store(context: Context, target: Selection, barrier: str, site: int, *, is_atomic: bool) -> None:
    """Emits a store of registers to SMEM of another CTA, which completes on the mbarrier there."""
    if context.options.detect_races:
        access = _access(context, REMOTE_ATOMIC if is_atomic else REMOTE_STORE, target, "SMEM", _view_text(target))
        source = f"({context.warpgroup}, {site}, cta.index)"
        context.emitter.line(f"if races: races.store_remote({thread_number(context)}, {access}, {barrier}, {source})")


def note_remote_arrival(
    context: Context, event: str, barriers: str, name: str, site: int, *, condition: str = ""
) -> None:
    """Emits an arrival on barriers of other CTAs, under a condition if there is one.

    Args:
      context: what is being compiled.
      event: "send" or "arrive_cluster", the method of `CtaRaces`.
      barriers: its argument.
      name: of the barriers.
      site: number of the operation's site.
      condition: expression; "" for always.
    """
    if context.options.detect_races:
        line = str(context.emitter.source)
        place = context.emitter.constant(Place(REMOTE_ARRIVAL, line, name, context.warpgroup, context.warp))
        note(context, event, barriers, f"({context.warpgroup}, {site}, cta.index)", place, condition=condition)


def note(context: Context, event: str, *arguments: object, condition: str = "") -> None:
    """Emits an event that orders accesses: a method of `CtaRaces` that takes the thread's number first."""
    if context.options.detect_races:
        rest = "".join(f", {argument}" for argument in arguments)
        test = f"races and {condition}" if condition else "races"
        context.emitter.line(f"if {test}: races.{event}({thread_number(context)}{rest})")


def note_scope(context: Context, path: Path, buffers: list[tuple[Allocation, str]]) -> None:
    """Emits that all warpgroups have come to a scope inside the kernel.

    Args:
      context: what is being compiled.
      path: names the scope.
      buffers: its SMEM buffers, and the locals that hold their `LateAllocation`s.
    """
    if context.options.detect_races and buffers:
        extents = tuple(_extent(context, allocation) for allocation, _ in buffers)
        scope = context.emitter.constant(ScopeExtents(path, extents))
        note(context, "enter_scope", scope, f"({''.join(name + ', ' for _, name in buffers)})")


def _extent(context: Context, allocation: Allocation) -> Extent:
    """Returns where a buffer lies: after those of the scopes around it, and after its scope's earlier ones."""
    before = (
        other
        for (path, _), other in context.allocations.items()
        if (allocation.path[: len(path)] == path and path != allocation.path)
        or (path == allocation.path and other.number < allocation.number)
    )
    begin = sum(allocation_bytes(other) for other in before if not isinstance(other.aval.memory_space, BarrierSpace))
    shape, space = tuple(allocation.aval.shape), allocation.aval.memory_space
    tiles = tiles_of(space, len(shape))
    tiled = next((axis for axis, tile in enumerate(tiles) if tile > 1), len(shape) - 1)
    sides = tuple(tile if axis <= tiled else side for axis, (side, tile) in enumerate(zip(shape, tiles, strict=True)))
    rows = tuple(size // side for size, side in zip(shape[: tiled + 1], sides, strict=False))
    row_bytes = max(1, math.prod(sides) * bits_of(allocation.aval.dtype) // 8)
    return Extent(begin, row_bytes, rows, sides)


def note_semaphore(context: Context, event: str, semaphore: str, needed: str = "") -> None:
    """Emits a signal of a semaphore, or what acquires those of others.

    Args:
      context: what is being compiled.
      event: "signal" or "acquire".
      semaphore: expression of it.
      needed: expression of the sum of signals that was waited for; "" where its value was read.
    """
    if context.options.detect_races and context.options.written_operands:
        arguments = ", ".join(filter(None, (str(thread_number(context)), semaphore, needed)))
        context.emitter.line(f"global_races.{event}({arguments})")
