"""wgmma: issuing, waiting, and reading the accumulator."""

from __future__ import annotations

from typing import Any

from mgpu.frontend.regions import Path
from mgpu.lang.primitive import View
from mgpu.lang.transforms import bits_of
from mgpu.sim.compile.context import Context, Local, Rule
from mgpu.sim.compile.race_hooks import note, note_mma
from mgpu.sim.compile.recording import operands_of, record, site_of
from mgpu.sim.compile.refs import select
from mgpu.sim.matmul import matmul_function
from mgpu.sim.values import carrier_dtype
from mgpu.sites import Edge


def _wgmma(context: Context, equation: Any, path: Path) -> None:
    emitter = context.emitter
    acc, a, b = operands_of(equation)
    in_registers = not isinstance(a, View)
    acc_text = select(context, acc).text
    exact = []  # operands whose buffers hold true bytes
    in_smem = []
    if in_registers:
        a_text = context.expression(a)
    else:
        selection = select(context, a, has_values=context.options.numerics)
        a_text = selection.text
        in_smem.append(selection)
        exact.append(context.is_byte_exact(selection.storage.allocation))
    selection = select(context, b, has_values=context.options.numerics)
    exact.append(context.is_byte_exact(selection.storage.allocation))
    site = site_of(context, path)
    record(context, site, Edge.BEGIN)
    m, n = acc.shape
    k = b.shape[0]
    emitter.spend(cycles=context.device.wgmma_issue_cycles)
    emitter.flush()
    work = "None"
    if context.options.numerics:
        multiply = emitter.constant(matmul_function(b.dtype, acc.dtype, from_bytes=any(exact)))
        work = f"({multiply}, {acc_text}, {a_text}, {selection.text})"
    shape = emitter.constant((m, n, k))
    note_mma(context, [*in_smem, selection])
    emitter.line(f"wg.mma({shape}, {bits_of(b.dtype)}, {in_registers}, {work}, {site})")
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
    context.values[out] = Local(context.emitter.assign(f"{select(context, acc).text}.copy()"), is_fragment=True)


RULES: dict[str, Rule] = {
    "wgmma": _wgmma,
    "wgmma_wait": _wgmma_wait,
    "wgmma_accumulator_load": _accumulator_load,
}


def zero_accumulator(aval: Any) -> str:
    """Returns the expression of a fresh accumulator, which starts at zero."""
    return f"zeros({tuple(aval.shape)}, {carrier_dtype(aval.dtype).name!r})"
