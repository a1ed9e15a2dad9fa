"""Register layouts: how an array is spread over the lanes of a warpgroup.

Values do not depend on layouts. A layout that an operation asks for is checked against the array's shape: each layout
repeats in tiles (PTX ISA, fragment layouts of wgmma), which must divide it.
"""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import ShapedArray

from mgpu.errors import KernelTypeError
from mgpu.jax_internals import current_source_line, hide_from_source_lines
from mgpu.lang.primitive import View, bind, define_operation, describe, is_ref, type_error
from mgpu.units import LANES_PER_WARPGROUP

hide_from_source_lines(__file__)


@dataclasses.dataclass(frozen=True)
class Replicated:
    """Stands for a warp or lane dimension along which a tiled layout repeats the same elements.

    Attributes:
      times: number of copies.
    """

    times: int


@dataclasses.dataclass(frozen=True)
class ReducedLayout:
    """Layout of what remains when an array in `layout` is reduced along axes.

    Attributes:
      layout: layout of the array before.
      axes: reduced axes.
    """

    layout: Any
    axes: tuple[int, ...]

    def reduce(self, axes: int | Sequence[int]) -> ReducedLayout:
        """Returns the layout after another reduction."""
        return ReducedLayout(self, _axes(axes))

    def __str__(self) -> str:
        return f"{self.layout}.reduce({list(self.axes)})"


@dataclasses.dataclass(frozen=True)
class ParameterizedLayout:
    """A layout with parameters, such as `Layout.WG_STRIDED(shape, vec_size=4)`.

    Attributes:
      layout_cls: which layout.
      args, kwargs: its parameters; keywords as sorted pairs, so that layouts can be compared and hashed.
    """

    layout_cls: Layout
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def reduce(self, axes: int | Sequence[int]) -> ReducedLayout:
        """Returns the layout of an array in this layout after reducing it along `axes`."""
        return ReducedLayout(self, _axes(axes))

    def __str__(self) -> str:
        parameters = [*map(str, self.args), *(f"{name}={value}" for name, value in self.kwargs)]
        return f"{self.layout_cls}({', '.join(parameters)})"


class Layout(enum.Enum):
    """The layouts that have a name."""

    WGMMA = enum.auto()
    WGMMA_8BIT = enum.auto()
    WGMMA_UPCAST_2X = enum.auto()
    WGMMA_UPCAST_4X = enum.auto()
    WGMMA_TRANSPOSED = enum.auto()
    WG_SPLAT = enum.auto()
    WG_STRIDED = enum.auto()
    TILED = enum.auto()
    TCGEN05 = enum.auto()
    TCGEN05_TRANSPOSED = enum.auto()
    TCGEN05_M64_COLLECTIVE = enum.auto()
    TCGEN05_TMEM_NATIVE = enum.auto()
    TCGEN05_M64_COLLECTIVE_NATIVE = enum.auto()
    SMEM_GMEM_COPY = enum.auto()
    TMA_INDICES = enum.auto()
    TMA_INDICES_4 = enum.auto()

    def __call__(self, *args: Any, **kwargs: Any) -> ParameterizedLayout:
        """Returns the layout with parameters."""
        return ParameterizedLayout(self, args, tuple(sorted(kwargs.items())))

    def reduce(self, axes: int | Sequence[int]) -> ReducedLayout:
        """Returns the layout of an array in this layout after reducing it along `axes`."""
        return ReducedLayout(self, _axes(axes))

    def __str__(self) -> str:
        return f"Layout.{self.name}"


# Tile in which each layout repeats: rows of the 4 warps by the columns of one fragment (PTX ISA, wgmma register
# fragments; the 2x and 4x layouts hold as many narrow elements as a 16-bit fragment's lane will need after the upcast).
_TILES: dict[Layout, tuple[int, ...]] = {
    Layout.WGMMA: (64, 8),
    Layout.WGMMA_8BIT: (64, 16),
    Layout.WGMMA_UPCAST_2X: (64, 16),
    Layout.WGMMA_UPCAST_4X: (64, 32),
    Layout.WGMMA_TRANSPOSED: (64, 8),
    Layout.TCGEN05: (128, 8),
    Layout.TCGEN05_TRANSPOSED: (128, 8),
    Layout.TCGEN05_TMEM_NATIVE: (128, 2),
    Layout.TMA_INDICES: (16,),
    Layout.TMA_INDICES_4: (4,),
}


_FRAGMENTS = (
    Layout.WGMMA,
    Layout.WGMMA_8BIT,
    Layout.WGMMA_UPCAST_2X,
    Layout.WGMMA_UPCAST_4X,
    Layout.WGMMA_TRANSPOSED,
)


def is_fragment_layout(layout: Any) -> bool:
    """True if lanes hold an array in `layout` as wgmma's register fragments: a few neighbours in each of many rows."""
    return layout in _FRAGMENTS


def _axes(axes: int | Sequence[int]) -> tuple[int, ...]:
    return (axes,) if isinstance(axes, int) else tuple(axes)


