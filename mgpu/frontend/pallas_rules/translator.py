"""Evaluates a jaxpr of JAX's kernel language inside our own trace, equation by equation.

Operations of JAX's Mosaic GPU language go through the tables of this package; everything else (arithmetic, control
flow, axis indices) is bound as it is. Every operation keeps the source line and the named scopes of its equation.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
from jax.extend import core as jex_core

from mgpu.errors import Unsupported
from mgpu.frontend.pallas_rules.refs import Cell, ImportedRef, as_operand, spread
from mgpu.jax_internals import at_equation, current_source_line, hide_from_source_lines
from mgpu.lang.primitive import is_ref

hide_from_source_lines(os.path.dirname(__file__))

Rule = Callable[["Translator", Any, list[Any]], Sequence[Any]]
"""Performs an equation on the values of its operands (refs as `ImportedRef`) and returns its results."""


def open_jaxpr(jaxpr: Any) -> tuple[Any, list[Any]]:
    """Returns a jaxpr, open, and its constants; takes what either version of JAX calls a closed jaxpr."""
    return getattr(jaxpr, "jaxpr", jaxpr), list(getattr(jaxpr, "consts", ()))


def is_jaxpr(value: Any) -> bool:
    """True for an open or closed jaxpr."""
    return isinstance(value, (jex_core.Jaxpr, jex_core.ClosedJaxpr))


class Translator:
    """Evaluates jaxprs of JAX's kernel language.

    Args:
      rules: what is done for each primitive, by name without a trailing `_p`; the others are bound as they are.
      axis_names: our name for each axis of the launch. JAX's may be any object (those that `vmap` adds are).
    """

    def __init__(self, rules: Mapping[str, Rule], axis_names: Mapping[Any, str]) -> None:
        self._rules = rules
        self._axis_names = axis_names

    def axis_name(self, name: Any) -> Any:
        """Returns our name for one of JAX's axes; that of an axis outside the kernel stays."""
        return self._axis_names.get(name, name)

    def with_axis(self, name: Any, ours: str) -> Translator:
        """Returns a translator that knows one more axis."""
        return Translator(self._rules, {**self._axis_names, name: ours})

    def evaluate(self, jaxpr: Any, consts: Sequence[Any], operands: Sequence[Any]) -> list[Any]:
        """Performs the equations of an open jaxpr in the current trace, and returns its results."""
        values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        values.update(zip(jaxpr.invars, operands, strict=True))

        def read(atom: Any) -> Any:
            return atom.val if isinstance(atom, jex_core.Literal) else values[atom]

        for equation in jaxpr.eqns:
            with at_equation(equation):
                results = self._perform(equation, [read(atom) for atom in equation.invars])
            values.update(zip(equation.outvars, results, strict=True))
        return [read(atom) for atom in jaxpr.outvars]

    def _perform(self, equation: Any, operands: list[Any]) -> Sequence[Any]:
        primitive = equation.primitive
        rule = self._rules.get(primitive.name.removesuffix("_p"))
        if rule is not None:
            return rule(self, equation, operands)
        if any(isinstance(operand, (ImportedRef, Cell)) for operand in operands):
            raise Unsupported(
                f"{current_source_line()} {primitive.name}: this operation on refs cannot be imported from JAX. "
                "Write it with loads, stores and copies."
            )
        results = primitive.bind(*operands, **equation.params)
        return results if primitive.multiple_results else [results]

    def translate(self, jaxpr: Any, operands: Sequence[Any]) -> Any:
        """Returns the jaxpr of our primitives for one that an equation holds, closed. It takes the spread operands.

        Args:
          jaxpr: the inner jaxpr, open or closed.
          operands: values of its inputs, which tell which of them are refs, and of what layout.
        """
        inner, consts = open_jaxpr(jaxpr)
        flat, gather = spread(operands)

        def body(*values: Any) -> list[Any]:
            return [as_operand(result) for result in self.evaluate(inner, consts, gather(values))]

        return jax.make_jaxpr(body)(*(value.aval if is_ref(value) else jax.typeof(value) for value in flat))
