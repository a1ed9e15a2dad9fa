"""mbarriers, fences, register hand-over and the dependency of one launch on another."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgpu.frontend.regions import Path
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.primitive import View
from mgpu.sim.compile.context import Context, Local, Rule, Storage
from mgpu.sim.compile.race_hooks import note, note_remote_arrival
from mgpu.sim.compile.recording import operands_of, record, site_of
from mgpu.sim.compile.refs import Selection, select
from mgpu.sites import Edge


def barrier_of(context: Context, view: View) -> tuple[Selection, str]:
    """Returns a barrier operand and the expression of its slot number."""
    selection = select(context, view)
    slot: int | str = 0
    for part, size in zip(selection.parts, selection.shape, strict=True):
        slot = part.start if slot == 0 else f"({slot} * {size} + {part.start})"
    text = str(slot)
    if not text.isdecimal() and not text.isidentifier():
        text = context.emitter.assign(text, "slot")
    return selection, text


def phase_of(context: Context, storage: Storage) -> tuple[str, str]:
    """Returns the expression of the caller's phase bits of a barrier array, and the variable that a wait flips.

    A warp of its own remembers in which phases it has run ahead of its warpgroup.
    """
    if not context.has_warp_regions:
        return storage.phase, storage.phase
    ahead = f"{storage.phase}_warps[{context.warp or 0}]"
    return f"({storage.phase} ^ {ahead})", storage.phase if context.warp is None else ahead


def _barrier_wait(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    selection, slot = barrier_of(context, operands_of(equation)[0])
    _refuse_peer(context, selection, "waiting on")
    phase, flipped = phase_of(context, selection.storage)
    site = site_of(context, path)
    record(context, site, Edge.BEGIN, slot)
    emitter.park(f"{selection.base}[{slot}]", f"{phase} >> {slot} & 1")
    emitter.line(f"{flipped} ^= 1 << {slot}")
    note(context, "waited", f"{selection.base}[{slot}]")
    emitter.spend(cycles=context.device.mbarrier_try_wait_cycles)
    record(context, site, Edge.END, slot)


def _barrier_test(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    selection, slot = barrier_of(context, operands_of(equation)[0])
    _refuse_peer(context, selection, "testing")
    phase, flipped = phase_of(context, selection.storage)
    emitter.spend(cycles=context.device.mbarrier_try_wait_cycles)
    emitter.flush()
    done = emitter.assign(f"{selection.base}[{slot}].is_complete({phase} >> {slot} & 1)", "done")
    emitter.line(f"if {done}: {flipped} ^= 1 << {slot}")
    note(context, "waited", f"{selection.base}[{slot}]", condition=done)
    context.values[equation.outvars[0]] = Local(done)


def _refuse_peer(context: Context, selection: Selection, what: str) -> None:
    if selection.peer:
        raise context.unsupported(
            f"{what} a barrier of another CTA", "mbarrier.try_wait reads one's own SMEM: let that CTA arrive on yours."
        )


def _barrier_arrive(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    barrier, predicate = operands_of(equation)
    selection, slot = barrier_of(context, barrier)
    space: BarrierSpace = selection.storage.allocation.aval.memory_space
    site = site_of(context, path)
    emitter.spend(cycles=context.device.mbarrier_arrive_cycles)
    record(context, site, Edge.INSTANT, slot)
    emitter.flush()
    source = emitter.constant((context.warpgroup, site))
    condition = "" if predicate is None else context.expression(predicate)
    name = selection.storage.allocation.name
    if selection.peer:
        note_remote_arrival(context, "send", f"{selection.base}[{slot}]", name, site, condition=condition)
        call = f"wg.arrive_remote({selection.base}[{slot}], {site})"
    elif space.collective_axes:
        number, entry = selection.storage.allocation.number, selection.storage.entry
        axes = emitter.constant(space)
        barriers = f"[(peer.index, peer.buffer({number}, {entry} - 1)[{slot}]) for peer in wg.barrier_peers({axes})]"
        note_remote_arrival(context, "arrive_cluster", barriers, name, site, condition=condition)
        call = f"wg.arrive_cluster({axes}, {number}, {entry} - 1, {slot}, {site})"
    else:
        note(context, "arrive", f"{selection.base}[{slot}]", condition=condition)
        call = f"{selection.base}[{slot}].arrive({source})"
    emitter.line(f"if {condition}: {call}" if condition else call)


def _commit_smem(context: Context, equation: Any, path: Path) -> None:
    device, site = context.device, site_of(context, path)
    record(context, site, Edge.BEGIN)
    # The fence, then a barrier of the warpgroup's four warps, so that one thread may issue the copy.
    barrier_cycles = 0
    if context.warp is None:
        barrier_cycles = device.named_barrier_cycles + 4 * device.named_barrier_cycles_per_warp
    context.emitter.spend(cycles=device.fence_proxy_async_cycles + barrier_cycles)
    note(context, "commit")
    record(context, site, Edge.END)


def _set_max_registers(context: Context, equation: Any, path: Path) -> None:
    emitter, site = context.emitter, site_of(context, path)
    record(context, site, Edge.BEGIN)
    wanted = equation.params["n"]
    emitter.flush()
    emitter.line(f"if not cta.registers.change(process, wg.registers, {wanted}): yield None")
    emitter.line(f"wg.registers = {wanted}")
    context.registers_at_end = wanted if emitter.is_unconditional else None
    emitter.spend(cycles=context.device.setmaxnreg_cycles)
    record(context, site, Edge.END)


def _griddepcontrol(context: Context, equation: Any, path: Path) -> None:
    # A launch is simulated alone: the one before it is complete, and nobody waits for the next one.
    context.emitter.spend(cycles=1)


def check_rank(rank: int, size: int) -> int:
    """Returns the rank of a peer CTA, or raises the error for one outside the cluster."""
    if not 0 <= rank < size:
        raise IndexError(f"cluster_ref: CTA {rank} of a cluster of {size}. Check the index along the cluster axes.")
    return rank


NAMESPACE = {"check_rank": check_rank, "int32": np.int32}
RULES: dict[str, Rule] = {
    "barrier_wait": _barrier_wait,
    "barrier_test": _barrier_test,
    "barrier_arrive": _barrier_arrive,
    "commit_smem": _commit_smem,
    "set_max_registers": _set_max_registers,
    "griddepcontrol_wait": _griddepcontrol,
    "griddepcontrol_launch_dependents": _griddepcontrol,
}
