"""Refs: from `.at[...]` and other transforms to NumPy views, with bounds checked.

A ref's storage is a NumPy array of the ref's logical shape in its carrier (see `mgpu.sim.values`); tiling and swizzle
change no value, so views ignore them. A buffer that is bitcast, or shares bytes with another one, is stored in its own
dtype instead of a carrier (`byte_exact`): then a bitcast is a NumPy view. Of a slotted buffer, the selected slot's own
array is viewed (`mgpu.sim.slots`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, NoReturn

import numpy as np
from jax.experimental import pallas as pl

from mgpu.errors import OutOfBoundsError
from mgpu.jax_internals import BitcastTransform, NDIndexer, ReshapeTransform, TransposeTransform
from mgpu.lang.cluster_refs import MulticastTransform, PeerCtaTransform
from mgpu.lang.primitive import View
from mgpu.lang.ref_union import UnionMemberTransform
from mgpu.lang.transforms import bits_of
from mgpu.sim.compile.context import Context, Storage
from mgpu.sim.compile.tile_cuts import NAMESPACE as TILE_CHECKS
from mgpu.sim.compile.tile_cuts import check_tiles, tiles_of
from mgpu.sim.slots import Slots
from mgpu.sim.values import from_carrier, to_carrier


def fail_index(index: int, size: int, name: str) -> NoReturn:
    """Raises the error for an integer index outside its dimension."""
    raise OutOfBoundsError(f"index {index} into {name} is outside its dimension of {size}. Check the index arithmetic.")


def fail_slice(start: int, length: int, size: int, name: str) -> NoReturn:
    """Raises the error for a slice that leaves its dimension."""
    raise OutOfBoundsError(
        f"slice {start}:{start + length} of {name} leaves its dimension of {size}. "
        "Check the offset, or mask the tail: only TMA copies may cross the border of GMEM."
    )


def check_rows(indices: np.ndarray, size: int, name: str) -> np.ndarray:
    """Returns gather indices, or raises the error for the first one outside the dimension."""
    wrong = indices[(indices < 0) | (indices >= size)]
    if wrong.size:
        fail_index(int(wrong.flat[0]), size, name)
    return indices


NAMESPACE = {
    "fail_index": fail_index,
    "fail_slice": fail_slice,
    "check_rows": check_rows,
    "to_carrier": to_carrier,
    "from_carrier": from_carrier,
    **TILE_CHECKS,
}


@dataclasses.dataclass(frozen=True)
class Part:
    """Selection along one dimension of an array: `start` (an int or an expression), and how many elements.

    `size` is None for an integer index, which drops the dimension. With `gathers`, `start` is an index array.
    """

    start: int | str
    size: int | None
    stride: int = 1
    gathers: bool = False

    @property
    def text(self) -> str:
        """The NumPy index."""
        if self.size is None or self.gathers:
            return str(self.start)
        if isinstance(self.start, int):
            stop: int | str = self.start + (self.size - 1) * self.stride + 1
        else:
            stop = f"{self.start} + {(self.size - 1) * self.stride + 1}"
        return f"{self.start}:{stop}" + (f":{self.stride}" if self.stride != 1 else "")


@dataclasses.dataclass(frozen=True)
class Selection:
    """A ref operand resolved: an array, the parts of it that are selected, and their order.

    Attributes:
      storage: the allocation that is selected from.
      base: expression of the array that `parts` index: the storage itself, or a reshaped or bitcast view of it.
      shape: shape of that array.
      dtype: its element type.
      parts: one for each dimension of that array.
      order: dimensions of the array in the order that the selection shows them; dropped dimensions are left out.
      offset_bytes: terms of the distance of `base` from the storage's first byte.
      peer: expression of the cluster rank whose copy of the storage is meant; "" for one's own.
    """

    storage: Storage
    base: str
    shape: tuple[int, ...]
    dtype: np.dtype
    parts: tuple[Part, ...]
    order: tuple[int, ...]
    offset_bytes: tuple[str, ...] = ()
    peer: str = ""

    @property
    def is_whole(self) -> bool:
        """True if nothing is left out."""
        return _is_whole(self.parts, self.shape)

    @property
    def is_in_order(self) -> bool:
        """True if no dimensions are exchanged."""
        return list(self.order) == sorted(self.order)

    @property
    def text(self) -> str:
        """Expression of the NumPy view."""
        slots = self.storage.slots
        base = self.base if slots is None else f"{self.storage.tiles}[{self._slot(slots)}]"
        within = 0 if slots is None else len(slots.counts)
        parts = self.parts[within:]
        index = "" if _is_whole(parts, self.shape[within:]) else f"[{', '.join(part.text for part in parts)}]"
        if self.is_in_order:
            return f"{base}{index}"
        kept = sorted(self.order)
        return f"{base}{index}.transpose({tuple(kept.index(axis) for axis in self.order)})"

    @property
    def place(self) -> str:
        """Expressions of an object and of the index in it that a load assigns to."""
        slots = self.storage.slots
        return f"{self.text}, ..." if slots is None else f"{self.storage.tiles}, {self._slot(slots)}"

    @property
    def array_place(self) -> str | None:
        """Expression of where the NumPy view of a slot begins in the GMEM array behind it, in bytes; else None."""
        slots = self.storage.slots
        if slots is None:
            return None
        tiles, slot, within = self.storage.tiles, self._slot(slots), len(slots.counts)
        starts = enumerate(part.start for part in self.parts[within:])
        terms = [f"{start} * {tiles}[{slot}].strides[{axis}]" for axis, start in starts if start != 0]
        return " + ".join((f"{tiles}.places[{slot}]", *terms))

    def _slot(self, slots: Slots) -> str:
        """Returns the expression of the number of the slot that the selection lies in."""
        terms = zip(self.parts, slots.pitches, strict=False)
        return " + ".join(f"{part.start} * {pitch}" if pitch > 1 else f"{part.start}" for part, pitch in terms) or "0"

    @property
    def element_offsets(self) -> tuple[str, ...]:
        """Terms of the distance in elements from the first element of `base` to the first one selected."""
        pitches = [math.prod(self.shape[axis + 1 :]) for axis in range(len(self.shape))]
        pairs = zip(self.parts, pitches, strict=True)
        return tuple(f"{part.start} * {pitch}" for part, pitch in pairs if part.start != 0)


def _is_whole(parts: Sequence[Part], shape: Sequence[int]) -> bool:
    return all(
        part.size == size and part.start == 0 and part.stride == 1 and not part.gathers
        for part, size in zip(parts, shape, strict=True)
    )


def select(context: Context, view: View, *, checked: bool = True, has_values: bool = True) -> Selection:
    """Resolves a ref operand, and emits bounds checks for what is not known to be inside.

    Args:
      context: what is being compiled.
      view: the operand, over jaxpr variables.
      checked: False leaves bounds to the caller (TMA may cross the border of GMEM).
      has_values: False if the caller wants to know where the operand is but does not access its values.

    Raises:
      Unsupported: a transform that the simulator has no view for.
    """
    storage = context.values[view.ref]
    assert isinstance(storage, Storage)
    if storage.late and has_values and context.holds_values(storage.allocation):
        context.emitter.once(storage.name, f"if {storage.name} is None: {storage.take(storage.late)}")
    selection = _whole(storage, storage.name, tuple(view.base.shape), np.dtype(view.base.dtype))
    aval: Any = view.base
    tiles = tiles_of(aval.memory_space, len(aval.shape))
    for transform in view.transforms:
        aval = transform.transform_type(aval)
        if isinstance(transform, NDIndexer):
            tiles = check_tiles(context, storage.allocation.name, transform.indices, tiles)
            selection = _index(context, selection, transform, checked=checked)
        elif isinstance(transform, TransposeTransform):
            tiles = tuple(tiles[axis] for axis in transform.permutation)
            order = tuple(selection.order[axis] for axis in transform.permutation)
            selection = dataclasses.replace(selection, order=order)
        elif isinstance(transform, ReshapeTransform):
            selection = _reshape(context, selection, tuple(transform.shape))
            tiles = (1,) * len(transform.shape)
        elif isinstance(transform, BitcastTransform):
            selection = _bitcast(context, selection, tuple(aval.shape), np.dtype(transform.dtype))
            tiles = (1,) * len(aval.shape)
        elif isinstance(transform, UnionMemberTransform):
            selection = _union_member(context, selection, transform)
            tiles = tiles_of(transform.memory_space, len(transform.shape))
        elif isinstance(transform, (PeerCtaTransform, MulticastTransform)):
            selection = _remote(context, selection, transform)
        else:
            raise context.unsupported(
                f"{type(transform).__name__} on {storage.allocation.name}", "Use slices, transposes and reshapes."
            )
    return selection


def _whole(storage: Storage, base: str, shape: tuple[int, ...], dtype: np.dtype, **fields: Any) -> Selection:
    parts = tuple(Part(0, size) for size in shape)
    return Selection(storage, base, shape, dtype, parts, tuple(range(len(shape))), **fields)


def _rebase(
    context: Context, selection: Selection, shape: tuple[int, ...], dtype: np.dtype, suffix: str, what: str
) -> Selection:
    """Takes a contiguous selection, seen as `shape` and `dtype`, as the array that later transforms index."""
    _require_contiguous(context, selection, what)
    item_bits = bits_of(selection.dtype)
    terms = tuple(f"{term} * {item_bits} // 8" for term in selection.element_offsets)
    offset = (*selection.offset_bytes, *terms)
    # The text stays one expression over the storage's name, so that a collective copy can apply it to a peer's buffer.
    return _whole(
        selection.storage, f"{selection.text}{suffix}", shape, dtype, offset_bytes=offset, peer=selection.peer
    )


def _reshape(context: Context, selection: Selection, shape: tuple[int, ...]) -> Selection:
    return _rebase(context, selection, shape, selection.dtype, f".reshape({shape})", "reshape")


def _bitcast(context: Context, selection: Selection, shape: tuple[int, ...], dtype: np.dtype) -> Selection:
    name = context.emitter.constant(dtype)
    return _rebase(context, selection, shape, dtype, f".reshape(-1).view({name}).reshape({shape})", "bitcast")


def _union_member(context: Context, selection: Selection, member: UnionMemberTransform) -> Selection:
    dtype = context.emitter.constant(np.dtype(member.dtype))
    stop = member.offset_bytes + math.prod(member.shape) * np.dtype(member.dtype).itemsize
    base = f"{selection.base}[{member.offset_bytes}:{stop}].view({dtype}).reshape({member.shape})"
    offset = (*selection.offset_bytes, str(member.offset_bytes))
    return _whole(selection.storage, base, member.shape, np.dtype(member.dtype), offset_bytes=offset)


def _remote(context: Context, selection: Selection, transform: PeerCtaTransform | MulticastTransform) -> Selection:
    storage = selection.storage
    if isinstance(transform, MulticastTransform):
        raise context.unsupported(
            f"multicast_ref of {storage.allocation.name}", "It addresses several GPUs; one is simulated here."
        )
    if not storage.entry or not selection.is_whole or selection.base != storage.name:
        raise context.unsupported(
            f"cluster_ref of {storage.allocation.name} after other transforms",
            "Apply cluster_ref to the whole SMEM ref first, then slice it.",
        )
    rank = context.emitter.assign(cluster_rank(context, transform), "rank")
    text = f"cta.cluster[{rank}].buffer({storage.allocation.number}, {storage.entry} - 1)"
    base = context.emitter.assign(text, "peer")
    return dataclasses.replace(selection, base=base, peer=rank)


def cluster_rank(context: Context, transform: PeerCtaTransform) -> str:
    """Returns the expression of a peer's rank in the cluster; axes that the transform leaves out stay one's own."""
    launch = context.program.launch
    given = dict(zip(transform.axes, transform.indices, strict=True))
    rank = "0"
    for name, size in zip(launch.cluster_names, launch.cluster, strict=True):
        index = context.expression(given[name] if name in given else context.axes[name])
        rank = f"({rank} * {size} + {index})"
    return f"check_rank({rank}, {launch.cluster_size})"


def _require_contiguous(context: Context, selection: Selection, what: str) -> None:
    """A view of a non-contiguous selection in another shape would be a copy, and stores to it would be lost."""
    seen_slice = not selection.is_in_order or any(part.stride != 1 or part.gathers for part in selection.parts)
    for part, size in zip(selection.parts, selection.shape, strict=True):
        if seen_slice and part.size != size:
            raise context.unsupported(
                f"{what} of a slice of {selection.storage.allocation.name} that is not contiguous",
                "Slice leading dimensions only.",
            )
        seen_slice = seen_slice or (part.size is not None and part.size > 1)
    if not selection.is_in_order:
        raise context.unsupported(
            f"{what} of a transposed {selection.storage.allocation.name}", f"Apply the {what} first, then transpose."
        )


def _index(context: Context, selection: Selection, indexer: Any, *, checked: bool) -> Selection:
    parts, order = list(selection.parts), []
    for axis, index in zip(selection.order, indexer.indices, strict=True):
        parts[axis] = _index_dimension(context, selection, parts[axis], index, checked=checked)
        if parts[axis].size is not None:
            order.append(axis)
    return dataclasses.replace(selection, parts=tuple(parts), order=tuple(order))


def _index_dimension(context: Context, selection: Selection, part: Part, index: Any, *, checked: bool) -> Part:
    name, length = selection.storage.allocation.name, part.size
    assert length is not None
    shape = getattr(getattr(index, "aval", index), "shape", ())
    if part.gathers:
        raise context.unsupported(f"slicing {name} after an index array", "Slice first, then gather.")
    if shape != () and not isinstance(index, pl.Slice):
        return _gather(context, selection, part, index, shape)
    if isinstance(index, pl.Slice):
        start, size, stride = _offset(context, index.start), int(index.size), int(index.stride)
    else:
        start, size, stride = _offset(context, index), None, 1
    reach = 1 if size is None else (size - 1) * stride + 1
    if checked:
        _check_bounds(context, start, reach, length, name, is_slice=size is not None)
    return Part(_add(context, part.start, part.stride, start), size, part.stride * stride)


def _gather(context: Context, selection: Selection, part: Part, index: Any, shape: tuple[int, ...]) -> Part:
    name = selection.storage.allocation.name
    if len(shape) != 1 or any(other.gathers for other in selection.parts):
        raise context.unsupported(f"indexing {name} with several or multi-dimensional arrays", "Use one 1D array.")
    rows = f"check_rows({context.expression(index)}, {part.size}, {name!r})"
    if part.stride != 1 or part.start != 0:
        rows = f"{part.start} + {part.stride} * {rows}"
    return Part(context.emitter.assign(rows, "rows"), int(shape[0]), 1, gathers=True)


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
    failure = (
        f"fail_slice({start}, {reach}, {length}, {name!r})" if is_slice else f"fail_index({start}, {length}, {name!r})"
    )
    context.emitter.line(f"if not 0 <= {start} <= {length - reach}: {failure}")


def read_text(context: Context, selection: Selection) -> str:
    """Returns the expression of a selection's values in their carrier; shares memory with the buffer where it can."""
    if context.is_byte_exact(selection.storage.allocation):
        return f"to_carrier({selection.text})"
    return selection.text


def write(context: Context, selection: Selection, value: str) -> None:
    """Emits the assignment of carried values to a selection."""
    if not context.holds_values(selection.storage.allocation):
        return
    target = selection.text
    if not selection.is_in_order:
        target = context.emitter.assign(target, "w")
    if context.is_byte_exact(selection.storage.allocation):
        value = f"from_carrier(asarray({value}), {context.emitter.constant(selection.dtype)})"
    context.emitter.line(f"{target}{'' if target.endswith(']') else '[...]'} = {value}")
