"""The language's own operations: memory accesses, barriers, copies, the tensor core, registers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from mgpu.capture import pack_tag
from mgpu.frontend.regions import Path
from mgpu.jax_internals import NDIndexer
from mgpu.lang.barriers import BarrierSpace
from mgpu.lang.hopper import AccumulatorSpace
from mgpu.lang.memory import GMEM, SMEM
from mgpu.lang.primitive import View, unflatten_operands
from mgpu.lang.transforms import bits_of
from mgpu.sim.compile.context import Context, Local, Storage
from mgpu.sim.compile.refs import BoxText, filled_box, is_inside, select, select_box, store_box
from mgpu.sim.compile.scalars import is_integer_scalar
from mgpu.sim.matmul import matmul_function
from mgpu.sim.memory_system import Box
from mgpu.sim.values import carrier_dtype, rounding
from mgpu.sim.warp_schedulers import Work
from mgpu.sites import Edge

NAMESPACE = {"Box": Box, "filled_box": filled_box, "store_box": store_box}


def _operands(equation: Any) -> list[Any]:
    return unflatten_operands(equation.params["tree"], equation.invars)


def site_of(context: Context, path: Path) -> int:
    """Returns the site of an equation, -1 if it has none."""
    return context.plan.operations.get(path, -1)


def record(context: Context, site: int, edge: Edge, slot: str = "") -> None:
    """Emits the recording of an event. Its cost comes before a begin and after an end, so that spans exclude their own."""
    cycles = context.options.record_cycles
    if cycles is None or site < 0:
        return
    if edge is not Edge.END:
        context.emitter.spend(cycles=cycles)
    context.emitter.flush()
    tag = pack_tag(site, edge)
    payload = f" | {slot} << 16" if slot else ""
    context.emitter.line(f"record({tag}{payload})")
    if edge is Edge.END:
        context.emitter.spend(cycles=cycles)


def _barrier(context: Context, view: View) -> tuple[str, str, Storage]:
    """Returns the expressions of a barrier and of its slot number, and its storage."""
    selection = select(context, view)
    shape = view.base.shape
    slot: int | str = 0
    for part, size in zip(selection.parts, shape, strict=True):
        slot = part.start if slot == 0 else f"({slot} * {size} + {part.start})"
    text = str(slot)
    if not text.isdecimal() and not text.isidentifier():
        text = context.emitter.assign(text, "slot")
    return f"{selection.storage.name}[{text}]", text, selection.storage


def _barrier_wait(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    barrier, slot, storage = _barrier(context, _operands(equation)[0])
    site = site_of(context, path)
    record(context, site, Edge.BEGIN, slot)
    emitter.flush()
    emitter.line(f"if not {barrier}.wait(process, {storage.phase} >> {slot} & 1): yield None")
    emitter.line(f"{storage.phase} ^= 1 << {slot}")
    emitter.spend(cycles=context.device.mbarrier_try_wait_cycles)
    record(context, site, Edge.END, slot)


def _barrier_arrive(context: Context, equation: Any, path: Path) -> None:
    barrier, slot, _ = _barrier(context, _operands(equation)[0])
    site = site_of(context, path)
    context.emitter.spend(cycles=context.device.mbarrier_arrive_cycles)
    record(context, site, Edge.INSTANT, slot)
    context.emitter.flush()
    context.emitter.line(f"{barrier}.arrive({context.emitter.constant((context.warpgroup, site))})")


def _copy_gmem_to_smem(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    src, dst, barrier_view = _operands(equation)
    box = select_box(context, src)
    target = select(context, dst).text
    barrier, slot, _ = _barrier(context, barrier_view)
    site = site_of(context, path)
    record(context, site, Edge.BEGIN, slot)
    emitter.spend(cycles=context.device.tma_issue_cycles)
    emitter.flush()
    source = _box_view(context, box, src)
    if not context.options.numerics:
        target = source = "NO_VALUES"
    emitter.line(f"wg.load({target}, {source}, {box.box}, {barrier}, {slot}, {box.num_bytes}, {site})")
    record(context, site, Edge.END, slot)


def _box_view(context: Context, box: BoxText, view: View) -> str:
    inside = is_inside(box, tuple(view.base.shape))
    storage = context.values[view.ref]
    assert isinstance(storage, Storage)
    filled = f"filled_box({storage.name}, ({', '.join(map(str, box.starts))},), {box.sides}, {tuple(view.shape)})"
    if inside == "True":
        return box.view
    return filled if inside == "False" else f"({box.view} if {inside} else {filled})"


def _copy_smem_to_gmem(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    src, dst, predicate = _operands(equation)
    box = select_box(context, dst)
    source = select(context, src).text
    storage = context.values[dst.ref]
    assert isinstance(storage, Storage)
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    emitter.spend(cycles=context.device.tma_issue_cycles)
    emitter.flush()
    starts = f"({', '.join(map(str, box.starts))},)"
    # Arguments are bound now; the values are read when the engine reads them.
    write = "no_write"
    if context.options.numerics:
        write = f"partial(store_box, {storage.name}, {starts}, {box.sides}, {source})"
    call = f"wg.store({write}, {box.box}, {box.num_bytes}, {equation.params['commit_group']}, {site})"
    emitter.line(call if predicate is None else f"if {context.expression(predicate)}: {call}")
    record(context, site, Edge.END)


def _commit_group(context: Context, equation: Any, path: Path) -> None:
    context.emitter.flush()
    context.emitter.line("wg.commit_stores()")


def _wait_smem_to_gmem(context: Context, equation: Any, path: Path) -> None:
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    context.emitter.flush()
    n, read_only = equation.params["n"], equation.params["wait_read_only"]
    # One cycle more than the data needs: who waited goes on after the write, not beside it.
    context.emitter.line(f"yield wg.store_wait({n}, {read_only}) + 1")
    record(context, site, Edge.END)


def _commit_smem(context: Context, equation: Any, path: Path) -> None:
    device, site = context.device, site_of(context, path)
    record(context, site, Edge.BEGIN)
    # The fence, then a barrier of the warpgroup's four warps, so that one thread may issue the copy.
    barrier_cycles = device.named_barrier_cycles + 4 * device.named_barrier_cycles_per_warp
    context.emitter.spend(cycles=device.fence_proxy_async_cycles + barrier_cycles)
    record(context, site, Edge.END)


def _wgmma(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    acc, a, b = _operands(equation)
    in_registers = not isinstance(a, View)
    acc_text = select(context, acc).text
    a_text = context.expression(a.val if hasattr(a, "val") else a) if in_registers else select(context, a).text
    b_text = select(context, b).text
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    m, n = acc.shape
    k = b.shape[0]
    emitter.spend(cycles=context.device.wgmma_issue_cycles)
    emitter.flush()
    multiply = "None"
    if context.options.numerics:
        multiply = emitter.constant(matmul_function(b.dtype, acc.dtype))
    shape = emitter.constant((m, n, k))
    emitter.line(
        f"wg.mma({shape}, {bits_of(b.dtype)}, {in_registers}, ({multiply}, {acc_text}, {a_text}, {b_text}), {site})"
    )
    record(context, site, Edge.END)


def _wait_for_mma(context: Context, pending: int, site: int) -> None:
    record(context, site, Edge.BEGIN)
    context.emitter.flush()
    context.emitter.line(f"owed = wg.mma_wait({pending})")
    context.emitter.line("if owed: yield owed; owed = 0")
    context.emitter.line(f"wg.mma_retire({pending})")
    record(context, site, Edge.END)


def _wgmma_wait(context: Context, equation: Any, path: Path) -> None:
    _wait_for_mma(context, equation.params["n"], site_of(context, path))


def _accumulator_load(context: Context, equation: Any, path: Path) -> None:
    (acc,) = _operands(equation)
    wait_n = equation.params["wait_n"]
    if wait_n is not None:
        _wait_for_mma(context, wait_n, site_of(context, path))
    (out,) = equation.outvars
    context.values[out] = Local(context.emitter.assign(f"{select(context, acc).text}.copy()"))


def _set_max_registers(context: Context, equation: Any, path: Path) -> None:
    emitter, site = context.emitter, site_of(context, path)
    record(context, site, Edge.BEGIN)
    wanted = equation.params["n"]
    emitter.flush()
    emitter.line(f"if not cta.registers.change(process, wg.registers, {wanted}): yield None")
    emitter.line(f"wg.registers = {wanted}")
    emitter.spend(cycles=context.device.setmaxnreg_cycles)
    record(context, site, Edge.END)


def _access_view(equation: Any, num_values: int) -> View:
    """The ref operand of JAX's own get and swap, whose transforms come after the values."""
    ref = equation.invars[0]
    leaves = equation.invars[1 + num_values :]
    return View(ref, tuple(jax.tree.unflatten(equation.params["tree"], leaves)))


