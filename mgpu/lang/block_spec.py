"""`BlockSpec`: which block of an operand a step works on, and how that block lies in shared memory.

An operand's grid of blocks is addressed by block indices: `index_map` turns grid indices into them. `resolve_block`
pairs a spec with the operand that it is for; the resulting `Block` knows the block's shape and, for given grid
indices, where it is.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import jax.numpy as jnp
from jax.experimental import pallas as pl

from mgpu.errors import KernelTypeError, Unsupported
from mgpu.jax_internals import current_source_line, hide_from_source_lines
from mgpu.lang.copies import OOBFillMode
from mgpu.lang.memory import GMEM, SMEM, MemorySpace

hide_from_source_lines(__file__)


@dataclasses.dataclass
class BlockSpec(pl.BlockSpec):
    """A `pl.BlockSpec` that also says how a block is laid out and when its slot may be reused.

    Attributes:
      block_shape: size of a block along each dimension; None or `pl.Squeezed()` drops a dimension, `pl.Element(n)` is
        indexed by elements. None for the whole operand.
      index_map: from grid indices to the index of a block along each dimension; block 0 if not given.
      pipeline_mode: only None; the depth of a pipeline is its `max_concurrent_steps`.
      transforms: layout of the block in SMEM: `TilingTransform`, then `SwizzleTransform`.
      delay_release: steps after which the block's slot may be overwritten: 1 keeps it for a wgmma that is still in
        flight when the next step begins. Less than `max_concurrent_steps`.
      collective_axes: cluster axes along which all CTAs ask for the same block, so that it is multicast.
      oob_fill_mode: what a block holds where it crosses the border of its operand.
      memory_space: SMEM (the default) for a copy of the block, GMEM to be given the block where it is.
    """

    transforms: Sequence[Any] = ()
    delay_release: int = 0
    collective_axes: tuple[Hashable, ...] = ()
    oob_fill_mode: OOBFillMode = OOBFillMode.ZEROS


@dataclasses.dataclass(frozen=True)
class BlockDimension:
    """A block along one dimension.

    Attributes:
      size: elements; None for a dimension that the block does not have.
      stride: elements between two consecutive indices.
      pad_low: elements by which the block starts early (padding of `pl.Element`).
    """

    size: int | None
    stride: int
    pad_low: int = 0


@dataclasses.dataclass(frozen=True)
class Block:
    """A spec resolved for one operand.

    Attributes:
      name: how errors call the spec: `in_specs[0]`.
      dimensions: the block along each dimension of the operand.
      index_map: from grid indices to block indices.
      dtype: element type of the operand.
      memory_space: SMEM or GMEM.
      transforms, delay_release, collective_axes, oob_fill_mode: as in the spec.
      is_whole: the block is the operand, at every step.
    """

    name: str
    dimensions: tuple[BlockDimension, ...]
    index_map: Callable[..., Any]
    dtype: Any
    memory_space: MemorySpace
    transforms: tuple[Any, ...]
    delay_release: int
    collective_axes: tuple[str, ...]
    oob_fill_mode: OOBFillMode
    is_whole: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the block, without dropped dimensions."""
        return tuple(dimension.size for dimension in self.dimensions if dimension.size is not None)

    @property
    def in_smem(self) -> bool:
        """True if the block is copied to (or from) shared memory."""
        return self.memory_space is SMEM

    def position(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Returns the block indices at the given grid indices.

        Raises:
          KernelTypeError: the index map takes another number of indices, or returns something other than one integer
            for each dimension.
        """
        result = call_index_map(self.name, self.index_map, indices)
        position = tuple(result) if isinstance(result, (tuple, list)) else (result,)
        if len(position) != len(self.dimensions):
            raise KernelTypeError(
                f"{current_source_line()} {self.name}: index_map returns {len(position)} indices for an operand of "
                f"{len(self.dimensions)} dimensions. Return one for each dimension, dropped ones included."
            )
        for value in position:
            _check_index(self.name, value)
        return position

    def slices(self, indices: Sequence[Any]) -> tuple[Any, ...]:
        """Returns what `ref.at[...]` takes to select the block at the given grid indices."""
        return tuple(
            _select(dimension, index) for dimension, index in zip(self.dimensions, self.position(indices), strict=True)
        )


def call_index_map(name: str, index_map: Callable[..., Any], indices: Sequence[Any]) -> Any:
    """Returns what an index map gives for grid indices.

    Raises:
      KernelTypeError: it takes another number of indices.
    """
    try:
        inspect.signature(index_map).bind(*indices)
    except TypeError as error:
        raise KernelTypeError(
            f"{current_source_line()} {name}: index_map cannot be called with the {len(indices)} indices of the "
            f"grid: {error}. "
            "It takes one argument for each grid axis."
        ) from error
    return index_map(*indices)


def _check_index(name: str, value: Any) -> None:
    dtype = getattr(value, "dtype", None)
    is_integer = isinstance(value, int) if dtype is None else jnp.issubdtype(dtype, jnp.integer)
    if not is_integer or getattr(value, "shape", ()) != ():
        raise KernelTypeError(
            f"{current_source_line()} {name}: index_map returns {value!r} as an index; each index is an integer scalar."
        )


def _select(dimension: BlockDimension, index: Any) -> Any:
    if dimension.size is None:
        return index
    start = index if dimension.stride == 1 else index * dimension.stride
    return pl.ds(start - dimension.pad_low if dimension.pad_low else start, dimension.size)


def resolve_block(
    name: str, spec: pl.BlockSpec, shape: Sequence[int], dtype: Any, *, default_space: Any = SMEM
) -> Block:
    """Pairs a spec with an operand.

    Args:
      name: how errors call the spec: `in_specs[0]`.
      spec: a `BlockSpec`, of this module or of Pallas.
      shape, dtype: of the operand in GMEM.
      default_space: where the block is if the spec does not say.

    Raises:
      KernelTypeError: a block shape of another rank, a size below 1, a bad `delay_release`.
      Unsupported: a pipeline mode, or a kind of block dimension or memory space that Hopper kernels have no use for.
    """
    if not isinstance(spec, pl.BlockSpec):
        raise KernelTypeError(f"{current_source_line()} {name} must be a BlockSpec, got {spec!r}.")
    if spec.pipeline_mode is not None:
        raise Unsupported(
            f"{current_source_line()} {name}: pipeline_mode={spec.pipeline_mode} is not available; all operands of a "
            "pipeline have as many slots. Drop it, and give max_concurrent_steps."
        )
    block_shape = tuple(shape) if spec.block_shape is None else tuple(spec.block_shape)
    if len(block_shape) != len(shape):
        raise KernelTypeError(
            f"{current_source_line()} {name}: block_shape {block_shape} has {len(block_shape)} dimensions, the operand "
            f"{tuple(shape)} has {len(shape)}. Give each dimension a size, None to drop it."
        )
    delay = getattr(spec, "delay_release", 0)
    if isinstance(delay, bool) or not isinstance(delay, int) or delay < 0:
        raise KernelTypeError(
            f"{current_source_line()} {name}: delay_release must be an integer of at least 0, got {delay!r}."
        )
    dimensions = tuple(_dimension(name, size) for size in block_shape)
    return Block(
        name=name,
        dimensions=dimensions,
        index_map=spec.index_map or (lambda *_: (0,) * len(shape)),
        dtype=dtype,
        memory_space=_space(name, spec, default_space),
        transforms=tuple(getattr(spec, "transforms", ())),
        delay_release=delay,
        collective_axes=_axes(getattr(spec, "collective_axes", ())),
        oob_fill_mode=getattr(spec, "oob_fill_mode", OOBFillMode.ZEROS),
        is_whole=spec.block_shape is None and spec.index_map is None,
    )


def _axes(axes: Any) -> tuple[str, ...]:
    if axes is None:
        return ()
    return tuple(axes) if isinstance(axes, (tuple, list)) else (axes,)


def _space(name: str, spec: pl.BlockSpec, default_space: Any) -> MemorySpace:
    space = default_space if spec.memory_space is None else spec.memory_space
    if space not in (SMEM, GMEM):
        raise Unsupported(
            f"{current_source_line()} {name}: memory_space={space!r}; a block is in SMEM (copied) or GMEM (where it "
            "is). "
            "Use mgpu.SMEM or mgpu.GMEM."
        )
    return space


def _dimension(name: str, size: Any) -> BlockDimension:
    if size is None or isinstance(size, pl.Squeezed):
        return BlockDimension(None, 1)
    if isinstance(size, pl.Element):
        low, high = size.padding
        return BlockDimension(_size(name, low + size.block_size + high), 1, low)
    if isinstance(size, pl.Blocked):
        size = size.block_size
    if isinstance(size, pl.BoundedSlice):
        raise Unsupported(
            f"{current_source_line()} {name}: {size!r} is a block of run-time size, and a TMA box has a fixed one. "
            "Use the largest size, and mask."
        )
    size = _size(name, size)
    return BlockDimension(size, size)


def _size(name: str, size: Any) -> int:
    try:
        value = size.__index__()
    except AttributeError:
        value = 0
    if value < 1:
        raise KernelTypeError(
            f"{current_source_line()} {name}: a block size must be a positive integer or None, got {size!r}."
        )
    return value
