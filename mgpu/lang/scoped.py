"""`pl.run_scoped` for allocations that have names: the names appear in reports, traces and errors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax.experimental import pallas as pl

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import current_source_line, hide_from_source_lines

hide_from_source_lines(__file__)


def run_scoped_named(
    function: Callable[..., Any], types: Sequence[tuple[str, Any]], *, collective_axes: Any = ()
) -> Any:
    """Calls `function(*refs)` with a ref for each `(name, allocation type)`, and returns what it returns.

    Args:
      function: gets the refs, in order.
      types: names and types of the allocations.
      collective_axes: axes along which warpgroups share the allocations.
    """
    if not types:
        return function()
    return pl.run_scoped(
        name_parameters(function, [name for name, _ in types]),
        *(kind for _, kind in types),
        collective_axes=collective_axes,
    )


def name_parameters(function: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """Returns `function` with a signature of its own, from which the traced jaxpr takes the names of its refs."""

    def named(*refs: Any) -> Any:
        return function(*refs)

    taken: dict[str, int] = {}
    parameters = []
    for name in names:
        clean = "".join(c if c.isidentifier() or c.isdigit() else "_" for c in name).strip("_") or "ref"
        taken[clean] = taken.get(clean, 0) + 1
        unique = clean if taken[clean] == 1 else f"{clean}_{taken[clean]}"
        parameters.append(inspect.Parameter(unique, inspect.Parameter.POSITIONAL_ONLY))
    named.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportFunctionMemberAccess]
    return named


def match_allocations(operation: str, wanted: Mapping[str, Sequence[Any]], refs: Any) -> dict[str, list[Any]]:
    """Checks that refs from outside are those that an operation asked for.

    Args:
      operation: who asked, for the error.
      wanted: for each part, a list with an entry for each allocation.
      refs: what the caller passes as `allocations`.

    Returns:
      The refs of each part.

    Raises:
      KernelTypeError: another structure.
    """
    sizes = {part: len(entries) for part, entries in wanted.items()}
    given = {part: len(entries) for part, entries in refs.items()} if isinstance(refs, Mapping) else None
    if given != sizes:
        raise KernelTypeError(
            f"{current_source_line()} {operation}: allocations must be the refs that pl.run_scoped makes of "
            f"get_allocations(...), {sizes}; got {type(refs).__name__ if given is None else given}. Pass them as "
            "they are."
        )
    return {part: list(refs[part]) for part in wanted}