def _charge_access(context: Context, view: View, *, is_store: bool) -> None:
    """Spends what moving a selection between memory and registers costs."""
    emitter = context.emitter
    if view.space is SMEM:
        num_bytes = int(np.prod(view.shape, dtype=np.int64)) * bits_of(view.dtype) // 8
        emitter.spend(work=Work(smem_bytes=max(num_bytes, 1)))
        if not is_store:
            emitter.spend(cycles=context.device.smem_latency_cycles)
        emitter.flush()
    elif view.space is GMEM:
        emitter.flush()
        box = select_box(context, _without_shape_changes(view))
        method = "write" if is_store else "read"
        done = f"memory.{method}(engine.now, sm_index, {box.box})"
        # A store is posted: the warpgroup goes on once it is issued.
        emitter.line(f"{done}" if is_store else f"yield {done} - engine.now")
    else:
        emitter.flush()


def _without_shape_changes(view: View) -> View:
    indexers = []
    for transform in view.transforms:
        if not isinstance(transform, NDIndexer):
            break
        indexers.append(transform)
    return View(view.ref, tuple(indexers))


def _get(context: Context, equation: Any, path: Path) -> None:
    view = _access_view(equation, 0)
    _refuse_special(context, view, "reading")
    text = select(context, view).text
    _charge_access(context, view, is_store=False)
    (out,) = equation.outvars
    scalar = is_integer_scalar(out.aval)
    context.values[out] = Local(context.emitter.assign(f"{text}.item()" if scalar else f"{text}.copy()"))


