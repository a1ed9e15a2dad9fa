"""What the author of an imported kernel called it and its operands.

JAX's jaxpr of a kernel has generated names for both. The tracebacks of its equations know the body function, and that
one its parameters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax

from mgpu.frontend.pallas_rules.translator import is_jaxpr, open_jaxpr
from mgpu.jax_internals import SourceLine, outermost_function


class Author(NamedTuple):
    """The body function of a kernel, as far as it is known.

    Attributes:
      source: where it is defined, and its name.
      parameters: names of its positional parameters.
    """

    source: SourceLine
    parameters: tuple[str, ...]


def find_author(jaxpr: Any, launched_at: SourceLine) -> Author:
    """Returns the body function of a kernel's open jaxpr; the line that launches it if there is no better one."""
    for equation in _equations(jaxpr):
        code = outermost_function(equation)
        if code is not None:
            name = "kernel" if code.co_name == "<lambda>" else code.co_name
            source = SourceLine(code.co_filename, code.co_firstlineno, name)
            return Author(source, code.co_varnames[: code.co_argcount])
    return Author(launched_at._replace(function="kernel"), ())


def _equations(jaxpr: Any) -> Iterator[Any]:
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            if is_jaxpr(value):
                yield from _equations(open_jaxpr(value)[0])


def operand_names(author: Author, trees: tuple[Any, Any] | None, num_inputs: int, num_outputs: int) -> list[str]:
    """Returns a name for each GMEM operand of a kernel, inputs before outputs: the author's own where known.

    Args:
      author: the body function.
      trees: trees of its arguments and of its results. JAX puts the values that it closes over before the arguments.
      num_inputs, num_outputs: flat operands.
    """
    general = [f"in_{index}" for index in range(num_inputs)] + [f"out_{index}" for index in range(num_outputs)]
    if trees is None or (trees[0].num_leaves, trees[1].num_leaves) != (num_inputs, num_outputs):
        return general
    closed_over, arguments = jax.tree.unflatten(trees[0], range(num_inputs))
    results = jax.tree.unflatten(trees[1], range(num_inputs, num_inputs + num_outputs))
    positional = [*arguments, *(results if isinstance(results, (tuple, list)) else [results])]
    if len(author.parameters) < len(positional):
        return general
    names = dict(zip(jax.tree.leaves(closed_over), general, strict=False))
    for parameter, value in zip(author.parameters, positional, strict=False):
        for path, index in jax.tree_util.tree_leaves_with_path(value):
            names[index] = parameter + jax.tree_util.keystr(path)
    return [names[index] for index in range(num_inputs + num_outputs)]
