"""Accesses by the warpgroup itself: reading and writing SMEM, GMEM and registers through refs, and atomics."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax

from mgpu.frontend.regions import Path
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.hopper import AccumulatorSpace
from mgpu.lang.layouts import is_fragment_layout
from mgpu.lang.memory import GMEM, SMEM
from mgpu.lang.primitive import View
from mgpu.lang.transforms import bits_of
from mgpu.sim.compile.boxes import box_of
from mgpu.sim.compile.context import Context, Local, Rule
from mgpu.sim.compile.race_hooks import note_access, note_remote_store
from mgpu.sim.compile.recording import operands_of, record, site_of
from mgpu.sim.compile.refs import Selection, read_text, select, write
from mgpu.sim.compile.scalars import assign_value, is_integer_scalar
from mgpu.sim.compile.synchronisation import barrier_of
from mgpu.sim.compile.tensor_core import read_accumulators, wait_for_mma
from mgpu.sim.reductions import combine_function
from mgpu.sim.values import rounding
from mgpu.sim.warp_schedulers import Work
from mgpu.sites import Edge

LINE_BYTES, SECTOR_BYTES = 128, 32  # CUDA C++ Best Practices Guide, coalesced access to global memory
FRAGMENT_ROW = 8  # elements of a row that one store instruction of a warp writes from an accumulator fragment


def _access_view(equation: Any, num_values: int) -> View:
    """The ref operand of JAX's own get and swap, whose transforms come after the values."""
    ref = equation.invars[0]
    leaves = equation.invars[1 + num_values :]
    return View(ref, tuple(jax.tree.unflatten(equation.params["tree"], leaves)))


