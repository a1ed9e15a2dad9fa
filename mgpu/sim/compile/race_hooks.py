"""Telling the race detector, from generated code, which shared memory is accessed; nothing is emitted without it."""

from __future__ import annotations

from mgpu.frontend.program import KernelProgram
from mgpu.frontend.regions import walk
from mgpu.lang.memory import SMEM
from mgpu.lang.primitive import View
from mgpu.sim.compile.context import Context
from mgpu.sim.compile.refs import Selection
from mgpu.sim.races import Place

_NOT_FOLLOWED = ("semaphore", "core_map", "mpmd_map", "barrier_test", "async_store_smem", "atomic", "cluster")


def can_detect_races(program: KernelProgram) -> bool:
    """True if the detector follows everything that orders accesses in a program: no clusters, warps or semaphores."""
    if program.launch.cluster_size > 1:
        return False
    names = (step.equation.primitive.name for step in walk(program))
    return not any(part in name for name in names for part in _NOT_FOLLOWED)


def _place(context: Context, what: str, selection: Selection) -> str:
    name = selection.storage.allocation.name
    return context.emitter.constant(Place(what, str(context.emitter.source), name, context.warpgroup))


def note_access(context: Context, view: View, selection: Selection, *, is_store: bool) -> None:
    """Emits an access by the warpgroup itself; ignores memory other than SMEM."""
    if context.options.detect_races and view.space is SMEM:
        what = "write" if is_store else "read"
        place = _place(context, what, selection)
        context.emitter.line(f"if cta.races: cta.races.{what}({context.warpgroup}, {selection.text}, {place})")


def note_load(context: Context, selection: Selection, barrier: str, condition: str = "True") -> None:
    """Emits the start of a TMA load, under a condition if there is one."""
    if context.options.detect_races:
        place = _place(context, "TMA load", selection)
        context.emitter.line(
            f"if cta.races and {condition}: cta.races.load({context.warpgroup}, {selection.text}, {barrier}, {place})"
        )


def note_store(context: Context, selection: Selection, closes_group: bool, condition: str = "True") -> None:
    """Emits the start of a TMA store, under a condition if there is one."""
    if context.options.detect_races:
        place = _place(context, "TMA store", selection)
        call = f"cta.races.store({context.warpgroup}, {selection.text}, {closes_group}, {place})"
        context.emitter.line(f"if cta.races and {condition}: {call}")


def note_mma(context: Context, operands: list[Selection]) -> None:
    """Emits the start of a wgmma that reads these operands from SMEM."""
    if context.options.detect_races:
        views = "".join(f"({selection.text}, {_place(context, 'wgmma', selection)}), " for selection in operands)
        context.emitter.line(f"if cta.races: cta.races.mma({context.warpgroup}, ({views}))")


def note(context: Context, event: str, *arguments: object) -> None:
    """Emits an event that orders accesses: commit, waited, mma_waited, store_waited, close_store_group."""
    if context.options.detect_races:
        rest = "".join(f", {argument}" for argument in arguments)
        context.emitter.line(f"if cta.races: cta.races.{event}({context.warpgroup}{rest})")
