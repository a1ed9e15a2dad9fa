"""Control flow and scopes of JAX's kernels: the same primitives around translated jaxprs, calls in place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import Unsupported
from mgpu.frontend.build import name_arguments
from mgpu.frontend.pallas_rules.allocations import allocation_type
from mgpu.frontend.pallas_rules.refs import Cell, ImportedRef, as_operand
from mgpu.frontend.pallas_rules.translator import Rule, Translator, is_jaxpr, open_jaxpr
from mgpu.jax_internals import current_source_line, scan_split


def _bind(equation: Any, operands: list[Any], **translated: Any) -> list[Any]:
    bare = [as_operand(operand) for operand in operands]
    return equation.primitive.bind(*bare, **{**equation.params, **translated})


def _scan(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    return _bind(equation, operands, jaxpr=translator.translate(equation.params["jaxpr"], operands))


def _while(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    params = equation.params
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, carry = operands[:num_cond], operands[num_cond + num_body :]
    return _bind(
        equation,
        operands,
        cond_jaxpr=translator.translate(params["cond_jaxpr"], [*cond_consts, *carry]),
        body_jaxpr=translator.translate(params["body_jaxpr"], operands[num_cond:]),
    )


def _cond(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    branches = tuple(translator.translate(branch, operands[1:]) for branch in equation.params["branches"])
    return _bind(equation, operands, branches=branches)


def _call(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    jaxpr, consts = open_jaxpr(next(value for _, value in sorted(equation.params.items()) if is_jaxpr(value)))
    return translator.evaluate(jaxpr, consts, operands)


def _run_scoped(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    params = equation.params
    jaxpr, _ = open_jaxpr(params["jaxpr"])  # its constants are the operands, in both versions of JAX
    layouts = params["ref_transforms"]
    types = [allocation_type(var.aval, layout) for var, layout in zip(jaxpr.invars, layouts, strict=True)]

    def body(*refs: Any) -> list[Any]:
        imported = [ImportedRef(ref, tuple(layout)) for ref, layout in zip(refs, layouts, strict=True)]
        return translator.evaluate(jaxpr, operands, imported)

    named = name_arguments(body, argument_names(jaxpr))
    collective_axes = tuple(map(translator.axis_name, params["collective_axes"]))
    return pl.run_scoped(named, *types, collective_axes=collective_axes)


def _axis_index(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del operands
    return [lax.axis_index(translator.axis_name(equation.params["axis_name"]))]


def argument_names(jaxpr: Any) -> list[str]:
    """Returns the kernel's own names for the inputs of a jaxpr: `buffers_1` for `allocs['buffers'][1]`."""
    info = getattr(jaxpr, "debug_info", None)
    names = list(info.arg_names or ()) if info is not None else []
    if len(names) != len(jaxpr.invars):
        names = [""] * len(jaxpr.invars)
    return [_short_name(name) or f"ref_{index}" for index, name in enumerate(names)]


def _short_name(name: str | None) -> str:
    """Returns the last name in a path such as `allocs['buffers'][1]`, and the indices after it."""
    parts = re.findall(r"[A-Za-z_]\w*|\d+", name or "")
    last = max((index for index, part in enumerate(parts) if not part.isdigit()), default=0)
    return "_".join(parts[last:])


def _run_state(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    jaxpr, consts = open_jaxpr(equation.params["jaxpr"])
    accumulators = [
        index for index, var in enumerate(jaxpr.invars) if type(var.aval).__name__ == "WGMMAAbstractAccumulatorRef"
    ]
    if len(accumulators) > 1:
        raise Unsupported(
            f"{current_source_line()} run_state: {len(accumulators)} accumulators start from values; one can. "
            "Nest one run_state in the other."
        )
    inside = [operand if isinstance(operand, (ImportedRef, Cell)) else Cell(operand) for operand in operands]

    def body(*accumulator: Any) -> None:
        for index, ref in zip(accumulators, accumulator, strict=True):
            inside[index] = ImportedRef(ref)
        translator.evaluate(jaxpr, consts, inside)

    if not accumulators:
        body()
        return [as_operand(cell) for cell in inside]
    (index,) = accumulators
    results = [as_operand(cell) for cell in operands]
    results[index] = pl.run_state(body)(mgpu.ACC.init(operands[index]))
    return results


def _scan_without_refs_in_carry(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    _, carry, scanned = scan_split(equation.params, operands)
    if any(isinstance(operand, ImportedRef) for operand in (*carry, *scanned)):
        raise Unsupported(f"{current_source_line()} scan: a ref is carried through the loop. Close over it instead.")
    return _scan(translator, equation, operands)


RULES: Mapping[str, Rule] = {
    "scan": _scan_without_refs_in_carry,
    "while": _while,
    "cond": _cond,
    "run_scoped": _run_scoped,
    "run_state": _run_state,
    "axis_index": _axis_index,
    **dict.fromkeys(
        (
            "jit",
            "pjit",
            "closed_call",
            "core_call",
            "custom_jvp_call",
            "custom_vjp_call",
            "custom_vmap_call",
            "checkpoint",
            "remat",
        ),
        _call,
    ),
}
