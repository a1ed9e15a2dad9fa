"""From a kernel equation of JAX's own Mosaic GPU module to a KernelProgram.

JAX traces a kernel into a jaxpr of its own primitives. That jaxpr is evaluated once more inside our trace, where the
tables in `mgpu.frontend.pallas_rules` say each of its operations in our language.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend import core as jex_core

from mgpu.errors import Unsupported
from mgpu.frontend.build import build_program
from mgpu.frontend.pallas_launch import axis_names, import_launch, import_params, kernel_name
from mgpu.frontend.pallas_names import find_author, operand_names
from mgpu.frontend.pallas_rules import RULES
from mgpu.frontend.pallas_rules.allocations import allocation_type, imported_ref
from mgpu.frontend.pallas_rules.control import argument_names
from mgpu.frontend.pallas_rules.refs import ImportedRef
from mgpu.frontend.pallas_rules.translator import Translator, open_jaxpr
from mgpu.frontend.program import KernelProgram
from mgpu.jax_internals import AbstractRef, current_source_line, hide_from_source_lines
from mgpu.lang.scoped import name_parameters

hide_from_source_lines(__file__)


def is_kernel_equation(equation: Any) -> bool:
    """True for an equation that launches a kernel of JAX's Mosaic GPU module over a mesh of CTAs."""
    params = equation.params
    # JAX's `plgpu.kernel`; in 0.12 its `pl.core_map` too, which has a primitive of its own in 0.10.2.
    meshes = {"mpmd_map": params.get("meshes", ()), "core_map": (params.get("mesh"),)}
    return any(
        type(mesh).__name__ == "Mesh" and type(mesh).__module__.startswith("jax.") and hasattr(mesh, "thread_name")
        for mesh in meshes.get(equation.primitive.name, ())
    )


@dataclasses.dataclass(frozen=True)
class ImportedKernel:
    """A kernel of JAX's, ready to be launched.

    Attributes:
      program: the kernel. Its results are those of JAX's equation, then the final contents of `written`.
      operands: what to launch it with: values that it closes over, then its arrays.
      written: JAX refs that were operands; their contents are among `operands`.
    """

    program: KernelProgram
    operands: tuple[Any, ...]
    written: tuple[Any, ...]


def import_kernel(
    equation: Any, values: Sequence[Any], replaced_params: Mapping[str, Any], trees: tuple[Any, Any] | None
) -> ImportedKernel:
    """Translates a kernel equation.

    Args:
      equation: one for which `is_kernel_equation` holds.
      values: its operands.
      replaced_params: values for fields of the kernel's compiler parameters, instead of its own.
      trees: trees of the kernel's arguments and of its results, if known: they tell which of its parameters, by name,
        each operand is.

    Raises:
      Unsupported: the kernel uses something that the simulated GPU does not have; names the author's line.
      KernelTypeError: the kernel misuses an operation.
    """
    params = equation.params
    parts = _take_apart(equation)
    jaxpr, mesh, out_avals = parts.jaxpr, parts.mesh, parts.out_avals
    author = find_author(jaxpr, current_source_line())
    names = operand_names(author, trees, len(values), len(out_avals))
    # An operand is an array, a JAX ref (which the kernel also writes), or a plain value that the kernel closes over.
    arrays = [index for index, var in enumerate(parts.operands) if isinstance(var.aval, AbstractRef)]
    mutable = [index for index in arrays if isinstance(equation.invars[index].aval, AbstractRef)]
    inputs = [values[index][...] if index in mutable else jnp.asarray(values[index]) for index in arrays]
    outputs = [*out_avals, *(equation.invars[index].aval.inner_aval for index in mutable)]
    scope = _scratch_scope(jaxpr)
    axes = axis_names(mesh)

    def body(*refs: Any) -> None:
        bound = dict(zip(parts.operands, values, strict=True))
        bound.update((parts.operands[index], ImportedRef(ref)) for index, ref in zip(arrays, refs, strict=False))
        written = refs[len(arrays) : len(arrays) + len(outputs)]
        vars_written = [*parts.results, *(parts.operands[index] for index in mutable)]
        bound.update(zip(vars_written, map(ImportedRef, written), strict=True))
        scope.evaluate(Translator(RULES, axes), jaxpr, bound, refs[len(arrays) + len(outputs) :])

    result_names = [*names[len(values) :], *(names[index] for index in mutable)]
    program, closed_over = build_program(
        name_parameters(body, [*(names[index] for index in arrays), *result_names, *scope.names]),
        name=kernel_name(params, mesh, author),
        in_tree=jax.tree.structure(tuple(arrays)),
        in_avals=[ShapedArray(value.shape, value.dtype) for value in inputs],
        out_type=[jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in outputs],
        scratch=scope.types(),
        launch=import_launch(mesh, axes),
        params=import_params(params["compiler_params"], replaced_params),
    )
    aliases = [
        (arrays.index(index), result) for index, result in dict(params.get("input_output_aliases") or {}).items()
    ]
    aliases += [(arrays.index(index), len(out_avals) + number) for number, index in enumerate(mutable)]
    program = dataclasses.replace(program, source=author.source, input_output_aliases=tuple(sorted(aliases)))
    return ImportedKernel(program, (*closed_over, *inputs), tuple(values[index] for index in mutable))