def size_bytes(view: View) -> int:
    """Returns the bytes that a ref operand selects, at least 1."""
    return max(1, math.prod(view.shape) * bits_of(view.dtype) // 8)


def _charge(context: Context, view: View, selection: Selection, kind: str, value: Any = None) -> None:
    """Spends what moving a selection between memory and registers costs.

    Args:
      context: what is being compiled.
      view, selection: what is accessed.
      kind: "read", "write", or "update" for atomics.
      value: what is written, if its layout matters.
    """
    emitter, is_store = context.emitter, kind != "read"
    in_gmem = view.space is GMEM and not selection.storage.allocation.path  # not a value that `pl.run_state` holds
    if view.space is SMEM and selection.peer:
        emitter.flush()
        if is_store:
            emitter.line(f"{_owner(selection)}.multiply_ended()")
        finished = f"wg.remote_access({size_bytes(view)})"
        # A remote store is posted: the warpgroup goes on once it is issued.
        emitter.line(finished if is_store else f"yield {finished} - engine.now")
    elif view.space is SMEM:
        emitter.spend(work=Work(smem_bytes=size_bytes(view)))
        if not is_store:
            emitter.spend(cycles=context.device.smem_latency_cycles)
        emitter.flush()
        if is_store:
            emitter.line("cta.multiply_ended()")
    elif in_gmem:
        emitter.flush()
        box = box_of(context, selection).box
        if is_store:
            _store_to_gmem(context, view, box, value)
        else:
            emitter.line(f"yield memory.read(engine.now, sm_index, {box}) - engine.now")
    else:
        emitter.flush()
    if view.space is SMEM or in_gmem:
        note_access(context, selection, kind)


def _owner(selection: Selection) -> str:
    """Returns the expression of the CTA whose SMEM is selected."""
    return f"cta.cluster[{selection.peer}]" if selection.peer else "cta"


def _store_to_gmem(context: Context, view: View, box: str, value: Any) -> None:
    """Spends a store of registers to GMEM: the load-store unit takes a cycle for each line that an instruction touches.

    With a wgmma fragment, each lane writes two neighbouring elements, and a warp eight rows of eight elements: eight
    lines, of which it fills a sector or less (PTX ISA, wgmma accumulator fragment). Other values are spread over the
    lanes so that a warp writes whole lines. The warpgroup goes on when L2 has taken the data.
    """
    elements, item_bits = math.prod(view.shape), bits_of(view.dtype)
    lines, moved_bytes = max(1, elements * item_bits // (8 * LINE_BYTES)), max(1, elements * item_bits // 8)
    if isinstance(value, Local) and value.is_fragment:
        lines = -(-elements // FRAGMENT_ROW)
        if FRAGMENT_ROW * item_bits < 8 * SECTOR_BYTES:
            moved_bytes = lines * context.device.l2_partial_sector_bytes
    work = context.emitter.constant(Work(smem_bytes=lines * LINE_BYTES))
    done = f"max(run_work(engine.now, {work}), memory.write(engine.now, sm_index, {box}, {moved_bytes}))"
    context.emitter.line(f"yield {done} - engine.now")


def _select(context: Context, view: View, what: str) -> Selection:
    space = view.base.memory_space
    if isinstance(space, BarrierSpace):
        raise context.unsupported(f"{what} a barrier", "Use barrier_arrive and barrier_wait.")
    if isinstance(space, AccumulatorSpace):
        wait_for_mma(context, 0, -1)
        read_accumulators(context)
    return select(context, view)


def _read(context: Context, view: View, selection: Selection, out: Any) -> None:
    text = read_text(context, selection)
    copy = text if is_integer_scalar(out.aval) else f"{text}.copy()"
    context.values[out] = Local(assign_value(context, out, copy))


def _get(context: Context, equation: Any, path: Path) -> None:
    view = _access_view(equation, 0)
    selection = _select(context, view, "reading")
    _charge(context, view, selection, "read")
    _read(context, view, selection, equation.outvars[0])


def _load(context: Context, equation: Any, path: Path) -> None:
    (view,) = operands_of(equation)
    selection = _select(context, view, "reading")
    _charge(context, view, selection, "read")
    (out,) = equation.outvars
    _read(context, view, selection, out)
    loaded = context.values[out]
    if isinstance(loaded, Local) and is_fragment_layout(equation.params["layout"]):
        context.values[out] = dataclasses.replace(loaded, is_fragment=True)


def _swap(context: Context, equation: Any, path: Path) -> None:
    view = _access_view(equation, 1)
    selection = _select(context, view, "writing")
    value = context.expression(equation.invars[1])
    _charge(context, view, selection, "write", context.read(equation.invars[1]))
    (out,) = equation.outvars
    if out in context.used:
        _read(context, view, selection, out)
    write(context, selection, value)


def _store(context: Context, equation: Any, path: Path) -> None:
    view, value = operands_of(equation)
    selection = _select(context, view, "writing")
    text = context.expression(value)
    _charge(context, view, selection, "write", None if hasattr(value, "val") else context.read(value))
    write(context, selection, text)


def _addupdate(context: Context, equation: Any, path: Path) -> None:
    view = _access_view(equation, 1)
    selection = _select(context, view, "writing")
    value = context.expression(equation.invars[1])
    _charge(context, view, selection, "read")
    _charge(context, view, selection, "write")
    round_values = rounding(view.dtype)
    total = f"{read_text(context, selection)} + {value}"
    write(context, selection, f"{context.emitter.constant(round_values)}({total})" if round_values else total)


def _atomic(context: Context, equation: Any, path: Path) -> None:
    view, value = operands_of(equation)
    selection = _select(context, view, "writing")
    text = context.expression(value)
    # Nothing is returned, so it costs what a store does (PTX `red`).
    _charge(context, view, selection, "update")
    combine = context.emitter.constant(combine_function(equation.params["operation"], view.dtype))
    write(context, selection, f"{combine}({read_text(context, selection)}, {text})")


def _async_store_smem(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    value, ref, barrier_view = operands_of(equation)
    selection = _select(context, ref, "writing")
    barrier, slot = barrier_of(context, barrier_view)
    combine = "None"
    if equation.params["atomic"] is not None:
        combine = emitter.constant(combine_function(equation.params["atomic"], ref.dtype))
    site = site_of(context, path)
    emitter.spend(work=Work(smem_bytes=size_bytes(ref)))
    record(context, site, Edge.INSTANT, slot)
    emitter.flush()
    target = selection.text if context.options.numerics else "NO_VALUES"
    text = context.expression(value) if context.options.numerics else "NO_VALUES"
    note_remote_store(context, selection, f"{barrier.base}[{slot}]", site, is_atomic=combine != "None")
    owner = _owner(selection)
    emitter.line(
        f"wg.store_remote({owner}, {target}, {text}, {combine}, {barrier.base}[{slot}], {size_bytes(ref)}, {site})"
    )


RULES: dict[str, Rule] = {
    "get": _get,
    "swap": _swap,
    "addupdate": _addupdate,
    "load": _load,
    "store": _store,
    "atomic": _atomic,
    "async_store_smem": _async_store_smem,
}