def check_layout(operation: str, layout: Any, shape: Sequence[int]) -> None:
    """Refuses a layout that an array of `shape` cannot have.

    Raises:
      KernelTypeError: not a layout, or tiles that do not divide the shape.
    """
    if layout is None:
        return
    if isinstance(layout, ReducedLayout):
        _check_reduced(operation, layout, shape)
        return
    if not isinstance(layout, (Layout, ParameterizedLayout)):
        raise type_error(operation, f"layout must be a Layout, got {layout!r}.")
    if isinstance(layout, ParameterizedLayout):
        _check_parameters(operation, layout, shape)
        return
    tile = _TILES.get(layout)
    if tile is None:
        if layout in (Layout.WG_STRIDED, Layout.TILED, Layout.SMEM_GMEM_COPY):
            raise type_error(operation, f"{layout} needs parameters: {layout}(...).")
        return  # a splat fits any shape
    tail = tuple(shape)[-len(tile) :]
    if len(shape) < len(tile) or any(size % part for size, part in zip(tail, tile, strict=True)):
        raise type_error(
            operation,
            f"{layout} repeats every {list(tile)} elements, which does not divide {list(shape)}. Pad the array.",
        )


def _check_parameters(operation: str, layout: ParameterizedLayout, shape: Sequence[int]) -> None:
    if layout.layout_cls is not Layout.WG_STRIDED:
        return
    parameters = dict(zip(("shape", "vec_size"), layout.args, strict=False)) | dict(layout.kwargs)
    if set(parameters) != {"shape", "vec_size"}:
        raise type_error(operation, f"Layout.WG_STRIDED takes shape and vec_size, got {layout}.")
    given, vector = tuple(parameters["shape"]), parameters["vec_size"]
    if given != tuple(shape) or math.prod(shape) % (vector * LANES_PER_WARPGROUP):
        raise type_error(
            operation,
            f"{layout} does not fit {list(shape)}: the shapes must be equal and their size a multiple of "
            f"vec_size * {LANES_PER_WARPGROUP} lanes. Use a smaller vec_size.",
        )


def _check_reduced(operation: str, layout: ReducedLayout, shape: Sequence[int]) -> None:
    base: Any = layout
    dropped = 0
    while isinstance(base, ReducedLayout):
        dropped += len(base.axes)
        base = base.layout
    tile = _TILES.get(base, ()) if isinstance(base, Layout) else ()
    if not tile:
        return
    kept = [size for axis, size in enumerate(tile) if axis not in {a % len(tile) for a in layout.axes}]
    tail = tuple(shape)[-len(kept) :] if kept else ()
    if len(shape) != len(tile) - dropped or any(size % part for size, part in zip(tail, kept, strict=True)):
        raise type_error(
            operation, f"{layout} repeats every {kept} elements, which does not divide {list(shape)}. Pad the array."
        )


def _check_cast(x: Any, *, layout: Any) -> ShapedArray:
    if isinstance(x, View):
        raise type_error("layout_cast", f"x must be an array in registers, got {describe(x)}. Load it first.")
    check_layout("layout_cast", layout, x.shape)
    return ShapedArray(x.shape, x.dtype)


layout_cast_p = define_operation("layout_cast", _check_cast, multiple_results=False)


def layout_cast(x: Any, new_layout: Any) -> jax.Array:
    """Returns an array in another layout; its values stay the same.

    Args:
      x: array in registers.
      new_layout: a `Layout`.

    Raises:
      KernelTypeError: the layout's tiles do not divide the array.
    """
    return bind(layout_cast_p, jnp.asarray(x), layout=new_layout)


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int, *, layout: Any = None) -> jax.Array:
    """Returns an array that counts along one dimension.

    Args:
      dtype: element type.
      shape: shape of the array.
      dimension: along which it counts.
      layout: register layout.

    Raises:
      KernelTypeError: no such dimension, or the layout's tiles do not divide the array.
    """
    if not 0 <= dimension < len(shape):
        raise type_error("broadcasted_iota", f"dimension {dimension} of shape {list(shape)} does not exist.")
    result = lax.broadcasted_iota(jnp.dtype(dtype), tuple(shape), dimension)
    return result if layout is None else layout_cast(result, layout)


def print_layout(fmt: str, x: Any) -> None:
    """Prints the layout of an SMEM ref while the kernel is traced, that of an array while it is compiled.

    Args:
      fmt: format string with one placeholder.
      x: ref in SMEM, or an array. The simulator knows the layout of an array where an operation before it says so: an
        accumulator, a load or a cast.

    Raises:
      KernelTypeError: no placeholder in `fmt`.
    """
    if "{}" not in fmt:
        raise KernelTypeError(f"{current_source_line()} print_layout: fmt must contain '{{}}', got {fmt!r}.")
    if is_ref(x):
        aval = x.type if hasattr(x, "type") else getattr(x, "aval", x)
        print(fmt.format(f"{aval.dtype.name}{list(aval.shape)} in {aval.memory_space}"))
    else:
        bind(print_layout_p, jnp.asarray(x), fmt=fmt)


def short_name(layout: Any) -> str:
    """Returns a layout's name as the GPU's compiler prints it: WGMMA, or WGMMA_ROW for what a sum of rows leaves."""
    if isinstance(layout, ReducedLayout) and isinstance(layout.layout, Layout) and layout.axes in _REDUCED:
        return f"{layout.layout.name}_{_REDUCED[layout.axes]}"
    return str(layout).removeprefix("Layout.")


_REDUCED: Mapping[tuple[int, ...], str] = {(0,): "COL", (1,): "ROW"}
print_layout_p = define_operation("print_layout", lambda _, *, fmt: [])
