"""From a kernel equation of JAX's own Mosaic GPU module to a KernelProgram.

JAX traces a kernel into a jaxpr of its own primitives. That jaxpr is evaluated once more inside our trace, where the
tables in `mgpu.frontend.pallas_rules` say each of its operations in our language.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
from jax.core import ShapedArray

from mgpu.errors import ParamsError, Unsupported
from mgpu.frontend.build import build_program, name_arguments
from mgpu.frontend.pallas_names import Author, find_author, operand_names
from mgpu.frontend.pallas_rules import RULES
from mgpu.frontend.pallas_rules.allocations import allocation_type, imported_ref
from mgpu.frontend.pallas_rules.control import argument_names
from mgpu.frontend.pallas_rules.refs import ImportedRef
from mgpu.frontend.pallas_rules.translator import Translator, is_jaxpr, open_jaxpr
from mgpu.frontend.program import KernelProgram, Launch
from mgpu.jax_internals import AbstractRef, current_source_line, hide_from_source_lines
from mgpu.params import CompilerParams, LoweringSemantics, TraceScope

hide_from_source_lines(__file__)

KERNEL_PRIMITIVE = "mpmd_map"
"""JAX's primitive of a kernel made by its `plgpu.kernel` or `pl.core_map`."""


def is_kernel_equation(equation: Any) -> bool:
    """True for an equation that launches a kernel of JAX's Mosaic GPU module."""
    return equation.primitive.name == KERNEL_PRIMITIVE and any(
        type(mesh).__name__ == "Mesh" and hasattr(mesh, "thread_name") for mesh in equation.params["meshes"]
    )


def holds_kernel(equation: Any) -> bool:
    """True for an equation with a kernel somewhere in the jaxprs that it holds."""
    held = [x for value in equation.params.values() for x in (value if isinstance(value, tuple) else (value,))]
    jaxprs = [open_jaxpr(value)[0] for value in held if is_jaxpr(value)]
    return any(is_kernel_equation(inner) or holds_kernel(inner) for jaxpr in jaxprs for inner in jaxpr.eqns)


def import_program(equation: Any, replaced_params: Mapping[str, Any], trees: tuple[Any, Any] | None) -> KernelProgram:
    """Translates a kernel equation.

    Args:
      equation: one for which `is_kernel_equation` holds.
      replaced_params: values for fields of the kernel's compiler parameters, instead of its own.
      trees: trees of the kernel's arguments and of its results, if known: they tell which of its parameters, by name,
        each operand is.

    Returns:
      The program. Its inputs are the equation's operands, its outputs the equation's results; it closes over nothing.

    Raises:
      Unsupported: the kernel uses something that the simulated GPU does not have; names the author's line.
      KernelTypeError: the kernel misuses an operation.
    """
    params = equation.params
    line = current_source_line()
    if len(params["jaxprs"]) != 1 or params["external_meshes"]:
        raise Unsupported(
            f"{line} kernel: several meshes in one launch cannot be imported. Launch one kernel for each."
        )
    if any(isinstance(atom.aval, AbstractRef) for atom in equation.invars):
        raise Unsupported(f"{line} kernel: refs as operands of a launch cannot be imported. Pass arrays.")
    if params["input_output_aliases"]:
        raise Unsupported(f"{line} kernel: input_output_aliases cannot be imported. Write to an output of its own.")
    (mesh,) = params["meshes"]
    jaxpr, consts = open_jaxpr(params["jaxprs"][0])
    author = find_author(jaxpr, line)
    axis_names = _axis_names(mesh)
    translator = Translator(RULES, axis_names)
    inner, layouts, gmem_of_inner = _scratch_scope(jaxpr)
    gmem_names = operand_names(author, trees, len(equation.invars), len(params["out_avals"]))

    def body(*refs: Any) -> None:
        gmem = [ImportedRef(ref) for ref in refs[: len(jaxpr.invars)]]
        if inner is None:
            translator.evaluate(jaxpr, consts, gmem)
            return
        avals = [var.aval for var in inner.invars]
        scratch = [imported_ref(*each) for each in zip(refs[len(gmem) :], avals, layouts, strict=True)]
        values = dict(zip((*jaxpr.invars, *jaxpr.constvars), (*gmem, *consts), strict=True))
        translator.evaluate(inner, [values[var] for var in gmem_of_inner], scratch)

    scratch_vars = [] if inner is None else inner.invars
    program, closed_over = build_program(
        name_arguments(body, [*gmem_names, *([] if inner is None else argument_names(inner))]),
        name=_name(params, mesh, author),
        in_tree=jax.tree.structure(tuple(range(len(equation.invars)))),
        in_avals=[ShapedArray(atom.aval.shape, atom.aval.dtype) for atom in equation.invars],
        out_type=[jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in params["out_avals"]],
        scratch=[allocation_type(var.aval, layout) for var, layout in zip(scratch_vars, layouts, strict=True)],
        launch=_launch(mesh, axis_names),
        params=import_params(params["compiler_params"], replaced_params),
    )
    assert not closed_over, "every value that JAX's kernel closes over is an operand of its launch"
    return dataclasses.replace(program, source=author.source)


