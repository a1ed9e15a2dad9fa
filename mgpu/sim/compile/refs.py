"""Refs: from `.at[...]` transforms to NumPy views, with bounds checked, and to boxes of global memory.

A ref's storage is a NumPy array of the ref's logical shape in its carrier (see `mgpu.sim.values`); tiling and swizzle
change no value, so views ignore them.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, NoReturn

import numpy as np

from mgpu.errors import OutOfBoundsError
from mgpu.jax_internals import BitcastTransform, NDIndexer, ReshapeTransform, Slice, TransposeTransform
from mgpu.lang.primitive import View
from mgpu.lang.transforms import bits_of
from mgpu.sim.compile.context import Context, Storage


def fail_index(index: int, size: int, name: str) -> NoReturn:
    """Raises the error for an integer index outside its dimension."""
    raise OutOfBoundsError(f"index {index} into {name} is outside its dimension of {size}. Check the index arithmetic.")


def fail_slice(start: int, length: int, size: int, name: str) -> NoReturn:
    """Raises the error for a slice that leaves its dimension."""
    raise OutOfBoundsError(
        f"slice {start}:{start + length} of {name} leaves its dimension of {size}. "
        "Check the offset, or mask the tail: only TMA copies may cross the border of GMEM."
    )


NAMESPACE = {"fail_index": fail_index, "fail_slice": fail_slice}


@dataclasses.dataclass(frozen=True)
class Part:
    """Selection along one dimension of the base array: `start` (an int or an expression), and how many elements.

    `size` is None for an integer index, which drops the dimension.
    """

    start: int | str
    size: int | None
    stride: int = 1

    @property
    def text(self) -> str:
        """The NumPy index."""
        if self.size is None:
            return str(self.start)
        if isinstance(self.start, int):
            stop: int | str = self.start + (self.size - 1) * self.stride + 1
        else:
            stop = f"{self.start} + {(self.size - 1) * self.stride + 1}"
        return f"{self.start}:{stop}" + (f":{self.stride}" if self.stride != 1 else "")


@dataclasses.dataclass(frozen=True)
class Selection:
    """A ref operand resolved: the storage, the parts of it that are selected, and shape changes on top.

    Attributes:
      storage: what is selected from.
      parts: one for each dimension of the base array.
      suffix: NumPy method calls after indexing (transpose, reshape).
    """

    storage: Storage
    parts: tuple[Part, ...]
    suffix: str = ""

    @property
    def text(self) -> str:
        """Expression of the NumPy view."""
        whole = all(
            part.size == size and part.start == 0 and part.stride == 1
            for part, size in zip(self.parts, self.storage.allocation.aval.shape, strict=True)
        )
        index = "" if whole else f"[{', '.join(part.text for part in self.parts)}]"
        return f"{self.storage.name}{index}{self.suffix}"


def select(context: Context, view: View, *, checked: bool = True) -> Selection:
    """Resolves a ref operand, and emits bounds checks for what is not known to be inside.

    Args:
      context: what is being compiled.
      view: the operand, over jaxpr variables.
      checked: False leaves bounds to the caller (TMA may cross the border of GMEM).

    Raises:
      Unsupported: a transform that the simulator has no view for.
    """
    storage = context.values[view.ref]
    assert isinstance(storage, Storage)
    shape = tuple(view.base.shape)
    parts = tuple(Part(0, size) for size in shape)
    suffix = ""
    for transform in view.transforms:
        if isinstance(transform, NDIndexer):
            if suffix:
                raise context.unsupported(
                    f"slicing {storage.allocation.name} after a transpose or reshape", "Slice it first, then transpose."
                )
            parts = _index(context, storage, parts, transform, shape, checked=checked)
        elif isinstance(transform, TransposeTransform):
            suffix += f".transpose({tuple(transform.permutation)})"
        elif isinstance(transform, ReshapeTransform):
            suffix += f".reshape({tuple(transform.shape)})"
            _require_contiguous(context, storage, parts, shape)
        elif isinstance(transform, BitcastTransform):
            raise context.unsupported(
                f"ref.bitcast of {storage.allocation.name}", "Convert the loaded values with jax.lax.bitcast_convert_type."
            )
        else:
            raise context.unsupported(
                f"{type(transform).__name__} on {storage.allocation.name}", "Use slices, transposes and reshapes."
            )
    return Selection(storage, parts, suffix)


def _require_contiguous(context: Context, storage: Storage, parts: tuple[Part, ...], shape: tuple[int, ...]) -> None:
    """A reshape of a non-contiguous selection would be a copy, and stores to it would be lost."""
    seen_slice = False
    for part, size in zip(parts, shape, strict=True):
        if seen_slice and part.size != size:
            raise context.unsupported(
                f"reshape of a slice of {storage.allocation.name} that is not contiguous", "Slice leading dimensions only."
            )
        seen_slice = seen_slice or part.size is not None and part.size > 1


def _index(
    context: Context, storage: Storage, parts: tuple[Part, ...], indexer: Any, shape: tuple[int, ...], *, checked: bool
) -> tuple[Part, ...]:
    indices = iter(indexer.indices)
    result = []
    for part, size in zip(parts, shape, strict=True):
        if part.size is None:
            result.append(part)  # dropped by an earlier index
        else:
            result.append(_index_dimension(context, storage, part, next(indices), checked=checked))
    return tuple(result)


def _index_dimension(context: Context, storage: Storage, part: Part, index: Any, *, checked: bool) -> Part:
    name = storage.allocation.name
    length = part.size
    assert length is not None
    if isinstance(index, Slice):
        start, size, stride = _offset(context, index.start), int(index.size), int(index.stride)
    elif getattr(getattr(index, "aval", index), "shape", ()) != ():
        raise context.unsupported(f"indexing {name} with an array", "Use integers and slices.")
    else:
        start, size, stride = _offset(context, index), None, 1
    reach = 1 if size is None else (size - 1) * stride + 1
    if checked:
        _check_bounds(context, start, reach, length, name, is_slice=size is not None)
    return Part(_add(context, part.start, part.stride, start), size, part.stride * stride)


def _offset(context: Context, value: Any) -> int | str:
    if isinstance(value, (int, np.integer)):
        return int(value)
    text = context.expression(value)
    try:
        return int(text)
    except ValueError:
        return text


def _add(context: Context, base: int | str, stride: int, offset: int | str) -> int | str:
    if isinstance(base, int) and isinstance(offset, int):
        return base + stride * offset
    scaled = offset if stride == 1 else f"{stride} * {offset}"
    if base == 0:
        return scaled if isinstance(offset, str) and stride == 1 else context.emitter.assign(str(scaled), "i")
    return context.emitter.assign(f"{base} + {scaled}", "i")


def _check_bounds(context: Context, start: int | str, reach: int, length: int, name: str, *, is_slice: bool) -> None:
    if isinstance(start, int) and 0 <= start <= length - reach:
        return
    failure = f"fail_slice({start}, {reach}, {length}, {name!r})" if is_slice else f"fail_index({start}, {length}, {name!r})"
    context.emitter.line(f"if not 0 <= {start} <= {length - reach}: {failure}")


@dataclasses.dataclass(frozen=True)
class BoxText:
    """A selection of a GMEM array as a TMA box.

    Attributes:
      view: expression of the NumPy view; where the box crosses the border, of the part inside.
      box: expression of the `Box` that the memory system takes.
      starts: expressions of the box's corner.
      sides: lengths of the box, 1 for dimensions with an integer index.
      num_bytes: size of the box.
    """

    view: str
    box: str
    starts: tuple[int | str, ...]
    sides: tuple[int, ...]
    num_bytes: int


def select_box(context: Context, view: View) -> BoxText:
    """Resolves a GMEM operand of a copy. The box may cross the border of the array: TMA fills or clips.

    Raises:
      Unsupported: strides, or shape changes, that a TMA box does not have.
    """
    selection = select(context, view, checked=False)
    name = selection.storage.allocation.name
    if selection.suffix or any(part.stride != 1 for part in selection.parts):
        raise context.unsupported(f"a TMA copy of a strided, transposed or reshaped {name}", "Slice it only.")
    shape = tuple(view.base.shape)
    item_bits = bits_of(view.dtype)
    sides = tuple(1 if part.size is None else part.size for part in selection.parts)
    starts = tuple(part.start for part in selection.parts)
    pitches = [math.prod(shape[axis + 1 :]) * item_bits // 8 for axis in range(len(shape))]
    terms = [f"{start} * {pitch}" for start, pitch in zip(starts, pitches, strict=True) if start != 0]
    row_bytes = sides[-1] * item_bits // 8
    rows = math.prod(sides[:-1])
    row_pitch = next((p for p, side in zip(pitches[-2::-1], sides[-2::-1], strict=True) if side > 1), row_bytes)
    buffer = selection.storage.allocation.number
    box = f"Box({buffer}, {' + '.join(terms) or 0}, {rows}, {row_bytes}, {row_pitch})"
    return BoxText(selection.text, box, starts, sides, rows * row_bytes)


def is_inside(box: BoxText, shape: tuple[int, ...]) -> str:
    """Returns the condition under which a box lies inside an array, "True" if that is known."""
    conditions = []
    for start, side, size in zip(box.starts, box.sides, shape, strict=True):
        if isinstance(start, int):
            if not 0 <= start <= size - side:
                return "False"
        else:
            conditions.append(f"0 <= {start} <= {size - side}")
    return " and ".join(conditions) or "True"


def filled_box(array: np.ndarray, starts: tuple[int, ...], sides: tuple[int, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Returns a box that crosses the border of `array`, with zeros outside, as TMA reads it, reshaped to `shape`."""
    result = np.zeros(sides, array.dtype)
    inside, target = _overlap(array.shape, starts, sides)
    result[target] = array[inside]
    return result.reshape(shape)


def store_box(array: np.ndarray, starts: tuple[int, ...], sides: tuple[int, ...], values: np.ndarray) -> None:
    """Writes the part of a box that lies inside `array`, as TMA does."""
    inside, source = _overlap(array.shape, starts, sides)
    array[inside] = values.reshape(sides)[source]


def _overlap(
    shape: tuple[int, ...], starts: tuple[int, ...], sides: tuple[int, ...]
) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    inside, local = [], []
    for size, start, side in zip(shape, starts, sides, strict=True):
        low, high = max(start, 0), min(start + side, size)
        high = max(high, low)
        inside.append(slice(low, high))
        local.append(slice(low - start, high - start))
    return tuple(inside), tuple(local)
