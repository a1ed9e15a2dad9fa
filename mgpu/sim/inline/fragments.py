"""Arrays in registers: which element of an array each lane holds in which register.

The compiler's own layout code is asked: it loads an array that counts its elements, and what arrives in the registers
are their numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.experimental.mosaic import gpu as mosaic

from mgpu.errors import Unsupported
from mgpu.frontend.inline_code import Fragment, Operand
from mgpu.frontend.inline_reader import read_inline_code
from mgpu.lang.inline_mgpu import InlinedFunction, RefType, ShapeDtypeStruct
from mgpu.sim.inline.lanes import EVERYWHERE, LANES, Lanes, Position
from mgpu.sim.inline.memory import Memory
from mgpu.sim.values import carrier_dtype

_COUNTER = np.dtype(np.int32)


class FragmentPlaces:
    """The places of one fragment.

    Args:
      fragment: what the lanes hold.
      source: the author's line, for errors.

    Raises:
      Unsupported: a layout whose places are unknown.
    """

    def __init__(self, fragment: Fragment, source: object) -> None:
        self._fragment = fragment
        self._elements = _find_elements(fragment, source)

    def spread(self, array: Any) -> list[np.ndarray]:
        """Returns the registers that hold an array, each with a row for each lane."""
        flat = np.asarray(array).astype(self._fragment.dtype).reshape(-1)
        return [flat[elements] for elements in self._elements]

    def gather(self, registers: list[np.ndarray]) -> np.ndarray:
        """Returns the array that registers hold, in its carrier."""
        shape = self._fragment.shape
        array = np.empty(int(np.prod(shape, dtype=np.int64)), carrier_dtype(self._fragment.dtype))
        for elements, register in zip(self._elements, registers, strict=True):
            array[elements] = np.broadcast_to(register, elements.shape)
        return array.reshape(shape)


def _find_elements(fragment: Fragment, source: object) -> list[np.ndarray]:
    layout: Any = fragment.layout
    if type(layout).__name__ == "WGSplatFragLayout":
        return [np.zeros(1, np.int64) for _ in fragment.registers]
    array: Any = mosaic.FragmentedArray  # pyright: ignore[reportPrivateImportUsage]

    def count(_: Any, ref: Any) -> Any:
        if type(layout).__name__ == "WGStridedFragLayout":
            return array.load_strided(ref, is_signed=True, vec_size=layout.vec_size)
        return array.load_untiled(ref, layout=layout, is_signed=True, optimized=False)

    returned = ShapeDtypeStruct(fragment.shape, _COUNTER, layout)
    code = read_inline_code(
        InlinedFunction(count, (RefType(),), returned), (Operand(fragment.shape, _COUNTER, in_smem=True),), source
    )
    counters = np.arange(int(np.prod(fragment.shape, dtype=np.int64)), dtype=_COUNTER).reshape(fragment.shape)
    memory = Memory([counters], [_COUNTER])
    lanes = Lanes(memory, Position(0, 1), source)
    lanes.values[code.arguments[0]] = memory.ref(0)  # pyright: ignore[reportArgumentType]
    lanes.run(code.steps, EVERYWHERE)
    registers = [lanes.values[number] for number in code.results[0].registers]
    if len(registers) != len(fragment.registers):
        raise Unsupported(f"{source} inline_mgpu: the registers of layout {layout} cannot be told apart.")
    return [np.broadcast_to(each, (LANES, *each.shape[1:])).astype(np.int64) for each in registers]
