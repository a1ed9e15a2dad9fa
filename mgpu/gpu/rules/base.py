"""What a rule gets: one operation of the language, its operands already refs and arrays of JAX's module."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jax.experimental import pallas as pl

from mgpu.errors import Unsupported
from mgpu.jax_internals import SourceLine


@dataclasses.dataclass(frozen=True)
class Call:
    """One operation, ready to be called in JAX's module.

    Attributes:
      name: the operation.
      operands: refs of JAX's module, slices applied, and arrays; None for an operand that was left out.
      params: static parameters.
      source: the user's line.
      views: for each operand that is a ref, the whole ref and the transforms on it, not yet applied; else None.
      in_warp: whether one warp of the warpgroup does it alone.
    """

    name: str
    operands: tuple[Any, ...]
    params: Mapping[str, Any]
    source: SourceLine
    views: tuple[Any, ...] = ()
    in_warp: bool = False

    def unsupported(self, what: str, instead: str) -> Unsupported:
        """Returns the error for a form of the operation that JAX's module does not have."""
        return Unsupported(f"{self.source} {self.name}: {what} is not available on the GPU. {instead}")


Rule = Callable[[Call], Any]
"""Performs an operation by calling JAX's module; returns its result, or None."""


def call_if(predicate: Any, function: Callable[..., None], *args: Any, **keywords: Any) -> None:
    """Calls an operation of JAX's module, by a branch if it takes no predicate itself (JAX 0.10.2).

    Args:
      predicate: scalar boolean; None calls it always.
      function: the operation; has no result.
      *args: its operands.
      **keywords: its other arguments.
    """
    if predicate is None:
        function(*args, **keywords)
    elif "predicate" in inspect.signature(function).parameters:
        function(*args, **keywords, predicate=predicate)
    else:
        pl.when(predicate)(lambda: function(*args, **keywords))
