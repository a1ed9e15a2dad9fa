"""What a rule gets: one operation of the language, its operands already refs and arrays of JAX's module."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

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
    """

    name: str
    operands: tuple[Any, ...]
    params: Mapping[str, Any]
    source: SourceLine

    def unsupported(self, what: str, instead: str) -> Unsupported:
        """Returns the error for a form of the operation that JAX's module does not have."""
        return Unsupported(f"{self.source} {self.name}: {what} is not available on the GPU. {instead}")


Rule = Callable[[Call], Any]
