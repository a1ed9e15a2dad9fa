"""Boxes: the part of a GMEM array that one TMA copy, or one plain access, moves.

A box may cross the border of its array: a load fills what lies outside, a store leaves it out.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mgpu.errors import OutOfBoundsError
from mgpu.lang.primitive import View
from mgpu.lang.transforms import bits_of
from mgpu.sim.compile.context import Context
from mgpu.sim.compile.refs import Selection, select
from mgpu.sim.memory_system import Box
from mgpu.sim.reductions import combine_function
from mgpu.sim.values import carrier_dtype, uninitialised


@dataclasses.dataclass(frozen=True)
class BoxText:
    """A selection of a GMEM array as a TMA box.

    Attributes:
      selection: what is selected.
      box: expression of the `Box` that the memory system takes; of None if all of it lies outside.
      starts: expressions of the box's corner.
      sides: lengths of the box, 1 for dimensions with an integer index.
      shape: the array that the box lies in.
      num_bytes: size of the box.
      inside: condition under which nothing crosses the border; "True" or "False" if that is known.
    """

    selection: Selection
    box: str
    starts: tuple[int | str, ...]
    sides: tuple[int, ...]
    shape: tuple[int, ...]
    num_bytes: int
    inside: str

    @property
    def corner(self) -> str:
        """Expression of the tuple of starts."""
        return f"({', '.join(map(str, self.starts))}{',' if len(self.starts) == 1 else ''})"

    def source(self, fill: str) -> str:
        """Returns the expression of the values that a load of the box delivers.

        Args:
          fill: name of the function that makes a box which crosses the border.
        """
        selection = self.selection
        if self.inside == "True":
            return selection.text
        kept = sorted(selection.order)
        shape = tuple(self.sides[axis] for axis in kept)
        filled = f"{fill}({selection.base}, {self.corner}, {self.sides}, {shape})"
        if not selection.is_in_order:
            filled += f".transpose({tuple(kept.index(axis) for axis in selection.order)})"
        return filled if self.inside == "False" else f"({selection.text} if {self.inside} else {filled})"


def select_box(context: Context, view: View, *, checked: bool = False) -> BoxText:
    """Resolves a GMEM operand of a copy.

    Args:
      context: what is being compiled.
      view: the operand.
      checked: whether leaving the array is an error; False if the copy fills or clips.

    Raises:
      Unsupported: strides, or an exchange of dimensions, that a TMA box does not have.
    """
    selection = select(context, view, checked=checked)
    if any(part.stride != 1 for part in selection.parts):
        raise context.unsupported(
            f"a TMA copy of a strided {selection.storage.allocation.name}", "Slice it without a stride."
        )
    return box_of(context, selection)


def box_of(context: Context, selection: Selection) -> BoxText:
    """Returns a selection of a GMEM buffer as a box. Exchanged dimensions cost what the plain ones do."""
    number = selection.storage.allocation.number
    shape, item_bits = selection.shape, bits_of(selection.dtype)
    sides = tuple(1 if part.size is None else part.size for part in selection.parts)
    # A gather costs what its rows cost, taken as neighbours from the first one on.
    starts = tuple(f"int({part.start}.min())" if part.gathers else part.start for part in selection.parts)
    pitches = [math.prod(shape[axis + 1 :]) * item_bits // 8 for axis in range(len(shape))]
    terms = [f"{start} * {pitch}" for start, pitch in zip(starts, pitches, strict=True) if start != 0]
    row_bytes = max(1, (sides[-1] if sides else 1) * item_bits // 8)
    rows = math.prod(sides[:-1])
    row_pitch = next((p for p, side in zip(pitches[-2::-1], sides[-2::-1], strict=True) if side > 1), row_bytes)
    offset = " + ".join((*selection.offset_bytes, *terms)) or "0"
    inside = "True" if any(p.gathers for p in selection.parts) else _inside(starts, sides, shape)
    extent = (number, rows, row_bytes, row_pitch)
    boxes = "boxes_" + "_".join(map(str, extent))
    context.emitter.prologue(f"{boxes} = memory.boxes[{', '.join(map(str, extent))}]")
    box = f"{boxes}[{offset}]"
    if inside != "True":
        corner = f"({', '.join(map(str, starts))},)"
        start = " + ".join(selection.offset_bytes) or "0"
        clipped = f"clipped_box({number}, {start}, {corner}, {sides}, {shape}, {item_bits})"
        box = clipped if inside == "False" else f"({box} if {inside} else {clipped})"
    return BoxText(selection, box, starts, sides, shape, rows * row_bytes, inside)


def _inside(starts: tuple[int | str, ...], sides: tuple[int, ...], shape: tuple[int, ...]) -> str:
    conditions = []
    for start, side, size in zip(starts, sides, shape, strict=True):
        if isinstance(start, int):
            if not 0 <= start <= size - side:
                return "False"
        elif side != size or start != "0":
            conditions.append(f"0 <= {start} <= {size - side}")
    return " and ".join(conditions) or "True"


def clipped_box(
    buffer: int,
    base_bytes: int,
    starts: tuple[int, ...],
    sides: tuple[int, ...],
    shape: tuple[int, ...],
    item_bits: int,
) -> Box | None:
    """Returns the part of a box that lies inside its array; None if nothing does."""
    inside, _ = overlap(shape, starts, sides)
    lengths = [part.stop - part.start for part in inside]
    if min(lengths) <= 0:
        return None
    pitches = [math.prod(shape[axis + 1 :]) * item_bits // 8 for axis in range(len(shape))]
    offset = base_bytes + sum(part.start * pitch for part, pitch in zip(inside, pitches, strict=True))
    row_bytes = lengths[-1] * item_bits // 8
    pitch = next((p for p, length in zip(pitches[-2::-1], lengths[-2::-1], strict=True) if length > 1), row_bytes)
    return Box(buffer, offset, math.prod(lengths[:-1]), row_bytes, pitch)


def zero_filled(
    array: np.ndarray, starts: tuple[int, ...], sides: tuple[int, ...], shape: tuple[int, ...]
) -> np.ndarray:
    """Returns a box that crosses the border of `array`, with zeros outside, as TMA reads it, reshaped to `shape`."""
    return _fill(array, np.zeros(sides, array.dtype), starts, sides, shape)


def undefined_filled(
    array: np.ndarray, starts: tuple[int, ...], sides: tuple[int, ...], shape: tuple[int, ...]
) -> np.ndarray:
    """Returns a box with values outside that nobody should read, as after `OOBFillMode.UNDEFINED`."""
    return _fill(array, uninitialised(sides, carrier_dtype(array.dtype)).astype(array.dtype), starts, sides, shape)


def refuse_outside(
    array: np.ndarray, starts: tuple[int, ...], sides: tuple[int, ...], shape: tuple[int, ...]
) -> np.ndarray:
    """Raises the error for a box that crosses the border although the kernel promised that none does."""
    del shape
    raise OutOfBoundsError(
        f"copy_gmem_to_smem: the box at {list(starts)} of {list(sides)} leaves its array of {list(array.shape)}, and "
        "oob_mode is PROMISE_IN_BOUNDS. Clip the offset, or use OOBFillMode.ZEROS."
    )


def _fill(
    array: np.ndarray,
    result: np.ndarray,
    starts: tuple[int, ...],
    sides: tuple[int, ...],
    shape: tuple[int, ...],
) -> np.ndarray:
    inside, target = overlap(array.shape, starts, sides)
    result[target] = array[inside]
    return result.reshape(shape)


def store_box(array: np.ndarray, starts: tuple[int, ...], sides: tuple[int, ...], values: np.ndarray) -> None:
    """Writes the part of a box that lies inside `array`, as TMA does."""
    inside, source = overlap(array.shape, starts, sides)
    array[inside] = values.reshape(sides)[source]


def reduce_box(operation: str, dtype: Any) -> Callable[..., None]:
    """Returns a function (array, starts, sides, values) that combines the part of a box that lies inside `array`."""
    combine = combine_function(operation, dtype)

    def write(array: np.ndarray, starts: tuple[int, ...], sides: tuple[int, ...], values: np.ndarray) -> None:
        inside, source = overlap(array.shape, starts, sides)
        array[inside] = combine(array[inside], values.reshape(sides)[source])

    return write


def overlap(
    shape: tuple[int, ...], starts: tuple[int, ...], sides: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """Returns the part of a box that lies inside an array, in the array's coordinates and in the box's own."""
    inside, local = [], []
    for size, start, side in zip(shape, starts, sides, strict=True):
        low, high = max(start, 0), min(start + side, size)
        high = max(high, low)
        inside.append(slice(low, high))
        local.append(slice(low - start, high - start))
    return tuple(inside), tuple(local)


NAMESPACE = {
    "clipped_box": clipped_box,
    "zero_filled": zero_filled,
    "undefined_filled": undefined_filled,
    "refuse_outside": refuse_outside,
    "store_box": store_box,
    "copyto": np.copyto,
}