@dataclasses.dataclass(frozen=True)
class _Parts:
    """Parts of a kernel equation, whichever primitive it has.

    Attributes:
      jaxpr: the kernel, open.
      mesh: its launch.
      operands: variables of the jaxpr that the equation's operands are bound to.
      results: variables of the refs that the kernel returns its results in.
      out_avals: types of the results.
    """

    jaxpr: Any
    mesh: Any
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    out_avals: tuple[Any, ...]


def _take_apart(equation: Any) -> _Parts:
    params = equation.params
    if equation.primitive.name == "core_map":
        jaxpr, _ = open_jaxpr(params["jaxpr"])
        return _Parts(jaxpr, params["mesh"], tuple(jaxpr.constvars), (), ())
    if len(params["jaxprs"]) != 1 or params["external_meshes"]:
        raise Unsupported(
            f"{current_source_line()} kernel: several meshes in one launch cannot be imported. "
            "Launch one kernel for each."
        )
    jaxpr, _ = open_jaxpr(params["jaxprs"][0])
    count = len(equation.invars)
    variables = tuple(jaxpr.invars)
    return _Parts(jaxpr, params["meshes"][0], variables[:count], variables[count:], tuple(params["out_avals"]))


@dataclasses.dataclass(frozen=True)
class _Scope:
    """The `run_scoped` that is all a kernel does: its scratch; `equation` is None if the kernel does more."""

    equation: Any = None

    @property
    def jaxpr(self) -> Any:
        return open_jaxpr(self.equation.params["jaxpr"])[0]

    @property
    def names(self) -> list[str]:
        return [] if self.equation is None else argument_names(self.jaxpr)

    def _layouts(self) -> list[tuple[Any, Sequence[Any]]]:
        avals = [var.aval for var in self.jaxpr.invars]
        return list(zip(avals, self.equation.params["ref_transforms"], strict=True))

    def types(self) -> list[Any]:
        """Returns our types of what it allocates."""
        return [] if self.equation is None else [allocation_type(*each) for each in self._layouts()]

    def evaluate(self, translator: Translator, kernel: Any, bound: Mapping[Any, Any], scratch: Sequence[Any]) -> None:
        """Evaluates the kernel for values of its variables and refs to its scratch."""
        if self.equation is None:
            translator.evaluate(kernel, [bound[v] for v in kernel.constvars], [bound[v] for v in kernel.invars])
            return
        consts = [atom.val if isinstance(atom, jex_core.Literal) else bound[atom] for atom in self.equation.invars]
        refs = [imported_ref(ref, *each) for ref, each in zip(scratch, self._layouts(), strict=True)]
        translator.evaluate(self.jaxpr, consts, refs)


def _scratch_scope(jaxpr: Any) -> _Scope:
    is_all = len(jaxpr.eqns) == 1 and jaxpr.eqns[0].primitive.name == "run_scoped"
    return _Scope(jaxpr.eqns[0]) if is_all else _Scope()
