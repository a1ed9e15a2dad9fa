"""wgmma: issuing, waiting, and reading the accumulator."""

from __future__ import annotations

from typing import Any

from mgpu.frontend.regions import Allocation, Path
from mgpu.lang.primitive import View
from mgpu.lang.transforms import bits_of
from mgpu.sim.compile.context import Context, Local, Rule
from mgpu.sim.compile.race_hooks import note, note_accumulator_read, note_mma
from mgpu.sim.compile.recording import operands_of, record, site_of
from mgpu.sim.compile.refs import select
from mgpu.sim.matmul import matmul_function
from mgpu.sim.tensor_core import mma_ticks
from mgpu.sim.values import carrier_dtype
from mgpu.sites import Edge


def _wgmma(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    acc, a, b = operands_of(equation)
    in_registers = not isinstance(a, View)
    accumulator = select(context, acc)
    acc_text = accumulator.text
    in_smem = [
        select(context, operand, has_values=context.options.numerics) for operand in ([b] if in_registers else [a, b])
    ]
    a_text = context.expression(a) if in_registers else in_smem[0].text
    from_bytes = any(context.is_byte_exact(selection.storage.allocation) for selection in in_smem)
    # What a slot holds does not change when the slot is filled again.
    may_change = any(selection.storage.slots is None for selection in in_smem)
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    m, n = acc.shape
    k = b.shape[0]
    emitter.spend(cycles=context.device.wgmma_issue_cycles)
    emitter.flush()
    work = "None"
    if context.options.numerics:
        multiply = emitter.constant(matmul_function(b.dtype, acc.dtype, from_bytes=from_bytes))
        places = f"{None if in_registers else in_smem[0].array_place}, {in_smem[-1].array_place}"
        work = f"({may_change}, {multiply}, {acc_text}, {a_text}, {in_smem[-1].text}, {places})"
    where = f"{emitter.source} kernel {context.program.name}: "
    ticks = mma_ticks(context.device, m, n, k, bits_of(b.dtype), in_registers, where)
    note_mma(context, accumulator.storage.allocation, in_smem)
    emitter.line(f"wg.mma({', '.join(map(str, ticks))}, {2 * m * n * k}, {work}, {site})")
    record(context, site, Edge.END)


def wait_for_mma(context: Context, pending: int, site: int) -> None:
    """Emits the wait until at most `pending` wgmmas are in flight, recorded as `site` unless that is -1."""
    record(context, site, Edge.BEGIN)
    context.emitter.wait(f"wg.mma_wait({pending}, owed)")
    note(context, "mma_waited", pending)
    record(context, site, Edge.END)


def read_accumulators(context: Context) -> None:
    """Emits what has to come before an accumulator is read: its wgmmas multiply when their end is waited for."""
    context.emitter.flush()
    context.emitter.line("wg.mma_retire()")


def _wgmma_wait(context: Context, equation: Any, path: Path) -> None:
    wait_for_mma(context, equation.params["n"], site_of(context, path))


def _accumulator_load(context: Context, equation: Any, path: Path) -> None:
    (acc,) = operands_of(equation)
    wait_n = equation.params["wait_n"]
    if wait_n is not None:
        wait_for_mma(context, wait_n, site_of(context, path))
    (out,) = equation.outvars
    read_accumulators(context)
    accumulator = select(context, acc)
    note_accumulator_read(context, accumulator.storage.allocation)
    text = f"{accumulator.text}.copy()" if context.has_value(out) else "NO_VALUES"
    context.values[out] = Local(context.emitter.assign(text), is_fragment=True)


RULES: dict[str, Rule] = {
    "wgmma": _wgmma,
    "wgmma_wait": _wgmma_wait,
    "wgmma_accumulator_load": _accumulator_load,
}


def zero_accumulator(context: Context, allocation: Allocation) -> str:
    """Returns the expression of a fresh accumulator, which starts at zero."""
    if not context.holds_values(allocation):
        return "NO_VALUES"
    return f"zeros({tuple(allocation.aval.shape)}, {carrier_dtype(allocation.aval.dtype).name!r})"