def _scratch_scope(jaxpr: Any) -> tuple[Any, tuple[Any, ...], list[Any]]:
    """Returns the jaxpr, layouts and operands of the `run_scoped` that is all a kernel does; (None, (), []) if more."""
    if len(jaxpr.eqns) != 1 or jaxpr.eqns[0].primitive.name != "run_scoped":
        return None, (), []
    (equation,) = jaxpr.eqns
    inner, _ = open_jaxpr(equation.params["jaxpr"])
    return inner, tuple(equation.params["ref_transforms"]), list(equation.invars)


def _axis_names(mesh: Any) -> dict[Any, str]:
    """Returns our name for each axis of a mesh: its own, or a new one for an axis that `vmap` added."""
    axes = [*mesh.grid_names, *mesh.cluster_names, *([] if mesh.thread_name is None else [mesh.thread_name])]
    taken = [name for name in axes if isinstance(name, str)]
    names: dict[Any, str] = {}
    for number, name in enumerate(axes):
        while f"vmap{number}" in taken:
            number += 1
        names[name] = name if isinstance(name, str) else f"vmap{number}"
    return names


def _launch(mesh: Any, names: dict[Any, str]) -> Launch:
    return Launch(
        grid=tuple(mesh.grid),
        grid_names=tuple(names[name] for name in mesh.grid_names),
        cluster=tuple(mesh.cluster),
        cluster_names=tuple(names[name] for name in mesh.cluster_names),
        num_threads=mesh.num_threads or 1,
        thread_name=None if mesh.thread_name is None else names[mesh.thread_name],
    )


_ANONYMOUS = "anonymous"


def _name(params: Any, mesh: Any, author: Author) -> str:
    given = [name for name in (mesh.kernel_name, params.get("name")) if name and name != _ANONYMOUS]
    return given[0] if given else author.source.function


def import_params(params: Any, replaced: Mapping[str, Any]) -> CompilerParams:
    """Returns our compiler parameters for JAX's: the fields of the same names, enumerations by name.

    Fields that steer JAX's compiler only (`profile_bounds_check` of JAX 0.12) are left out.

    Args:
      params: JAX's object, a mapping, or None for the defaults.
      replaced: fields that get other values; named as ours.

    Raises:
      ParamsError: a field with a wrong type or value.
    """
    names = {field.name for field in dataclasses.fields(CompilerParams)}
    if dataclasses.is_dataclass(params):
        params = {field.name: getattr(params, field.name) for field in dataclasses.fields(params)}
    values = {name: value for name, value in (params or {}).items() if name in names}
    for name, kind in (("lowering_semantics", LoweringSemantics), ("profile_trace_scope", TraceScope)):
        if values.get(name) is not None:
            values[name] = kind[values[name].name]
    unknown = sorted(set(replaced) - names)
    if unknown:
        raise ParamsError(
            f"from_pallas: compiler_params has no field {unknown[0]!r}. The fields are {', '.join(sorted(names))}."
        )
    return CompilerParams(**{**values, **replaced})
