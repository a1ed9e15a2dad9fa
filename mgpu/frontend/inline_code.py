"""What an `inline_mgpu` function does, as plain values: steps over numbered values.

`mgpu.frontend.inline_reader` reads them from the IR that the function builds. The steps say what one lane does; values
are numbers, in order of their definition.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class ValueType:
    """Type of a value: its `np.dtype` (None for what is no number) and shape; a scalar has none."""

    dtype: Any
    shape: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Step:
    """One operation of the IR.

    Attributes:
      name: with its dialect, such as "arith.addf".
      operands: numbers of the values that it takes.
      results: numbers of the values that it defines.
      types: types of the results.
      attributes: by name: numbers, strings, arrays and lists; others as text.
      regions: what it executes inside; a region is one block.
    """

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[ValueType, ...]
    attributes: dict[str, Any]
    regions: tuple[Block, ...] = ()


@dataclasses.dataclass(frozen=True)
class Block:
    """Steps in order, and the numbers of the values that they are given."""

    arguments: tuple[int, ...]
    steps: tuple[Step, ...]


@dataclasses.dataclass(frozen=True)
class Fragment:
    """An array that the lanes hold.

    Attributes:
      layout: the compiler's layout of it.
      shape, dtype: of the array.
      registers: numbers of its registers' values, in order.
    """

    layout: Any
    shape: tuple[int, ...]
    dtype: np.dtype
    registers: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class InlineCode:
    """What an inlined function does.

    Attributes:
      block: its steps.
      types: type of each value, by its number.
      arguments: for each argument (flat), its fragment, or the number of the value that stands for its ref.
      results: fragments of the arrays that it returns (flat).
    """

    block: Block
    types: tuple[ValueType, ...]
    arguments: tuple[Fragment | int, ...]
    results: tuple[Fragment, ...]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the outermost block."""
        return self.block.steps


@dataclasses.dataclass(frozen=True)
class Operand:
    """Type of an argument: of an array, or of the part of a buffer that a ref selects (`in_smem` False for GMEM)."""

    shape: tuple[int, ...]
    dtype: np.dtype
    in_smem: bool = False