def _swap(context: Context, equation: Any, path: Path) -> None:
    view = _access_view(equation, 1)
    _refuse_special(context, view, "writing")
    value = context.expression(equation.invars[1])
    selection = select(context, view)
    _charge_access(context, view, is_store=True)
    (out,) = equation.outvars
    if type(out).__name__ != "DropVar":
        context.values[out] = Local(context.emitter.assign(f"{selection.text}.copy()"))
    _assign(context, selection.text, value)


def _addupdate(context: Context, equation: Any, path: Path) -> None:
    view = _access_view(equation, 1)
    _refuse_special(context, view, "writing")
    value = context.expression(equation.invars[1])
    text = select(context, view).text
    _charge_access(context, view, is_store=False)
    _charge_access(context, view, is_store=True)
    round_values = rounding(view.dtype)
    total = f"{text} + {value}"
    _assign(context, text, f"{context.emitter.constant(round_values)}({total})" if round_values else total)


def _assign(context: Context, target: str, value: str) -> None:
    whole = "" if target.endswith("]") else "[...]"
    if target.endswith(")"):  # a transposed or reshaped view
        name = context.emitter.assign(target)
        target, whole = name, "[...]"
    context.emitter.line(f"{target}{whole} = {value}")


def _refuse_special(context: Context, view: View, what: str) -> None:
    if isinstance(view.base.memory_space, BarrierSpace):
        raise context.unsupported(f"{what} a barrier", "Use barrier_arrive and barrier_wait.")
    if isinstance(view.base.memory_space, AccumulatorSpace):
        raise context.unsupported(f"{what} a slice of an accumulator ref", "Read it whole, acc[...], and slice the array.")


RULES: dict[str, Callable[[Context, Any, Path], None]] = {
    "get": _get,
    "swap": _swap,
    "addupdate": _addupdate,
    "barrier_wait": _barrier_wait,
    "barrier_arrive": _barrier_arrive,
    "copy_gmem_to_smem": _copy_gmem_to_smem,
    "copy_smem_to_gmem": _copy_smem_to_gmem,
    "commit_smem_to_gmem_group": _commit_group,
    "wait_smem_to_gmem": _wait_smem_to_gmem,
    "commit_smem": _commit_smem,
    "wgmma": _wgmma,
    "wgmma_wait": _wgmma_wait,
    "wgmma_accumulator_load": _accumulator_load,
    "set_max_registers": _set_max_registers,
}


def zero_accumulator(aval: Any) -> str:
    """Returns the expression of a fresh accumulator, which starts at zero."""
    return f"zeros({tuple(aval.shape)}, {carrier_dtype(aval.dtype).name!r})"
