"""Control flow and scopes of JAX's kernels: the same primitives around translated jaxprs, calls in place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from jax import lax
from jax.experimental import pallas as pl

import mgpu
from mgpu.errors import Unsupported
from mgpu.frontend.pallas_rules.allocations import ACCUMULATOR, allocation_type, imported_ref
from mgpu.frontend.pallas_rules.refs import Cell, ImportedRef, as_operand, spread
from mgpu.frontend.pallas_rules.translator import Rule, Translator, is_jaxpr, open_jaxpr
from mgpu.jax_internals import current_source_line, scan_split
from mgpu.lang.scoped import name_parameters


def _scan(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    params = equation.params
    consts, carry, scanned = scan_split(params, operands)
    if any(isinstance(operand, ImportedRef) for operand in (*carry, *scanned)):
        raise Unsupported(f"{current_source_line()} scan: a ref is carried through the loop. Close over it instead.")
    jaxpr, inner_consts = open_jaxpr(params["jaxpr"])

    def body(values: list[Any], slices: list[Any]) -> tuple[list[Any], list[Any]]:
        results = translator.evaluate(jaxpr, inner_consts, [*consts, *values, *slices])
        return results[: len(values)], results[len(values) :]

    last, stacked = lax.scan(
        body, carry, scanned, length=params["length"], reverse=params["reverse"], unroll=params["unroll"]
    )
    return [*last, *stacked]


def _while(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    params = equation.params
    num_cond, num_body = params["cond_nconsts"], params["body_nconsts"]
    cond_consts, body_consts = operands[:num_cond], operands[num_cond : num_cond + num_body]
    cond, cond_inner = open_jaxpr(params["cond_jaxpr"])
    body, body_inner = open_jaxpr(params["body_jaxpr"])
    return lax.while_loop(
        lambda carry: translator.evaluate(cond, cond_inner, [*cond_consts, *carry])[0],
        lambda carry: translator.evaluate(body, body_inner, [*body_consts, *carry]),
        operands[num_cond + num_body :],
    )


def _cond(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    branches = tuple(translator.translate(branch, operands[1:]) for branch in equation.params["branches"])
    flat, _ = spread(operands)
    return equation.primitive.bind(*flat, **{**equation.params, "branches": branches})


def _call(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    jaxpr, consts = open_jaxpr(next(value for _, value in sorted(equation.params.items()) if is_jaxpr(value)))
    return translator.evaluate(jaxpr, consts, operands)


def _run_scoped(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    params = equation.params
    jaxpr, _ = open_jaxpr(params["jaxpr"])  # its constants are the operands, in both versions of JAX
    layouts = params["ref_transforms"]
    types = [allocation_type(var.aval, layout) for var, layout in zip(jaxpr.invars, layouts, strict=True)]

    def body(*refs: Any) -> list[Any]:
        avals = [var.aval for var in jaxpr.invars]
        imported = [imported_ref(*each) for each in zip(refs, avals, layouts, strict=True)]
        return translator.evaluate(jaxpr, operands, imported)

    named = name_parameters(body, argument_names(jaxpr))
    collective_axes = tuple(map(translator.axis_name, params["collective_axes"]))
    return pl.run_scoped(named, *types, collective_axes=collective_axes)


def _warp_region(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    params = equation.params  # of core_map in JAX 0.10.2, where the operands are the constants; of mpmd_map in 0.12
    mesh = params["mesh"] if "mesh" in params else params["meshes"][0]
    if type(mesh).__name__ != "WarpMesh":
        raise Unsupported(f"{current_source_line()} {mesh}: only WarpMesh divides a kernel further. Use warp_map.")
    jaxpr, _ = open_jaxpr(params["jaxpr"] if "jaxpr" in params else params["jaxprs"][0])
    consts, inputs = (operands, []) if jaxpr.constvars else ([], operands)

    def on_warp(_: Any) -> None:
        translator.with_axis(mesh.axis_name, "warp").evaluate(jaxpr, consts, inputs)

    mgpu.warp_map(on_warp)
    return []


def _program_id(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del translator, operands
    ask = {"program_id": pl.program_id, "num_programs": pl.num_programs}[equation.primitive.name]
    return [ask(equation.params["axis"])]


def _axis_index(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    del operands
    return [lax.axis_index(translator.axis_name(equation.params["axis_name"]))]


def argument_names(jaxpr: Any) -> list[str]:
    """Returns the kernel's own names for the inputs of a jaxpr: `buffers_1` for `allocs['buffers'][1]`."""
    info = getattr(jaxpr, "debug_info", None)
    names = list(info.arg_names or ()) if info is not None else []
    if len(names) != len(jaxpr.invars):
        names = [""] * len(jaxpr.invars)
    return [short_name(name) or f"ref_{index}" for index, name in enumerate(names)]


def short_name(name: str | None) -> str:
    """Returns the last name in a path such as `allocs['buffers'][1]`, and the indices after it: `buffers_1`."""
    parts = re.findall(r"[A-Za-z_]\w*|\d+", name or "")
    last = max((index for index, part in enumerate(parts) if not part.isdigit()), default=0)
    return "_".join(parts[last:])


def _run_state(translator: Translator, equation: Any, operands: list[Any]) -> list[Any]:
    jaxpr, consts = open_jaxpr(equation.params["jaxpr"])
    started = [
        index
        for index, (var, operand) in enumerate(zip(jaxpr.invars, operands, strict=True))
        if type(var.aval).__name__ == ACCUMULATOR and not isinstance(operand, ImportedRef)
    ]
    inside = [operand if isinstance(operand, (ImportedRef, Cell)) else Cell(operand) for operand in operands]

    if jaxpr.outvars and any(isinstance(ref, Cell) for index, ref in enumerate(inside) if index not in started):
        raise Unsupported(
            f"{current_source_line()} run_state: its function returns a value, and closes over one that is no ref. "
            "Return None, and take the results from what run_state returns."
        )

    def body(refs: Sequence[Any]) -> Any:
        for index, ref in zip(started, refs, strict=True):
            inside[index] = ImportedRef(ref)
        return translator.evaluate(jaxpr, consts, inside)

    if not started:
        body(())
        return [as_operand(cell) for cell in inside]
    finals = pl.run_state(body)([mgpu.ACC.init(operands[index]) for index in started])
    results = [as_operand(cell) for cell in inside]
    for index, value in zip(started, finals, strict=True):
        results[index] = value
    return results


RULES: Mapping[str, Rule] = {
    "scan": _scan,
    "while": _while,
    "cond": _cond,
    "run_scoped": _run_scoped,
    "run_state": _run_state,
    "axis_index": _axis_index,
    "program_id": _program_id,
    "num_programs": _program_id,
    "core_map": _warp_region,
    "mpmd_map": _warp_region,
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
            "remat2",
        ),
        _call,
    ),
}
