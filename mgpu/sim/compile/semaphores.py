"""Semaphores: signal, wait and read, by the language's own names and by those of `jax.experimental.pallas`."""

from __future__ import annotations

import math
from typing import Any

import jax

from mgpu.frontend.regions import Path
from mgpu.jax_internals import NDIndexer
from mgpu.lang.primitive import View
from mgpu.lang.semaphores import SemaphoreSpace
from mgpu.sim.compile.context import Context, Known, Local, Rule, Storage
from mgpu.sim.compile.race_hooks import note_semaphore
from mgpu.sim.compile.recording import operands_of, record, site_of
from mgpu.sim.compile.refs import fail_index
from mgpu.sites import Edge


def _semaphore(context: Context, view: View) -> str:
    """Returns the expression of one semaphore."""
    storage = context.values[view.ref]
    assert isinstance(storage, Storage)
    sizes = tuple(view.base.shape)
    indices: list[Any] = []
    for transform in view.transforms:
        if not isinstance(transform, NDIndexer) or indices:
            raise context.unsupported(
                f"this view of semaphore {storage.allocation.name}", "Select one with .at[index]."
            )
        indices = list(transform.indices)
    if not indices and math.prod(sizes) == 1:
        return f"{storage.name}[0]"
    slot = "0"
    for index, size in zip(indices, sizes, strict=True):
        text = context.expression(index) if not isinstance(index, int) else str(int(index))
        fail = context.emitter.constant(fail_index)
        context.emitter.line(f"if not 0 <= {text} < {size}: {fail}({text}, {size}, {storage.allocation.name!r})")
        slot = f"({slot} * {size} + {text})"
    return f"{storage.name}[{slot}]"


def _signal_one(context: Context, view: View, increment: str) -> None:
    semaphore = _semaphore(context, view)
    device = context.device
    # A release at GPU scope, then the atomic.
    context.emitter.spend(cycles=device.fence_gpu_cycles)
    context.emitter.flush()
    note_semaphore(context, "signal", semaphore)
    context.emitter.line(f"{semaphore}.signal({increment})")


def _wait_one(context: Context, path: Path, view: View, value: str, *, decrement: bool) -> None:
    site = site_of(context, path)
    semaphore = _semaphore(context, view)
    record(context, site, Edge.BEGIN)
    context.emitter.flush()
    context.emitter.line(f"if not {semaphore}.wait(process, {value}, {decrement}): yield None")
    # What this wait has taken is in `taken`; so is what others took meanwhile, which only makes it tell of more.
    note_semaphore(context, "acquire", semaphore, f"{semaphore}.taken" + ("" if decrement else f" + {value}"))
    # An acquiring read of the counter, which lies in L2.
    context.emitter.spend(cycles=context.device.l2_latency_cycles)
    record(context, site, Edge.END)


def _signal(context: Context, equation: Any, path: Path) -> None:
    view, increment = operands_of(equation)
    _signal_one(context, view, context.expression(increment))


def _wait(context: Context, equation: Any, path: Path) -> None:
    view, value = operands_of(equation)
    _wait_one(context, path, view, context.expression(value), decrement=equation.params["decrement"])


def _pallas_operands(context: Context, equation: Any) -> list[Any]:
    """Operands of JAX's own semaphore primitives: the ref, its transforms, then values."""
    ref, transforms, *rest = jax.tree.unflatten(equation.params["args_tree"], equation.invars)
    return [View(ref, tuple(transforms)), *rest]


def _pallas_signal(context: Context, equation: Any, path: Path) -> None:
    view, increment, device_id, core_index = _pallas_operands(context, equation)[:4]
    if device_id is not None or core_index is not None:
        raise context.unsupported(
            "semaphore_signal on another device or core", "One GPU is simulated: leave device_id and core_index out."
        )
    _signal_one(context, view, context.expression(increment))


def _pallas_wait(context: Context, equation: Any, path: Path) -> None:
    view, value, *rest = _pallas_operands(context, equation)
    decrement = context.read(rest[0]) if rest else Known(equation.params.get("decrement", True))
    if not isinstance(decrement, Known):
        raise context.unsupported("semaphore_wait with a traced decrement", "Pass decrement=True or False.")
    _wait_one(context, path, view, context.expression(value), decrement=bool(decrement.value))


def _pallas_read(context: Context, equation: Any, path: Path) -> None:
    (view,) = _pallas_operands(context, equation)
    context.emitter.flush()
    context.emitter.line(f"yield {context.device.l2_latency_cycles}")
    semaphore = _semaphore(context, view)
    note_semaphore(context, "acquire", semaphore)
    context.values[equation.outvars[0]] = Local(context.emitter.assign(f"{semaphore}.count"))


def _get_global(context: Context, equation: Any, path: Path) -> None:
    allocation = context.allocations[path, 0]
    if not isinstance(allocation.aval.memory_space, SemaphoreSpace):
        raise context.unsupported(
            f"get_global of {allocation.aval}", "It gives semaphores: pl.get_global(mgpu.SemaphoreType.REGULAR)."
        )
    name = context.emitter.assign(f"cta.global_semaphores({context.emitter.constant(allocation)})", "semaphores")
    context.values[equation.outvars[0]] = Storage(allocation, name)


RULES: dict[str, Rule] = {
    "get_global": _get_global,
    "mgpu_semaphore_signal": _signal,
    "mgpu_semaphore_wait": _wait,
    "semaphore_signal": _pallas_signal,
    "semaphore_wait": _pallas_wait,
    "semaphore_read": _pallas_read,
}
